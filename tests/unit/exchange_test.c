/* exchange_test.c - partials between ranks: threads of one process, and processes over sockets. */
#include "kernels/group/exchange.h"
#include "kernels/group/exchange_memory.h"
#include "kernels/group/exchange_socket.h"
#include "kernels/merge.h"
#include "oracle.h"
#include "proto/clock.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADS 3u
#define DIM 16u
#define ROW_FLOATS (HEADS * (2 + DIM))
#define ROWS_MAX 40u
#define RANKS_MAX 6u
#define RUNS 3u
#define TIMEOUT_MS 60000u /* of what is to go well */
#define SHORT_MS 200u /* of what is not */

typedef float parts[ROWS_MAX][ROW_FLOATS];

/* What a rank found; written by it alone. */
struct report {
	parts mine[2]; /* outlives the rank, as others may read its last partials after its end */
	parts folded[RUNS];
	uint64_t sent_bytes;
	int result;
	char error[EXCHANGE_ERROR_BYTES];
};

struct plan {
	uint32_t n_ranks, n_rows;
	uint64_t seed;
	bool all;
	uint32_t owner[ROWS_MAX];
	struct report *reports; /* owned mapping, [RANKS_MAX], shared with children */
};

/* Of a rank and run: the same wherever it is drawn. Now and then a rank has no key of a row. */
static void draw(const struct plan *plan, uint32_t rank, uint32_t run, parts ret)
{
	struct oracle_random random = {plan->seed * 31 + rank * 7 + run + 1};

	for (uint32_t row = 0; row < plan->n_rows; row++) {
		for (uint32_t head = 0; head < HEADS; head++) {
			float *at = &ret[row][head * (2 + DIM)];

			merge_empty((struct merge_state *)at, at + 2, DIM);
			if (oracle_below(&random, 5) == 0)
				continue;
			at[0] = oracle_normal(&random) * 10;
			for (uint32_t i = 1; i < 2 + DIM; i++)
				at[i] = 6 + oracle_normal(&random);
		}
	}
}

static void plan_init(struct plan *plan, struct oracle_random *random, uint32_t n_ranks, bool all)
{
	size_t bytes = RANKS_MAX * sizeof(*plan->reports);

	*plan = (struct plan){.n_ranks = n_ranks,
			      .n_rows = 1 + oracle_below(random, ROWS_MAX),
			      .seed = oracle_below(random, 1u << 30),
			      .all = all};
	for (uint32_t row = 0; row < plan->n_rows; row++)
		plan->owner[row] = oracle_below(random, n_ranks);
	plan->reports =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(plan->reports, MAP_FAILED);
}

static void plan_done(struct plan *plan)
{
	munmap(plan->reports, RANKS_MAX * sizeof(*plan->reports));
}

/* A rank's life. Partials alternate between two places, as the contract wants. */
static void live(const struct plan *plan, struct exchange *x)
{
	struct report *report = &plan->reports[x->rank];

	for (uint32_t run = 0; run < RUNS && report->result == 0; run++) {
		struct exchange_rows rows = {.parts = report->mine[run % 2][0],
					     .folded = report->folded[run][0],
					     .owner = plan->all ? NULL : plan->owner,
					     .n_rows = plan->n_rows,
					     .n_heads = HEADS,
					     .head_dim = DIM};

		draw(plan, x->rank, run, report->mine[run % 2]);
		report->result = exchange_run(x, &rows);
	}
	report->sent_bytes = x->sent_bytes;
	memcpy(report->error, x->error, sizeof(x->error));
}

static void fold_all(const struct plan *plan, uint32_t run, parts ret)
{
	static parts part;

	draw(plan, 0, run, ret);
	for (uint32_t rank = 1; rank < plan->n_ranks; rank++) {
		draw(plan, rank, run, part);
		merge_fold_entries(ret[0], part[0], (size_t)plan->n_rows * HEADS, DIM);
	}
}

static void assert_near(const float *got, const float *want)
{
	for (uint32_t i = 0; i < ROW_FLOATS; i++)
		assert_true(got[i] == want[i] ||
			    fabsf(got[i] - want[i]) <= 1e-5f * fabsf(want[i]) + 1e-6f);
}

