/*
 * client_life_test.c - libcoppice across forks, the daemon's death, waits that last and threads
 * that share a connection. argv[1] is the daemon's program.
 */
#include "client_fixture.h"

#include "client/lib/connection/connection.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void a_child_is_told_that_the_connection_is_not_its_own(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	struct coppice_stats stats = {.size = sizeof(stats)};
	struct coppice_result result;
	void *piece;
	uint32_t n;
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
		bad += coppice_step_wait(f->lane, &step, 0, NULL) != -EOWNERDEAD;
		bad += coppice_seq_length(seq, &n) != -EOWNERDEAD;
		bad += coppice_seq_wait_async(seq, 0) != -EOWNERDEAD;
		bad += coppice_arena_alloc(f->arena, 1, 1, &piece) != -EOWNERDEAD;
		bad += coppice_stats(f->c, &stats) != -EOWNERDEAD;
		bad += coppice_fd(f->c) != -EOWNERDEAD;
		bad += !strstr(coppice_explain_ticket(f->lane, 1), "fork()");
		bad += !strstr(coppice_explain(f->c), "fork()");
		coppice_lane_arm(f->lane);
		coppice_seq_close(seq);
		coppice_lane_free(f->lane);
		coppice_arena_ref(f->arena);
		coppice_arena_free(f->arena);
		coppice_close(f->c);
		coppice_arena_unref(f->arena);
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
	f->died_ns = clock_now_ns();
	return NULL;
}

/* How long after the daemon's death a wait ends that would last forever. */
static uint64_t wait_beyond_death(struct fixture *f)
{
	uint64_t ticket, end_ns;
	pthread_t killer;

	daemon_pause(f);
	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(pthread_create(&killer, NULL, kill_soon, f), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), -ECONNRESET);
	end_ns = clock_now_ns();
	pthread_join(killer, NULL);
	return end_ns > f->died_ns ? end_ns - f->died_ns : 0;
}

/* Another daemon where this one was, and a connection to it. */
static void daemon_follow(struct fixture *f)
{
	coppice_close(f->c);
	daemon_stop(f);
	daemon_start(f);
	do
		f->c = connect_soon(f->path);
	while (coppice_lane_new(f->c, &f->lane) < 0 && (coppice_close(f->c), true));
}

/* Of some waits: a machine may be busy with others when one of them is to go on. */
static void a_dead_daemon_ends_the_wait_and_all_that_follows(void **state)
{
	struct fixture *f = *state;
	uint64_t took_ns = wait_beyond_death(f);

	for (int i = 0; i < 5 && took_ns >= 200 * MS; i++) {
		daemon_follow(f);
		took_ns = wait_beyond_death(f);
	}
	assert_true(took_ns < 200 * MS);
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

	for (int i = 0; i < 5; i++)
		daemon_follow(f);
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
	assert_non_null(strstr(coppice_explain(NULL), "there is no socket /nowhere/at/all"));
	assert_int_equal(coppice_connect(&c, "/etc/passwd"), -ECONNREFUSED);
	assert_non_null(strstr(coppice_explain(NULL), "/etc/passwd is a file, no socket"));
	assert_int_equal(coppice_connect(&c, f->dir), -ECONNREFUSED);
	assert_non_null(strstr(coppice_explain(NULL), "is a directory, no socket"));
	assert_null(c);
}

/* A claim that is not worked on: who waits for it is answered at its time limit, others in the
 * meantime. */
