/*
 * client_test.c - libcoppice against a coppiced of its own for each test: what the library promises on its side of the
 * border. argv[1] is the daemon's program.
 */
#include "coppice.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define N_IDS 32768u /* of an extension, at most */
#define N_TREE 1024u /* of a draft tree, at most */

static const char *daemon_program;

struct fixture {
	char dir[32];
	char path[64];
	pid_t daemon;
	uint64_t died_ns;
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_arena *arena;
	uint32_t model;
	uint32_t ids[N_IDS];
};

/* The next so many allocations of this thread fail; the linker puts this around calloc. */
static _Thread_local uint32_t n_to_fail;

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (n_to_fail == 0)
		return __real_calloc(n, bytes);
	n_to_fail--;
	return NULL;
}

/* The longest futex wait of this process; the linker puts this around syscall. */
static _Atomic uint64_t longest_sleep_ns;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	const struct timespec *time;
	va_list list;
	long a[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	time = (const struct timespec *)a[3];
	if (number == SYS_futex && a[1] == FUTEX_WAIT && time) {
		uint64_t ns = (uint64_t)time->tv_sec * 1000 * MS + (uint64_t)time->tv_nsec;
		longest_sleep_ns = ns > longest_sleep_ns ? ns : longest_sleep_ns;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static void daemon_start(struct fixture *f)
{
	f->daemon = fork();
	assert_true(f->daemon >= 0);
	if (f->daemon > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(daemon_program, "coppiced", "--socket", f->path, "--pool", "64M", "--backend", "cpu",
	      "--log-level", "error", NULL);
	_exit(127);
}

static void daemon_stop(struct fixture *f)
{
	if (f->daemon <= 0)
		return;
	kill(f->daemon, SIGKILL);
	waitpid(f->daemon, NULL, 0);
	f->daemon = 0;
}

/* Returns when it has stopped. */
static void daemon_pause(struct fixture *f)
{
	kill(f->daemon, SIGSTOP);
	waitpid(f->daemon, NULL, WUNTRACED);
}

static struct coppice *connect_soon(const char *path)
{
	struct coppice *c = NULL;

	for (int i = 0; i < 1000 && coppice_connect(&c, path) < 0; i++)
		usleep(10000);
	assert_non_null(c);
	return c;
}

static int setup(void **state)
{
	struct coppice_model_info info = {
		.name = "m",
		.n_layers = 1,
		.n_q_heads = 1,
		.n_kv_heads = 1,
		.head_dim = 16,
		.dtype = COPPICE_FP32,
	};
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/client-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/socket", f->dir);
	daemon_start(f);
	f->c = connect_soon(f->path);
	assert_int_equal(coppice_model_open(f->c, &info, &f->model), 0);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &f->arena), 0);
	assert_int_equal(coppice_lane_new(f->c, &f->lane), 0);
	for (uint32_t i = 0; i < N_IDS; i++)
		f->ids[i] = i;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	coppice_close(f->c);
	daemon_stop(f);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
	return 0;
}

static struct coppice_seq *open_seq(struct fixture *f, struct coppice_lane *lane, uint32_t n)
{
	struct coppice_match match;
	struct coppice_seq *seq;

	assert_int_equal(coppice_seq_open(lane, f->model, f->ids, n, 0, &seq, &match), 0);
	assert_true(match.cached < n);
	return seq;
}

static void assert_explained(struct fixture *f, const char *part)
{
	const char *sentence = coppice_explain(f->c);

	if (!strstr(sentence, part))
		fail_msg("\"%s\" does not say \"%s\"", sentence, part);
}

static void entries_complete_in_order(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	for (uint64_t i = 1; i <= 1000; i++) {
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
		assert_int_equal(ticket, i);
		assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
		assert_int_equal(coppice_poll(f->lane, ticket, &result), 0);
		assert_int_equal(result.ticket, ticket);
		assert_int_equal(result.status, 0);
	}
}

static void a_full_lane_says_so_and_empties(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	daemon_pause(f);
	for (int i = 0; i < 256; i++)
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), -EAGAIN);
	assert_explained(f, "256 entries");
	assert_int_equal(coppice_poll(f->lane, ticket, &result), -EAGAIN);
	assert_int_equal(coppice_wait(f->lane, ticket, 20 * MS), -ETIMEDOUT);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), 0);
}

static void a_waiter_looks_around_every_100_ms(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;

	daemon_pause(f);
	longest_sleep_ns = 0;
	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, 450 * MS), -ETIMEDOUT);
	assert_true(longest_sleep_ns == 100 * MS);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
}