/* Whoever wants a row has it; all who do have the same bits; in order of ranks where exact. */
static void check_rows(const struct plan *plan, bool exact)
{
	static parts want;

	for (uint32_t run = 0; run < RUNS; run++) {
		fold_all(plan, run, want);
		for (uint32_t row = 0; row < plan->n_rows; row++) {
			uint32_t first = plan->all ? 0 : plan->owner[row];
			uint32_t end = plan->all ? plan->n_ranks : first + 1;

			for (uint32_t rank = first; rank < end; rank++) {
				const float *got = plan->reports[rank].folded[run][row];

				assert_near(got, want[row]);
				assert_memory_equal(got, plan->reports[first].folded[run][row],
						    sizeof(want[row]));
				if (exact)
					assert_memory_equal(got, want[row], sizeof(want[row]));
			}
		}
	}
}

static void check(const struct plan *plan, enum exchange_way way)
{
	uint64_t sent = 0, bytes = (uint64_t)plan->n_rows * ROW_FLOATS * sizeof(float);

	for (uint32_t rank = 0; rank < plan->n_ranks; rank++) {
		assert_int_equal(plan->reports[rank].result, 0);
		sent += plan->reports[rank].sent_bytes;
	}
	assert_int_equal(sent, RUNS * exchange_bytes(way, plan->all, plan->n_ranks, bytes));
	check_rows(plan, way == EXCHANGE_DIRECT);
}

/* ---- threads -------------------------------------------------------------------------------- */

struct thread {
	const struct plan *plan;
	struct exchange *x;
	pthread_t id;
};

static void *thread_run(void *arg)
{
	struct thread *t = arg;

	live(t->plan, t->x);
	return NULL;
}

static void run_threads(const struct plan *plan)
{
	struct exchange *ends[RANKS_MAX];
	struct thread threads[RANKS_MAX];

	assert_int_equal(exchange_memory_new(plan->n_ranks, TIMEOUT_MS, ends), 0);
	for (uint32_t i = 0; i < plan->n_ranks; i++) {
		threads[i] = (struct thread){plan, ends[i]};
		assert_int_equal(pthread_create(&threads[i].id, NULL, thread_run, &threads[i]), 0);
	}
	for (uint32_t i = 0; i < plan->n_ranks; i++) {
		pthread_join(threads[i].id, NULL);
		exchange_free(ends[i]);
	}
}

static void test_threads_fold_in_order_of_ranks(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t n = 1; n <= RANKS_MAX; n++) {
		for (int all = 0; all < 2; all++) {
			struct plan plan;

			plan_init(&plan, &random, n, all);
			run_threads(&plan);
			check(&plan, EXCHANGE_DIRECT);
			plan_done(&plan);
		}
	}
}

static struct exchange_rows rows_of_one(parts own, parts folded)
{
	return (struct exchange_rows){.parts = own[0],
				      .folded = folded[0],
				      .n_rows = 1,
				      .n_heads = HEADS,
				      .head_dim = DIM};
}

static void test_a_thread_that_never_answers_is_named_in_time(void **state)
{
	struct exchange *ends[2];
	static parts own, folded;
	struct exchange_rows rows = rows_of_one(own, folded);

	(void)state;
	assert_int_equal(exchange_memory_new(2, SHORT_MS, ends), 0);
	assert_int_equal(exchange_run(ends[0], &rows), -ETIMEDOUT);
	assert_non_null(strstr(ends[0]->error, "rank 1 has not answered"));
	assert_int_equal(exchange_run(ends[1], &rows), -EIO);
	exchange_free(ends[0]);
	exchange_free(ends[1]);
}

static void test_a_thread_that_gives_up_ends_the_others_run(void **state)
{
	struct exchange *ends[2];
	static parts own, folded;
	struct exchange_rows rows = rows_of_one(own, folded);

	(void)state;
	assert_int_equal(exchange_memory_new(2, TIMEOUT_MS, ends), 0);
	exchange_abort(ends[1]);
	assert_int_equal(exchange_run(ends[0], &rows), -EIO);
	assert_non_null(strstr(ends[0]->error, "given"));
	exchange_free(ends[0]);
	exchange_free(ends[1]);
}

/* ---- processes ------------------------------------------------------------------------------ */

struct mesh {
	uint32_t n_ranks;
	int fds[RANKS_MAX][RANKS_MAX]; /* of a rank, to a rank */
};

