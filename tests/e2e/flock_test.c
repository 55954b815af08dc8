/*
 * flock_test.c - processes over libcoppice that share one daemon: what is new is computed once, a
 * claimant's death costs what it had not finished, salts set apart, and nothing stays when all have
 * gone. argv[1] is the daemon's program.
 */
#include "control_harness.h"
#include "flock_stem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_DOCUMENT 4000u
#define N_SHORT 300u
#define N_DECODE 12u
#define LIFE_S 55 /* no process lives longer */
#define PATIENCE_MS 50000
#define TRIES 2000 /* of 5 ms */

struct flock {
	struct harness *h;
	struct gate gate;
	pid_t pids[N_PROCESSES]; /* 0: none, or reaped */
	struct found *found; /* owned mapping, [N_PROCESSES], shared */
	struct client watch; /* the test's own session, fd -1: none yet */
};

/* ---- the test's side ------------------------------------------------------------------------ */

typedef void stem_life(struct stem *s);

static void child_main(struct flock *f, unsigned index, stem_life *life)
{
	static struct stem stem;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LIFE_S);
	stem.index = index;
	stem.gate = &f->gate;
	stem.found = &f->found[index];
	stem_connect(&stem, f->h->socket);
	life(&stem);
	_exit(0);
}

/* n processes that live so, and a session that watches. */
static void flock_start(struct flock *f, unsigned n, stem_life *life)
{
	for (unsigned i = 0; i < n; i++) {
		f->pids[i] = fork();
		assert_true(f->pids[i] >= 0);
		if (f->pids[i] == 0)
			child_main(f, i, life);
	}
	f->watch = client_open(f->h);
}

static void gate_await(struct flock *f, unsigned n)
{
	struct pollfd p = {.fd = f->gate.arrived[0], .events = POLLIN};
	char byte;

	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(read(p.fd, &byte, 1), 1);
	}
}

/* For the processes from first on. */
static void gate_open(struct flock *f, unsigned first)
{
	for (unsigned i = first; i < N_PROCESSES; i++)
		assert_int_equal(write(f->gate.go[i][1], "", 1), 1);
}

static void flock_join(struct flock *f, unsigned index, int status)
{
	pid_t pid = f->pids[index];

	f->pids[index] = 0;
	assert_int_equal(harness_wait(pid), status);
}

static const Coppice__StatusReply *status_of(struct flock *f)
{
	Coppice__Status m = COPPICE__STATUS__INIT;
	const Coppice__Reply *reply = client_verb(&f->watch, status, &m);

	assert_int_equal(reply->code, 0);
	return reply->status;
}

static uint64_t sessions_computed(struct flock *f)
{
	Coppice__Sessions m = COPPICE__SESSIONS__INIT;
	const Coppice__Reply *reply = client_verb(&f->watch, sessions, &m);
	uint64_t n = 0;

	assert_int_equal(reply->code, 0);
	for (size_t i = 0; i < reply->sessions->n_session; i++)
		n += reply->sessions->session[i]->tokens_computed;
	return n;
}

static void assert_computed(struct flock *f, uint64_t published, uint64_t dropped)
{
	const Coppice__StatusReply *status = status_of(f);

	assert_int_equal(status->tokens_published, published);
	assert_int_equal(status->tokens_dropped, dropped);
	assert_int_equal(status->n_tokens, published);
	assert_int_equal(status->entries_failed, 0);
	assert_int_equal(status->kv_bytes_moved, 0);
}

/* Of the processes from first on, one computed n tokens, and each of the others its last. */
static void assert_one_computed(struct flock *f, unsigned first, uint32_t n)
{
	unsigned n_workers = 0;

	for (unsigned i = first; i < N_PROCESSES; i++) {
		n_workers += f->found[i].n_computed == n;
		assert_true(f->found[i].n_computed == n || f->found[i].n_computed == 1);
	}
	assert_int_equal(n_workers, 1);
}

/* All but the test's own session; what was published stays for who comes next. */
static void assert_all_gone(struct flock *f)
{
	const Coppice__StatusReply *s = status_of(f);

	for (int i = 0; i < TRIES && s->n_sessions > 1; i++) {
		sleep_ms(5);
		s = status_of(f);
	}
	assert_int_equal(s->n_sessions, 1);
	assert_int_equal(s->n_lanes, 0);
	assert_int_equal(s->n_seqs, 0);
	assert_int_equal(s->n_claims, 0);
	assert_int_equal(client_count_sessions(&f->watch), 1);
}