static void a_result_stays_for_256_tickets(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	for (int i = 0; i < 256; i++) {
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
		assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	}
	assert_int_equal(coppice_poll(f->lane, 1, &result), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), 0);
	assert_int_equal(coppice_poll(f->lane, 1, &result), -ESTALE);
	assert_int_equal(coppice_poll(f->lane, 2, &result), 0);
}

static void tickets_that_never_were_are_refused(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;

	assert_int_equal(coppice_poll(f->lane, 1, &result), -EINVAL);
	assert_int_equal(coppice_wait(f->lane, 0, 0), -EINVAL);
}

/* Bodies of ever other lengths, up to the largest, go round the arena many times with several in flight. */
static void bodies_go_round_the_arena_unharmed(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 8);
	uint64_t last = 0;
	uint64_t failed = 0;
	uint64_t checked = 0;

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t n = i % 5 ? 1 + i * 7919 % 20000 : N_IDS;
		int r;

		while ((r = coppice_seq_draft(seq, f->ids, NULL, n, &last)) == -EAGAIN)
			failed += coppice_wait(f->lane, ++checked, COPPICE_FOREVER) != 0;
		assert_int_equal(r, 0);
		while ((r = coppice_seq_trim(seq, 0, &last)) == -EAGAIN)
			failed += coppice_wait(f->lane, ++checked, COPPICE_FOREVER) != 0;
		assert_int_equal(r, 0);
	}
	while (checked < last)
		failed += coppice_wait(f->lane, ++checked, COPPICE_FOREVER) != 0;
	assert_int_equal(failed, 0);
	coppice_seq_close(seq);
}

static struct coppice_step_seq part_of(struct fixture *f, struct coppice_seq *seq, uint32_t n_new)
{
	float *rows = coppice_arena_base(f->arena);

	return (struct coppice_step_seq){
		.seq = seq,
		.n_new = n_new,
		.q = rows,
		.k = rows + 16 * n_new,
		.v = rows + 32 * n_new,
		.o = rows + 48 * n_new,
		.lse = rows + 64 * n_new,
	};
}

/* One token sees itself alone: o is v, and lse the score. */
static void a_step_of_one_token_returns_its_v(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 1);
	struct coppice_step_seq part = part_of(f, seq, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	float *rows = coppice_arena_base(f->arena);
	uint64_t ticket;

	for (int i = 0; i < 48; i++)
		rows[i] = (float)(i % 16);
	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	for (int i = 0; i < 16; i++)
		assert_float_equal(rows[48 + i], (float)i, 1e-6);
	assert_float_equal(*part.lse, 1240.0f / 4, 1e-3);
	coppice_seq_close(seq);
}

static void pointers_outside_arenas_are_named(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 1);
	float elsewhere[16] = {0};
	struct coppice_step_seq parts[2] = {part_of(f, seq, 1), part_of(f, seq, 1)};
	struct coppice_step step = {.seqs = parts, .n_seqs = 2};

	parts[1].v = elsewhere;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "v of sequence 1 does not lie in an arena");
	parts[1].v = (char *)coppice_arena_base(f->arena) + coppice_arena_bytes(f->arena);
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	parts[1].v = NULL;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "v of sequence 1 is NULL");
	step.n_seqs = 0;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	coppice_seq_close(seq);
}

static void a_failed_entry_is_explained_to_who_waits(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 1);
	struct coppice_step_seq part = part_of(f, seq, 1);
	struct coppice_step step = {.layer = 7, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), -EINVAL);
	assert_explained(f, "step of layer 7 (ticket 2): sequence 0: this layer is not the next");
	coppice_seq_close(seq);
}

static void nothing_to_do_is_refused(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 1);
	struct coppice_seq *none;
	struct coppice_match match;
	struct coppice_arena *arena;

	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 0, 0, &none, &match), -EINVAL);
	assert_int_equal(coppice_seq_open(f->lane, 77, f->ids, 1, 0, &none, &match), -EINVAL);
	assert_explained(f, "model 77");
	assert_int_equal(coppice_seq_extend(seq, f->ids, 0, NULL), -EINVAL);
	assert_explained(f, "no tokens");
	assert_int_equal(coppice_seq_extend(seq, f->ids, N_IDS + 1, NULL), -EINVAL);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 0, &arena), -EINVAL);
	coppice_seq_close(seq);
}