static void mesh_init(struct mesh *mesh, uint32_t n_ranks)
{
	mesh->n_ranks = n_ranks;
	for (uint32_t i = 0; i < n_ranks; i++) {
		mesh->fds[i][i] = -1;
		for (uint32_t j = 0; j < i; j++) {
			int pair[2];

			assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair),
					 0);
			mesh->fds[i][j] = pair[0];
			mesh->fds[j][i] = pair[1];
		}
	}
}

/* All but one rank's ends; n_ranks: all. */
static void mesh_close_but(struct mesh *mesh, uint32_t rank)
{
	for (uint32_t i = 0; i < mesh->n_ranks; i++) {
		for (uint32_t j = 0; i != rank && j < mesh->n_ranks; j++) {
			if (mesh->fds[i][j] >= 0)
				close(mesh->fds[i][j]);
			mesh->fds[i][j] = -1;
		}
	}
}

static struct exchange *mesh_end(struct mesh *mesh, uint32_t rank, uint32_t timeout_ms,
				 enum exchange_way way)
{
	struct exchange_socket_config config = {.rank = rank,
						.n_ranks = mesh->n_ranks,
						.fds = mesh->fds[rank],
						.timeout_ms = timeout_ms,
						.forced = true,
						.way = way};
	struct exchange *x = NULL;

	if (exchange_socket_new(&config, &x) != 0)
		abort();
	for (uint32_t i = 0; i < mesh->n_ranks; i++)
		mesh->fds[rank][i] = -1;
	return x;
}

static void run_processes(const struct plan *plan, enum exchange_way way)
{
	struct mesh mesh;
	pid_t children[RANKS_MAX];

	mesh_init(&mesh, plan->n_ranks);
	for (uint32_t i = 0; i < plan->n_ranks; i++) {
		struct exchange *x;

		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] > 0)
			continue;
		mesh_close_but(&mesh, i);
		x = mesh_end(&mesh, i, TIMEOUT_MS, way);
		live(plan, x);
		exchange_free(x);
		_exit(0);
	}
	mesh_close_but(&mesh, plan->n_ranks);
	for (uint32_t i = 0; i < plan->n_ranks; i++) {
		int status;

		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
}

static void check_processes(bool all, enum exchange_way way, const char *name)
{
	struct oracle_random random = oracle_seed(name);

	for (uint32_t n = 1; n <= RANKS_MAX; n++) {
		struct plan plan;

		plan_init(&plan, &random, n, all);
		run_processes(&plan, way);
		check(&plan, way);
		plan_done(&plan);
	}
}

static void test_processes_fold_each_row_where_it_is_wanted(void **state)
{
	(void)state;
	check_processes(false, EXCHANGE_DIRECT, __func__);
}

static void test_processes_all_fold_directly(void **state)
{
	(void)state;
	check_processes(true, EXCHANGE_DIRECT, __func__);
}

static void test_processes_all_fold_in_a_tree(void **state)
{
	(void)state;
	check_processes(true, EXCHANGE_TREE, __func__);
}

static void test_processes_all_fold_in_a_ring(void **state)
{
	(void)state;
	check_processes(true, EXCHANGE_RING, __func__);
}