/* The processes from first on. */
static void assert_end_well(struct flock *f, unsigned first)
{
	for (unsigned i = first; i < N_PROCESSES; i++)
		flock_join(f, i, 0);
	assert_all_gone(f);
}

static int setup(void **state)
{
	struct flock *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->watch.fd = -1;
	f->found = mmap(NULL, N_PROCESSES * sizeof(*f->found), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(f->found, MAP_FAILED);
	assert_int_equal(pipe(f->gate.arrived), 0);
	for (unsigned i = 0; i < N_PROCESSES; i++)
		assert_int_equal(pipe(f->gate.go[i]), 0);
	f->h = harness_new("auto");
	f->h->flags[0] = "--max-sessions=32";
	f->h->flags[1] = "--max-domain-sessions=32";
	f->h->flags[2] = "--claim-ms=120000"; /* no claim lapses by time */
	harness_start(f->h);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct flock *f = *state;
	void *h = f->h;

	for (unsigned i = 0; i < N_PROCESSES; i++) {
		if (f->pids[i] > 0) {
			kill(f->pids[i], SIGKILL);
			waitpid(f->pids[i], NULL, 0);
		}
	}
	if (f->watch.fd >= 0)
		client_close(&f->watch);
	for (int i = 0; i < 2; i++) {
		close(f->gate.arrived[i]);
		for (unsigned p = 0; p < N_PROCESSES; p++)
			close(f->gate.go[p][i]);
	}
	munmap(f->found, N_PROCESSES * sizeof(*f->found));
	free(f);
	return harness_teardown(&h);
}

/* ---- single flight -------------------------------------------------------------------------- */

static void open_together(struct stem *s)
{
	stem_add_document(s, N_DOCUMENT);
	stem_pass(s);
	stem_open(s);
	stem_settle(s);
	stem_compute_to(s, N_DOCUMENT);
	stem_pass(s);
	stem_close(s);
}

static void eight_that_open_a_document_at_once_compute_it_once(void **state)
{
	struct flock *f = *state;

	flock_start(f, N_PROCESSES, open_together);
	gate_await(f, N_PROCESSES);
	gate_open(f, 0);
	gate_await(f, N_PROCESSES);
	assert_computed(f, N_DOCUMENT, N_PROCESSES - 1);
	assert_int_equal(sessions_computed(f), N_DOCUMENT + N_PROCESSES - 1);
	assert_one_computed(f, 0, N_DOCUMENT);
	gate_open(f, 0);
	assert_end_well(f, 0);
}

/* ---- takeover ------------------------------------------------------------------------------- */

#define N_HALF (8 * CHUNK)

/* Half of the document, and of the next chunk the first layer; then it is killed. */
static void begin_and_die(struct stem *s)
{
	stem_open(s);
	stem_compute_to(s, N_HALF);
	MUST(coppice_seq_extend(s->seq, s->ids + s->n_done, CHUNK, NULL) == 0);
	stem_run_layer(s, CHUNK, 0);
	stem_arrive(s);
	for (;;)
		pause();
}

static void wait_for_the_first(struct stem *s)
{
	stem_wait(s);
	stem_open(s);
	stem_pass(s);
	stem_settle(s);
	stem_compute_to(s, N_DOCUMENT);
	stem_pass(s);
	stem_decode(s, 2);
}

static void first_dies(struct stem *s)
{
	stem_add_document(s, N_DOCUMENT);
	if (s->index == 0)
		begin_and_die(s);
	else
		wait_for_the_first(s);
}

static void a_killed_claimants_work_is_taken_over_where_it_stood(void **state)
{
	struct flock *f = *state;

	flock_start(f, N_PROCESSES, first_dies);
	gate_await(f, 1);
	gate_open(f, 1);
	gate_await(f, N_PROCESSES - 1);
	kill(f->pids[0], SIGKILL);
	flock_join(f, 0, -SIGKILL);
	gate_open(f, 1);
	gate_await(f, N_PROCESSES - 1);
	assert_computed(f, N_DOCUMENT, N_PROCESSES - 2);
	for (unsigned i = 1; i < N_PROCESSES; i++) {
		const struct found *found = &f->found[i];

		assert_int_equal(found->opened.cached, N_HALF);
		assert_int_equal(found->opened.pending, N_DOCUMENT - 1 - N_HALF);
	}
	assert_one_computed(f, 1, N_DOCUMENT - N_HALF);
	gate_open(f, 1);
	assert_end_well(f, 1);
}

/* ---- salts ---------------------------------------------------------------------------------- */

/* Two processes a salt, and each pair's KV is another. */
static void open_salted(struct stem *s)
{
	s->salt = s->index / 2;
	stem_add_document(s, N_SHORT);
	stem_pass(s);
	stem_open(s);
	stem_settle(s);
	stem_compute_to(s, N_SHORT);
	stem_decode(s, 4);
	stem_pass(s);
}

static void nothing_is_shared_across_salts(void **state)
{
	struct flock *f = *state;
	unsigned n_pairs = N_PROCESSES / 2;

	flock_start(f, N_PROCESSES, open_salted);
	gate_await(f, N_PROCESSES);
	gate_open(f, 0);
	gate_await(f, N_PROCESSES);
	assert_computed(f, n_pairs * N_SHORT + N_PROCESSES * 4, n_pairs);
	for (unsigned i = 0; i < n_pairs; i++)
		assert_int_equal(f->found[2 * i].n_computed + f->found[2 * i + 1].n_computed,
				 N_SHORT + 1 + 2 * 4);
	gate_open(f, 0);
	assert_end_well(f, 0);
}

/* ---- decoding ------------------------------------------------------------------------------- */

static void decode_together(struct stem *s)
{
	stem_add_document(s, N_SHORT);
	stem_open(s);
	stem_settle(s);
	stem_compute_to(s, N_SHORT);
	stem_pass(s);
	stem_decode(s, N_DECODE);
	stem_pass(s);
}

static void eight_decode_together_and_each_gets_its_own(void **state)
{
	struct flock *f = *state;
	uint64_t n_before;

	flock_start(f, N_PROCESSES, decode_together);
	gate_await(f, N_PROCESSES);
	n_before = status_of(f)->decode_sessions;
	gate_open(f, 0);
	gate_await(f, N_PROCESSES);
	assert_computed(f, N_SHORT + N_PROCESSES * N_DECODE, N_PROCESSES - 1);
	assert_int_equal(status_of(f)->decode_sessions - n_before,
			 N_PROCESSES * N_DECODE * N_LAYERS);
	gate_open(f, 0);
	assert_end_well(f, 0);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* Each has something open: a claim, a live extension of which a layer is done, or neither. Every
 * second closes it. */
static void end_in_various_ways(struct stem *s)
{
	s->salt = s->index;
	stem_add_document(s, N_SHORT);
	stem_open(s);
	if (s->index % 4 >= 2)
		stem_compute_to(s, N_SHORT - 1);
	if (s->index % 4 == 2) {
		MUST(coppice_seq_extend(s->seq, s->ids + s->n_done, 1, NULL) == 0);
		stem_run_layer(s, 1, 0);
	}
	stem_pass(s);
	if (s->index % 2)
		stem_close(s);
}

static void whatever_way_they_go_nothing_stays(void **state)
{
	struct flock *f = *state;

	flock_start(f, N_PROCESSES, end_in_various_ways);
	gate_await(f, N_PROCESSES);
	assert_int_equal(status_of(f)->n_seqs, N_PROCESSES);
	assert_true(status_of(f)->n_claims >= N_PROCESSES / 2);
	for (unsigned i = 0; i < 3; i++) {
		kill(f->pids[i], SIGKILL);
		flock_join(f, i, -SIGKILL);
	}
	gate_open(f, 3);
	assert_end_well(f, 3);
	assert_int_equal(status_of(f)->n_tokens, N_PROCESSES / 2 * (N_SHORT - 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(eight_that_open_a_document_at_once_compute_it_once),
		TEST(a_killed_claimants_work_is_taken_over_where_it_stood),
		TEST(nothing_is_shared_across_salts),
		TEST(eight_decode_together_and_each_gets_its_own),
		TEST(whatever_way_they_go_nothing_stays),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