static void extensions_are_as_long_as_promised(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 3);
	uint32_t parents[N_TREE + 1];
	uint64_t ticket;

	for (uint32_t i = 0; i <= N_TREE; i++)
		parents[i] = i - 1;
	assert_int_equal(coppice_seq_extend(seq, f->ids, N_IDS, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_seq_trim(seq, 0, NULL), 0);
	assert_int_equal(coppice_seq_draft(seq, f->ids, parents, N_TREE + 1, NULL), -EINVAL);
	assert_explained(f, "1024");
	assert_int_equal(coppice_seq_draft(seq, f->ids, parents, N_TREE, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	coppice_seq_close(seq);
}

static void a_fork_finds_room_in_a_full_lane(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 3);
	struct coppice_seq *other;

	while (coppice_nop(f->lane, NULL) == 0)
		;
	assert_int_equal(coppice_seq_fork(seq, &other), 0);
	coppice_seq_close(seq);
	coppice_seq_close(other);
}

/* The daemon allows a session 1,024 sequences. */
static void a_fork_without_memory_leaves_no_handle_behind(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 3);
	struct coppice_seq *other;

	for (int i = 0; i < 1100; i++) {
		n_to_fail = 1;
		assert_int_equal(coppice_seq_fork(seq, &other), -ENOMEM);
		assert_int_equal(n_to_fail, 0);
	}
	assert_explained(f, "out of memory");
	assert_int_equal(coppice_seq_fork(seq, &other), 0);
	coppice_seq_close(seq);
	coppice_seq_close(other);
}

static void a_pollable_lane_rings_once_for_a_wish(void **state)
{
	struct fixture *f = *state;
	struct coppice_lane *lane;
	struct pollfd p = {.events = POLLIN};
	uint64_t ticket;

	assert_int_equal(coppice_lane_fd(f->lane), -1);
	assert_int_equal(coppice_lane_new_pollable(f->c, &lane), 0);
	p.fd = coppice_lane_fd(lane);
	for (int i = 0; i < 100; i++) {
		coppice_lane_arm(lane);
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(coppice_nop(lane, &ticket), 0);
		assert_int_equal(poll(&p, 1, 10000), 1);
		assert_int_equal(coppice_wait(lane, ticket, COPPICE_FOREVER), 0);
	}
	coppice_lane_free(lane);
}

