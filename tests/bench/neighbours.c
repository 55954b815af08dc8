/*
 * neighbours.c - coppice-bench neighbours: what a user has beside another who wants all there is.
 *
 *   nops   round trips of empty entries, alone, beside a user who floods as many lanes as asked
 *          with them, and beside one whose large arenas come and go, which a GPU's driver pins
 *   turns  tokens a second of one session that is never done (busy.h), alone, and beside a user of
 *          many such sessions; and its share of the backend's time, as the daemon accounts it
 *
 * Users are users: it takes root.
 */
#include "bench.h"
#include "busy.h"
#include "daemon.h"
#include "words.h"

#include "client/coppice.h"

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONE 65533u
#define OTHER 65534u
#define SESSIONS_MAX 127u /* of a user */
#define LANES_A_SESSION 128u
#define BUDGET_MAX_MS 60000u /* as coppiced has it */
#define TIMES_MAX 1000000u

static struct {
	struct busy busy;
	uint32_t lanes, seconds, arena_mib;
	const char *backend, *budget_ms, *pool;
} options = {.busy = {.n_sessions = 64,
		      .n_tokens = 4096,
		      .q_heads = 32,
		      .kv_heads = 8,
		      .dim = 128,
		      .rows = 1,
		      .ahead = 8},
	     .lanes = 2048,
	     .seconds = 3,
	     .arena_mib = 1000,
	     .backend = "auto",
	     .budget_ms = "30",
	     .pool = "4G"};

enum { KEY_BUDGET = 256, KEY_POOL, KEY_AHEAD, KEY_ARENA };

static const struct args_option option_table[] = {
	{"lanes", 'l', "N", "Lanes that are flooded (default 2048)"},
	{"arena-mib", KEY_ARENA, "N", "Size of arenas that come and go, to 1024 (default 1000)"},
	{"sessions", 's', "N", "Sessions of the other user's (default 64)"},
	{"tokens", 't', "N", "Tokens of each session's path (default 4096)"},
	{"ahead", KEY_AHEAD, "N", "Tokens that each session has waiting, to 64 (default 8)"},
	{"seconds", 'n', "N", "How long each is watched (default 3)"},
	{"backend", 'b', "NAME", "The daemon's backend (default auto)"},
	{"budget-ms", KEY_BUDGET, "MS", "Its batch_budget_ms (default 30)"},
	{"pool", KEY_POOL, "BYTES", "Its pool (default 4G)"},
	{0},
};

/* What the daemon is told as it stands. */
static int take_budget(struct args *args)
{
	uint32_t ms;
	int r = bench_take_whole(args, 1, BUDGET_MAX_MS, &ms);

	if (r == 0)
		options.budget_ms = args->value;
	return r;
}

static int parse_option(struct args *args, int key, void *to)
{
	(void)to;
	switch (key) {
	case 'l':
		return bench_take_whole(args, 1, SESSIONS_MAX * LANES_A_SESSION, &options.lanes);
	case KEY_ARENA:
		return bench_take_whole(args, 1, 1024, &options.arena_mib);
	case 's':
		return bench_take_whole(args, 1, SESSIONS_MAX, &options.busy.n_sessions);
	case 't':
		return bench_take_whole(args, 1, BENCH_TOKENS_MAX, &options.busy.n_tokens);
	case KEY_AHEAD:
		return bench_take_whole(args, 1, BUSY_AHEAD_MAX, &options.busy.ahead);
	case 'n':
		return bench_take_whole(args, 1, UINT32_MAX, &options.seconds);
	case 'b':
		return words_take(args, WORDS_BACKENDS, &options.backend);
	case KEY_BUDGET:
		return take_budget(args);
	case KEY_POOL:
		return bench_take_pool(args, &options.pool);
	}
	return 0;
}

static int check_options(struct args *args, void *to)
{
	(void)to;
	return geteuid() == 0 ? 0 : args_fail(args, "only root has several users");
}

/* ---- another user ---- */

struct other {
	pid_t pid;
	int said;
};

/* Once it has said that it is at work. */
static struct other other_start(const struct bench_daemon *d, uid_t uid,
				void (*life)(const struct bench_daemon *d, int said))
{
	struct other other;
	int pipe_fds[2];
	char byte;

	if (pipe(pipe_fds) < 0)
		err(1, "pipe");
	other = (struct other){fork(), pipe_fds[0]};
	if (other.pid == 0) {
		if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
			err(1, "user %u", uid);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user's has none */
		life(d, pipe_fds[1]);
		_exit(1);
	}
	close(pipe_fds[1]);
	if (read(other.said, &byte, 1) != 1)
		errx(1, "a client failed");
	return other;
}

static void other_end(const struct other *other)
{
	kill(other->pid, SIGKILL);
	waitpid(other->pid, NULL, 0);
	close(other->said);
}

static void must(int r, const struct coppice *c)
{
	if (r < 0)
		errx(1, "%s", coppice_explain(c));
}

/* ---- nops ---- */

static void flood(const struct bench_daemon *d, int said)
{
	struct coppice_lane **lanes = calloc(options.lanes, sizeof(struct coppice_lane *));
	struct coppice *c = NULL;

	if (!lanes)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < options.lanes; i++) {
		if (i % LANES_A_SESSION == 0)
			must(coppice_connect(&c, d->socket), NULL);
		must(coppice_lane_new(c, &lanes[i]), c);
	}
	if (write(said, "r", 1) != 1)
		err(1, "pipe");
	for (uint32_t i = 0;; i = (i + 1) % options.lanes) {
		while (coppice_nop(lanes[i], NULL) == 0)
			continue;
	}
}

