/*
 * ring.c - coppice-bench ring: the round trip of an empty entry through a real daemon.
 *
 *   word          a bare word sent and answered between two pinned threads: what the machine allows
 *   spinning_N    both sides spin, N sessions are open; daemon and client each pinned to a core
 *   futex, asleep a bare futex wake-up and answer, and a nop to a sleeping daemon, the waiting side
 *   spinning in both
 */
#include "bench.h"
#include "daemon.h"
#include "words.h"

#include "client/coppice.h"

#include <err.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N_SPINNING 200000u
#define N_ASLEEP 2000u
#define PAUSE_NS 400000u /* longer than the daemon spins, so that it sleeps */
#define N_SESSIONS 64

struct bare {
	_Alignas(128) _Atomic uint32_t ask;
	_Alignas(128) _Atomic uint32_t answer;
	int core;
	bool sleeps; /* the answering side waits in a futex */
	uint32_t rounds;
};

/* No pause instruction: it takes longer than a word takes to cross. */
static void bench_relax(void)
{
	__asm__ volatile("" ::: "memory");
}

static void *bare_answer(void *arg)
{
	struct bare *b = arg;

	bench_pin(b->core);
	for (uint32_t i = 1; i <= b->rounds; i++) {
		while (atomic_load_explicit(&b->ask, memory_order_acquire) != i) {
			if (b->sleeps)
				syscall(SYS_futex, &b->ask, FUTEX_WAIT_PRIVATE, i - 1, NULL, NULL,
					0);
			else
				bench_relax();
		}
		atomic_store_explicit(&b->answer, i, memory_order_release);
	}
	return NULL;
}

static void pause_ns(uint64_t ns)
{
	uint64_t until = clock_now_ns() + ns;

	while (clock_now_ns() < until)
		bench_relax();
}

/* Median round trip of a bare word, in nanoseconds. */
static double bare_round_trip(int answer_core, bool sleeps, uint32_t rounds)
{
	struct bare b = {.core = answer_core, .sleeps = sleeps, .rounds = rounds};
	double *ns = calloc(rounds, sizeof(*ns));
	pthread_t thread;

	pthread_create(&thread, NULL, bare_answer, &b);
	for (uint32_t i = 1; i <= rounds; i++) {
		if (sleeps)
			pause_ns(PAUSE_NS);
		uint64_t start = clock_now_ns();

		atomic_store_explicit(&b.ask, i, memory_order_release);
		if (sleeps)
			syscall(SYS_futex, &b.ask, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		while (atomic_load_explicit(&b.answer, memory_order_acquire) != i)
			bench_relax();
		ns[i - 1] = (double)(clock_now_ns() - start);
	}
	pthread_join(thread, NULL);
	double median = bench_median(ns, rounds);

	free(ns);
	return median;
}

struct session {
	struct coppice *c;
	struct coppice_lane *lane;
};

static struct session session_open(const struct bench_daemon *d)
{
	struct session s;

	if (coppice_connect(&s.c, d->socket) < 0 || coppice_lane_new(s.c, &s.lane) < 0)
		errx(1, "%s", coppice_explain(NULL));
	return s;
}

static double nop_round_trip(struct coppice_lane *lane, bool asleep, uint32_t rounds)
{
	double *ns = calloc(rounds, sizeof(*ns));
	struct coppice_result result;

	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t ticket;

		if (asleep)
			pause_ns(PAUSE_NS);
		uint64_t start = clock_now_ns();

		if (coppice_nop(lane, &ticket) < 0)
			errx(1, "nop refused");
		while (coppice_poll(lane, ticket, &result) == -EAGAIN)
			bench_relax();
		ns[i] = (double)(clock_now_ns() - start);
	}
	double median = bench_median(ns, rounds);

	free(ns);
	return median;
}

static void run_spinning(void)
{
	struct session sessions[N_SESSIONS];
	struct bench_daemon d;

	bench_daemon_start(&d, 0, (const char *[]){"--pool", "64M", NULL});
	bench_pin(1);
	bench_print("ring", "word", "p50_us", bare_round_trip(0, false, N_SPINNING) / 1e3, "us");
	sessions[0] = session_open(&d);
	nop_round_trip(sessions[0].lane, false, N_SPINNING / 10);
	bench_print("ring", "spinning_1", "p50_us",
		    nop_round_trip(sessions[0].lane, false, N_SPINNING) / 1e3, "us");
	for (int i = 1; i < N_SESSIONS; i++)
		sessions[i] = session_open(&d);
	nop_round_trip(sessions[0].lane, false, N_SPINNING / 10);
	bench_print("ring", "spinning_64", "p50_us",
		    nop_round_trip(sessions[0].lane, false, N_SPINNING) / 1e3, "us");
	for (int i = 0; i < N_SESSIONS; i++)
		coppice_close(sessions[i].c);
	bench_daemon_stop(&d);
}

/* The bare wake-up and ours in turn, so that the machine's mood is the same for both. */
static void run_asleep(const char *name, int daemon_core, int client_core)
{
	enum { TURNS = 5 };
	double bare[TURNS], ours[TURNS];
	struct bench_daemon d;

	bench_daemon_start(&d, daemon_core, (const char *[]){"--pool", "64M", NULL});
	bench_pin(client_core);
	struct session s = session_open(&d);

	for (int i = 0; i < TURNS; i++) {
		bare[i] = bare_round_trip(daemon_core, true, N_ASLEEP / TURNS);
		ours[i] = nop_round_trip(s.lane, true, N_ASLEEP / TURNS);
	}
	double bare_ns = bench_median(bare, TURNS), ours_ns = bench_median(ours, TURNS);

	bench_print("ring", name, "futex_us", bare_ns / 1e3, "us");
	bench_print("ring", name, "p50_us", ours_ns / 1e3, "us");
	bench_print("ring", name, "ratio_futex", ours_ns / bare_ns, "ratio");
	coppice_close(s.c);
	bench_daemon_stop(&d);
	bench_pin(-1);
}

static const struct args_option option_table[] = {
	{"only", 'o', "NAME", "spinning, asleep or asleep_unpinned (default: all)"},
	{0},
};

static int take_only(struct args *args, int key, void *to)
{
	(void)key;
	return words_take(args, "spinning asleep asleep_unpinned", to);
}

int ring_main(int argc, char **argv)
{
	const char *only = NULL;
	const struct bench_options options = {
		.doc = "Round trip of an empty entry through a daemon of the bench's own.",
		.table = option_table,
		.take = take_only,
		.to = &only};
	int r = bench_read(&options, argc, argv);

	if (r >= 0)
		return r;
	if (!only || strcmp(only, "spinning") == 0)
		run_spinning();
	if (!only || strcmp(only, "asleep") == 0)
		run_asleep("asleep", 0, 1);
	if (!only || strcmp(only, "asleep_unpinned") == 0)
		run_asleep("asleep_unpinned", -1, -1);
	return 0;
}