static void a_child_is_told_that_the_connection_is_not_its_own(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = open_seq(f, f->lane, 1);
	struct coppice_step_seq part = part_of(f, seq, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	struct coppice_result result;
	int bad = 0;
	int status;
	pid_t pid;

	assert_int_equal(coppice_nop(f->lane, NULL), 0);
	pid = fork();
	if (pid == 0) {
		bad += coppice_nop(f->lane, NULL) != -EOWNERDEAD;
		bad += coppice_poll(f->lane, 1, &result) != -EOWNERDEAD;
		bad += coppice_wait(f->lane, 1, 0) != -EOWNERDEAD;
		bad += coppice_step(f->lane, &step, NULL) != -EOWNERDEAD;
		bad += coppice_seq_extend(seq, f->ids, 1, NULL) != -EOWNERDEAD;
		bad += coppice_seq_fork(seq, &seq) != -EOWNERDEAD;
		bad += coppice_unpin(f->c, 1) != -EOWNERDEAD;
		bad += !strstr(coppice_explain(f->c), "fork()");
		coppice_lane_arm(f->lane);
		coppice_seq_close(seq);
		coppice_lane_free(f->lane);
		coppice_arena_free(f->arena);
		coppice_close(f->c);
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(coppice_wait(f->lane, 1, COPPICE_FOREVER), 0);
	coppice_seq_close(seq);
}

/* Kills it after a while, and says when the kernel reported its death. */
static void *kill_soon(void *arg)
{
	struct fixture *f = arg;

	usleep(50000);
	daemon_stop(f);
	f->died_ns = now_ns();
	return NULL;
}

static void a_dead_daemon_ends_the_wait_and_all_that_follows(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;
	uint64_t end_ns;
	pthread_t killer;
	int r;

	daemon_pause(f);
	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(pthread_create(&killer, NULL, kill_soon, f), 0);
	r = coppice_wait(f->lane, ticket, COPPICE_FOREVER);
	end_ns = now_ns();
	pthread_join(killer, NULL);
	assert_int_equal(r, -ECONNRESET);
	assert_true(end_ns < f->died_ns + 200 * MS);
	assert_int_equal(coppice_nop(f->lane, NULL), -ECONNRESET);
	assert_int_equal(coppice_unpin(f->c, 1), -ECONNRESET);
	assert_explained(f, "daemon is gone");
}

static void a_death_is_noticed_without_waiting(void **state)
{
	struct fixture *f = *state;

	daemon_stop(f);
	usleep(150000);
	assert_int_equal(coppice_nop(f->lane, NULL), -ECONNRESET);
}

static void a_daemon_can_follow_a_killed_one_at_once(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 5; i++) {
		coppice_close(f->c);
		daemon_stop(f);
		daemon_start(f);
		do
			f->c = connect_soon(f->path);
		while (coppice_lane_new(f->c, &f->lane) < 0 && (coppice_close(f->c), true));
	}
}

static void nobody_to_connect_to_is_explained(void **state)
{
	struct fixture *f = *state;
	struct coppice *c;
	int r;

	daemon_stop(f);
	/* The kernel may take a moment to close the listening socket. */
	while ((r = coppice_connect(&c, f->path)) == -ECONNRESET)
		;
	assert_int_equal(r, -ECONNREFUSED);
	assert_non_null(strstr(coppice_explain(NULL), f->path));
	assert_int_equal(coppice_connect(&c, "/nowhere/at/all"), -ENOENT);
	assert_non_null(strstr(coppice_explain(NULL), "/nowhere/at/all"));
}

/* A claim that is not worked on: who waits for it is answered at its time limit, others in the meantime. */
static void a_wait_does_not_keep_others_from_their_answers(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = open_seq(f, f->lane, 100);
	struct coppice_seq *second = open_seq(f, f->lane, 100);
	struct coppice_match match;
	uint64_t start_ns = now_ns();

	assert_int_equal(coppice_seq_wait(second, 30 * MS, &match), -ETIMEDOUT);
	assert_true(now_ns() - start_ns >= 30 * MS);
	assert_int_equal(match.pending, 99);
	coppice_seq_close(first);
	assert_int_equal(coppice_seq_wait(second, COPPICE_FOREVER, &match), 0);
	assert_int_equal(match.pending, 0);
	assert_true(match.claimed);
	coppice_seq_close(second);
}

struct worker {
	struct fixture *f;
	unsigned index;
	unsigned bad;
};

static void work_once(struct worker *w, struct coppice_lane *lane, unsigned round)
{
	struct fixture *f = w->f;
	struct coppice_match match;
	struct coppice_seq *seq = NULL;
	uint32_t ids[64];
	uint64_t ticket = 0;

	for (uint32_t i = 0; i < 64; i++)
		ids[i] = (w->index << 20) + (round << 8) + i;
	w->bad += coppice_seq_open(lane, f->model, ids, 64, 0, &seq, &match) != 0;
	if (!seq)
		return;
	w->bad += match.cached != 0 || !match.claimed;
	w->bad += coppice_seq_wait(seq, 5 * MS, &match) != 0;
	w->bad += coppice_nop(lane, &ticket) != 0;
	w->bad += coppice_wait(lane, ticket, COPPICE_FOREVER) != 0;
	w->bad += coppice_seq_extend(seq, ids, 0, NULL) != -EINVAL;
	w->bad += !strstr(coppice_explain(f->c), "coppice_seq_extend");
	coppice_seq_close(seq);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct coppice_arena *arena = NULL;
	struct coppice_lane *lane = NULL;

	w->bad += coppice_lane_new(w->f->c, &lane) != 0;
	for (unsigned round = 0; lane && round < 50; round++) {
		work_once(w, lane, round);
		w->bad += coppice_arena_new(w->f->c, COPPICE_HOST, 1, &arena) != 0;
		coppice_arena_free(arena);
	}
	coppice_lane_free(lane);
	return NULL;
}

static void threads_share_a_connection(void **state)
{
	struct fixture *f = *state;
	struct worker workers[6];
	pthread_t threads[6];

	for (unsigned i = 0; i < 6; i++) {
		workers[i] = (struct worker){.f = f, .index = i + 1};
		assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(workers[i].bad, 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(entries_complete_in_order),
		TEST(a_full_lane_says_so_and_empties),
		TEST(a_waiter_looks_around_every_100_ms),
		TEST(a_result_stays_for_256_tickets),
		TEST(tickets_that_never_were_are_refused),
		TEST(bodies_go_round_the_arena_unharmed),
		TEST(a_step_of_one_token_returns_its_v),
		TEST(pointers_outside_arenas_are_named),
		TEST(a_failed_entry_is_explained_to_who_waits),
		TEST(nothing_to_do_is_refused),
		TEST(extensions_are_as_long_as_promised),
		TEST(a_fork_finds_room_in_a_full_lane),
		TEST(a_fork_without_memory_leaves_no_handle_behind),
		TEST(a_pollable_lane_rings_once_for_a_wish),
		TEST(a_child_is_told_that_the_connection_is_not_its_own),
		TEST(a_dead_daemon_ends_the_wait_and_all_that_follows),
		TEST(a_death_is_noticed_without_waiting),
		TEST(a_daemon_can_follow_a_killed_one_at_once),
		TEST(nobody_to_connect_to_is_explained),
		TEST(a_wait_does_not_keep_others_from_their_answers),
		TEST(threads_share_a_connection),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	daemon_program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