static void a_wait_does_not_keep_others_from_their_answers(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *first = client_open_seq(f, f->lane, 100);
	struct coppice_seq *second = client_open_seq(f, f->lane, 100);
	struct coppice_match match;
	uint64_t start_ns = clock_now_ns();

	assert_int_equal(coppice_seq_wait(second, 30 * MS, &match), -ETIMEDOUT);
	assert_true(clock_now_ns() - start_ns >= 30 * MS);
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

static unsigned count_fds(pid_t pid)
{
	char path[64];
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The daemon answers before it has closed its own ends. */
static void a_lane_leaves_no_descriptor_behind(void **state)
{
	struct fixture *f = *state;
	struct coppice_lane *lane;
	unsigned before = 0;

	for (int i = 0; i < 50; i++) {
		assert_int_equal(coppice_lane_new_pollable(f->c, &lane), 0);
		coppice_lane_free(lane);
		if (i == 0)
			before = count_fds(f->daemon);
	}
	for (int i = 0; i < 1000 && count_fds(f->daemon) > before; i++)
		usleep(10000);
	assert_true(count_fds(f->daemon) <= before);
}

static void a_lane_takes_its_sequences_with_it(void **state)
{
	struct fixture *f = *state;
	struct coppice_stats stats = {.size = sizeof(stats)};
	struct coppice_lane *lane;

	assert_int_equal(coppice_lane_new(f->c, &lane), 0);
	for (uint32_t i = 0; i < 20; i++)
		client_open_seq(f, lane, 1 + i);
	assert_int_equal(coppice_stats(f->c, &stats), 0);
	assert_int_equal(stats.n_seqs, 20);
	coppice_lane_free(lane);
	assert_int_equal(coppice_stats(f->c, &stats), 0);
	assert_int_equal(stats.n_seqs, 0);
	assert_int_equal(stats.n_lanes, 1);
}

/* 20 sequences, the last of which asks what nobody answers as long as the first is there. */
static void free_lane_of_many(struct fixture *f)
{
	struct coppice_lane *lane;
	struct coppice_seq *seq = NULL;

	assert_int_equal(coppice_lane_new(f->c, &lane), 0);
	for (uint32_t i = 0; i < 20; i++)
		seq = client_open_seq(f, lane, 100);
	assert_int_equal(coppice_seq_wait_async(seq, COPPICE_FOREVER), 0);
	assert_non_null(f->c->pending);
	coppice_lane_free(lane);
	assert_null(f->c->pending);
}

/* Where libc counts what the heap has. */
static void a_lane_leaves_no_memory_of_its_sequences_behind(void **state)
{
	struct fixture *f = *state;
	size_t before;

	free_lane_of_many(f);
	before = mallinfo2().uordblks;
	for (int i = 0; i < 5; i++)
		free_lane_of_many(f);
	assert_int_equal(mallinfo2().uordblks, before);
}

static volatile sig_atomic_t n_signals;

static void count_signal(int signal)
{
	(void)signal;
	n_signals++;
}

static void a_call_that_is_not_answered_does_not_end_the_connection(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_match match;

	daemon_pause(f);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), -ETIMEDOUT);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), 0);
	coppice_seq_close(seq);
}

static void *wait_for_ever(void *arg)
{
	struct coppice_match match;

	return (void *)(intptr_t)coppice_seq_wait(arg, COPPICE_FOREVER, &match);
}

static bool somebody_reads(struct coppice *c)
{
	bool reading;

	pthread_mutex_lock(&c->lock);
	reading = c->reading;
	pthread_mutex_unlock(&c->lock);
	return reading;
}

/* Who reads for all has more patience than he. */
static void a_call_beside_another_ends_at_its_own_time(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_seq *other = client_open_seq(f, f->lane, 1);
	struct coppice_match match;
	pthread_t reader;
	void *r;

	daemon_pause(f);
	assert_int_equal(pthread_create(&reader, NULL, wait_for_ever, other), 0);
	while (!somebody_reads(f->c))
		usleep(1000);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), -ETIMEDOUT);
	kill(f->daemon, SIGCONT);
	assert_int_equal(pthread_join(reader, &r), 0);
	assert_null(r);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), 0);
	coppice_seq_close(other);
	coppice_seq_close(seq);
}

/* What interrupts the wait for an answer does not end it, its time limit does; and neither ends the
 * connection. */
static void a_call_outlasts_signals_and_no_answer(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct itimerval every_20_ms = {{.tv_usec = 20000}, {.tv_usec = 20000}}, never = {0};
	struct sigaction count = {.sa_handler = count_signal};
	struct coppice_match match;

	assert_int_equal(sigaction(SIGALRM, &count, NULL), 0);
	daemon_pause(f);
	assert_int_equal(setitimer(ITIMER_REAL, &every_20_ms, NULL), 0);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), -ETIMEDOUT);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_true(n_signals > 0);
	assert_explained(f, "has not answered in time");
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_seq_wait(seq, 0, &match), 0);
	coppice_seq_close(seq);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_child_is_told_that_the_connection_is_not_its_own),
		TEST(a_dead_daemon_ends_the_wait_and_all_that_follows),
		TEST(a_death_is_noticed_without_waiting),
		TEST(a_daemon_can_follow_a_killed_one_at_once),
		TEST(nobody_to_connect_to_is_explained),
		TEST(a_wait_does_not_keep_others_from_their_answers),
		TEST(threads_share_a_connection),
		TEST(a_lane_leaves_no_descriptor_behind),
		TEST(a_lane_takes_its_sequences_with_it),
		TEST(a_lane_leaves_no_memory_of_its_sequences_behind),
		TEST(a_call_that_is_not_answered_does_not_end_the_connection),
		TEST(a_call_outlasts_signals_and_no_answer),
		TEST(a_call_beside_another_ends_at_its_own_time),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	client_daemon = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