static void test_large_parts_pass_both_ways_at_once(void **state)
{
	size_t floats = (size_t)8 << 18; /* 8 MiB: more than any socket holds */
	struct mesh mesh;
	pid_t child;
	int status;
	float *own = calloc(floats, sizeof(*own)), *folded = calloc(floats, sizeof(*folded));
	struct exchange_rows rows = {.parts = own,
				     .folded = folded,
				     .n_rows = (uint32_t)(floats / ROW_FLOATS),
				     .n_heads = HEADS,
				     .head_dim = DIM};

	(void)state;
	assert_true(own && folded);
	for (enum exchange_way way = EXCHANGE_DIRECT; way <= EXCHANGE_RING; way++) {
		struct exchange *x;

		mesh_init(&mesh, 2);
		child = fork();
		x = mesh_end(&mesh, child == 0, TIMEOUT_MS, way);
		mesh_close_but(&mesh, 2);
		status = exchange_run(x, &rows);
		exchange_free(x);
		if (child == 0)
			_exit(status != 0);
		assert_int_equal(status, 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	free(own);
	free(folded);
}

static void test_a_process_that_never_answers_is_named_in_time(void **state)
{
	static parts own, folded;
	struct exchange_rows rows = rows_of_one(own, folded);

	(void)state;
	for (enum exchange_way way = EXCHANGE_DIRECT; way <= EXCHANGE_RING; way++) {
		struct mesh mesh;
		struct exchange *x;
		uint64_t start = clock_now_ms();

		mesh_init(&mesh, 3);
		x = mesh_end(&mesh, 0, SHORT_MS, way);
		assert_int_equal(exchange_run(x, &rows), -ETIMEDOUT);
		assert_true(clock_now_ms() - start < 20 * SHORT_MS);
		assert_non_null(strstr(x->error, "has not answered rank 0 for 200 ms"));
		assert_int_equal(exchange_run(x, &rows), -EIO);
		exchange_free(x);
		mesh_close_but(&mesh, 3);
	}
}

static void test_a_process_that_dies_is_named(void **state)
{
	static parts own, folded;
	struct exchange_rows rows = rows_of_one(own, folded);
	struct mesh mesh;
	struct exchange *x;

	(void)state;
	mesh_init(&mesh, 2);
	x = mesh_end(&mesh, 0, TIMEOUT_MS, EXCHANGE_DIRECT);
	mesh_close_but(&mesh, 2);
	assert_int_equal(exchange_run(x, &rows), -ECONNRESET);
	assert_non_null(strstr(x->error, "rank 1 is gone"));
	exchange_free(x);
}

static void assert_refused(const void *sent, size_t bytes, const char *word)
{
	static parts own, folded;
	struct exchange_rows rows = rows_of_one(own, folded);
	struct mesh mesh;
	struct exchange *x;

	mesh_init(&mesh, 2);
	x = mesh_end(&mesh, 0, TIMEOUT_MS, EXCHANGE_DIRECT);
	assert_int_equal(write(mesh.fds[1][0], sent, bytes), bytes);
	assert_int_equal(exchange_run(x, &rows), -EPROTO);
	assert_non_null(strstr(x->error, word));
	exchange_free(x);
	mesh_close_but(&mesh, 2);
}

static void test_a_process_that_speaks_of_other_rows_is_refused(void **state)
{
	uint32_t other[4] = {0x58504f43u, 1, 8, 0};

	(void)state;
	assert_refused(other, sizeof(other), "rank 1 is at round 1 with 8 bytes");
	assert_refused("GET / HTTP/1.1\r\n\r\n", 18, "no exchange");
}

/* ---- which way ------------------------------------------------------------------------------ */

static void test_the_way_follows_size_and_ranks(void **state)
{
	(void)state;
	assert_int_equal(exchange_choose(2, 16384, true), EXCHANGE_DIRECT);
	assert_int_equal(exchange_choose(4, 16384, true), EXCHANGE_DIRECT);
	assert_int_equal(exchange_choose(64, 16384, true), EXCHANGE_TREE);
	assert_int_equal(exchange_choose(8, 64u << 20, true), EXCHANGE_RING);
	assert_int_equal(exchange_choose(8, 64u << 20, false), EXCHANGE_DIRECT);
	assert_int_equal(exchange_choose(1, 16384, true), EXCHANGE_DIRECT);
}

static void test_too_many_ranks_or_none_are_refused(void **state)
{
	struct exchange *ends[1];
	struct exchange_socket_config config = {.rank = 3, .n_ranks = 3};

	(void)state;
	assert_int_equal(exchange_memory_new(0, 1, ends), -EINVAL);
	assert_int_equal(exchange_memory_new(EXCHANGE_RANKS_MAX + 1, 1, ends), -EINVAL);
	assert_int_equal(exchange_socket_new(&config, ends), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_fold_in_order_of_ranks),
		cmocka_unit_test(test_a_thread_that_never_answers_is_named_in_time),
		cmocka_unit_test(test_a_thread_that_gives_up_ends_the_others_run),
		cmocka_unit_test(test_processes_fold_each_row_where_it_is_wanted),
		cmocka_unit_test(test_processes_all_fold_directly),
		cmocka_unit_test(test_processes_all_fold_in_a_tree),
		cmocka_unit_test(test_processes_all_fold_in_a_ring),
		cmocka_unit_test(test_large_parts_pass_both_ways_at_once),
		cmocka_unit_test(test_a_process_that_never_answers_is_named_in_time),
		cmocka_unit_test(test_a_process_that_dies_is_named),
		cmocka_unit_test(test_a_process_that_speaks_of_other_rows_is_refused),
		cmocka_unit_test(test_the_way_follows_size_and_ranks),
		cmocka_unit_test(test_too_many_ranks_or_none_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