static void arenas_come_and_go(const struct bench_daemon *d, int said)
{
	size_t bytes = (size_t)options.arena_mib << 20;
	struct coppice_arena *arena;
	struct coppice *c;

	must(coppice_connect(&c, d->socket), NULL);
	for (bool first = true;; first = false) {
		must(coppice_arena_new(c, COPPICE_HOST, bytes, &arena), c);
		if (first && write(said, "r", 1) != 1)
			err(1, "pipe");
		coppice_arena_free(arena);
	}
}

/* Each after a pause, as between steps. */
static uint32_t nop_times(struct coppice *c, struct coppice_lane *lane, double *us)
{
	uint64_t end_ns = clock_now_ns() + options.seconds * UINT64_C(1000000000), ticket = 0;
	uint32_t n = 0;

	while (n < TIMES_MAX && clock_now_ns() < end_ns) {
		uint64_t start_ns = clock_now_ns();

		must(coppice_nop(lane, &ticket), c);
		must(coppice_wait(lane, ticket, COPPICE_FOREVER), c);
		us[n++] = (double)(clock_now_ns() - start_ns) / 1e3;
		usleep(100);
	}
	bench_sort(us, n);
	return n;
}

static void print_nops(struct coppice *c, struct coppice_lane *lane, const char *name)
{
	double *us = calloc(TIMES_MAX, sizeof(*us));
	uint32_t n = us ? nop_times(c, lane, us) : 0;

	if (n == 0)
		errx(1, "no times");
	bench_print("neighbours", name, "p50_us", us[n / 2], "us");
	bench_print("neighbours", name, "p99_us", us[(uint32_t)(n * 0.99)], "us");
	bench_print("neighbours", name, "worst_us", us[n - 1], "us");
	free(us);
}

static void run_nops(const struct bench_daemon *d)
{
	struct coppice_lane *lane;
	struct coppice *c;
	struct other other;
	char name[40];

	must(coppice_connect(&c, d->socket), NULL);
	must(coppice_lane_new(c, &lane), c);
	print_nops(c, lane, "nops_alone");
	other = other_start(d, OTHER, flood);
	snprintf(name, sizeof(name), "nops_beside_%u_lanes", options.lanes);
	print_nops(c, lane, name);
	other_end(&other);
	other = other_start(d, OTHER, arenas_come_and_go);
	snprintf(name, sizeof(name), "nops_beside_arenas_%u_mib", options.arena_mib);
	print_nops(c, lane, name);
	other_end(&other);
	coppice_close(c);
}

/* ---- turns ---- */

static void be_one(const struct bench_daemon *d, int said)
{
	struct busy one = options.busy;

	one.n_sessions = 1;
	_exit(busy_run(&one, d->socket, said) < 0);
}

static void be_many(const struct bench_daemon *d, int said)
{
	_exit(busy_run(&options.busy, d->socket, said) < 0);
}

struct had {
	double tokens, one_ns, all_ns; /* of the one: tokens and time; of all: time */
};

static double number_of(const json_t *session, const char *key)
{
	const json_t *value = json_object_get(session, key);

	return json_is_string(value) ? strtod(json_string_value(value), NULL)
				     : json_number_value(value);
}

static struct had had_now(const struct bench_daemon *d)
{
	json_t *answer = bench_daemon_ask(d, "sessions");
	const json_t *session;
	struct had had = {0};
	size_t i;

	json_array_foreach(json_object_get(answer, "sessions"), i, session)
	{
		double ns = number_of(session, "backend_ns");

		had.all_ns += ns;
		if (number_of(session, "uid") != ONE)
			continue;
		had.one_ns += ns;
		had.tokens += number_of(session, "tokens_computed");
	}
	json_decref(answer);
	return had;
}

/* Tokens a second of the one; its share to *ret_share. */
static double watch(const struct bench_daemon *d, double *ret_share)
{
	struct had from = had_now(d), to;
	uint64_t start_ns = clock_now_ns();

	sleep(options.seconds);
	to = had_now(d);
	*ret_share = (to.one_ns - from.one_ns) / (to.all_ns - from.all_ns);
	return (to.tokens - from.tokens) / ((double)(clock_now_ns() - start_ns) / 1e9);
}

static void run_turns(const struct bench_daemon *d)
{
	struct other one = other_start(d, ONE, be_one), many;
	double share, alone = watch(d, &share), beside;
	char name[40];

	many = other_start(d, OTHER, be_many);
	beside = watch(d, &share);
	snprintf(name, sizeof(name), "turns_1_beside_%u", options.busy.n_sessions);
	bench_print("neighbours", name, "share_of_time", share, "");
	bench_print("neighbours", name, "alone_tokens_s", alone, "1/s");
	bench_print("neighbours", name, "beside_tokens_s", beside, "1/s");
	bench_print("neighbours", name, "of_alone", beside / alone, "");
	other_end(&one);
	other_end(&many);
}

int neighbours_main(int argc, char **argv)
{
	const struct bench_options of_neighbours = {
		.table = option_table,
		.take = parse_option,
		.check = check_options,
		.doc = "A user beside another who wants all there is.",
	};
	struct bench_daemon d;
	int r = bench_read(&of_neighbours, argc, argv);

	if (r >= 0)
		return r;
	bench_daemon_start(&d, -1,
			   (const char *[]){"--backend", options.backend, "--pool", options.pool,
					    "--batch-budget-ms", options.budget_ms, "--max-lanes",
					    "128", NULL});
	if (chmod(d.dir, 0711) < 0)
		err(1, "%s", d.dir);
	run_nops(&d);
	run_turns(&d);
	bench_daemon_stop(&d);
	return 0;
}
