/*
 * cut_test.c - a step that is cut gives the same bits as one that goes whole: many sequences behind
 * one path, and a draft tree, by the CPU backend; and says so where memory runs out. What a row
 * takes is made up, so that slices have few rows.
 */
#include "sched_harness.h"
#include "short_memory.h"

#include "kernels/work.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PREFIX 200u
#define FORKS 7u
#define FORK_ROWS 5u
#define DRAFTS 29u
#define ROWS (FORKS * FORK_ROWS + DRAFTS)
#define ARENA_BYTES (1u << 20)
#define LACKED_MAX 100u /* far more than there are arrays */

static const struct work_shape shape = {.n_layers = 2,
					.n_q_heads = 4,
					.n_kv_heads = 2,
					.head_dim = 32,
					.page_tokens = 16,
					.dtype = WORK_FP32};

/* About five rows fit the least budget. */
static void slow_cost(struct backend *b, const struct work_shape *of, struct backend_cost *ret)
{
	double key_bytes = 2.0 * of->head_dim * (double)work_dtype_bytes(of->dtype);

	(void)b;
	*ret = (struct backend_cost){.fixed_ns = 1000,
				     .row_ns_per_byte =
					     1e6 / 5 / PREFIX / key_bytes / of->n_q_heads};
}

struct run {
	struct harness h;
	struct client c;
	struct backend_ops ops;
	uint64_t seqs[FORKS + 1];
	float o[2][ROWS * 4 * 32];
};

static void fill(struct client *c)
{
	uint32_t x = 1;

	for (uint32_t i = 0; i < ARENA_BYTES / sizeof(float); i++) {
		x = x * 1664525 + 1013904223;
		((float *)(void *)c->arena)[i] = (float)(x >> 8) / (1 << 23) - 1;
	}
}

/* Rows [row, row + n) of those that all sequences have. */
static struct abi_step_seq rows_of(const struct run *r, uint64_t seq, uint32_t row, uint32_t n)
{
	struct abi_step_seq all = client_step_seq(&r->c, seq, ROWS);

	all.q += row * all.q_stride;
	all.k += row * all.k_stride;
	all.v += row * all.v_stride;
	all.o += row * all.o_stride;
	all.n_new = n;
	return all;
}

static void extend_all(struct run *r)
{
	uint32_t tree[2 * DRAFTS];
	const struct abi_entry draft = {.kind = ABI_EXTEND,
					.flags = ABI_EXTEND_PARENTS,
					.seq = r->seqs[FORKS],
					.count = DRAFTS};

	for (uint32_t i = 0; i < FORKS; i++) {
		uint32_t ids[FORK_ROWS] = {i, i, i, i, i};
		assert_int_equal(client_extend(&r->c, r->seqs[i], ids, FORK_ROWS).status, 0);
	}
	for (uint32_t i = 0; i < DRAFTS; i++) {
		tree[i] = 100 + i;
		tree[DRAFTS + i] = i % 4 == 3 ? WORK_NONE : i % 4 ? i / 2 : i - !!i;
	}
	tree[DRAFTS] = WORK_NONE;
	assert_int_equal(client_do(&r->c, draft, tree, sizeof(tree)).status, 0);
}

static int step_all(struct run *r, uint32_t layer)
{
	struct abi_step_seq recs[FORKS + 1];
	const struct abi_entry step = {.kind = ABI_STEP, .count = FORKS + 1, .layer = layer};

	for (uint32_t i = 0; i < FORKS; i++)
		recs[i] = rows_of(r, r->seqs[i], i * FORK_ROWS, FORK_ROWS);
	recs[FORKS] = rows_of(r, r->seqs[FORKS], FORKS * FORK_ROWS, DRAFTS);
	memset(r->c.arena + recs[0].o, 0, sizeof(r->o[0]));
	int status = client_do(&r->c, step, recs, sizeof(recs)).status;

	memcpy(r->o[layer], r->c.arena + recs[0].o, sizeof(r->o[0]));
	return status;
}

static void prefix_ids(uint32_t *ids)
{
	for (uint32_t i = 0; i < PREFIX; i++)
		ids[i] = 1000 + i;
}

/* A sequence is open. */
static void run_open(struct run *r, bool slow)
{
	uint32_t ids[PREFIX];
	struct store_match match;

	prefix_ids(ids);
	r->ops = backend_cpu;
	if (slow)
		r->ops.cost = slow_cost;
	harness_init(&r->h);
	r->h.ops = &r->ops;
	r->h.config.batch_budget_ms = 1;
	harness_start(&r->h);
	client_start(&r->c, &r->h, 1, &shape, ARENA_BYTES);
	fill(&r->c);
	assert_int_equal(client_open(&r->c, ids, PREFIX, &r->seqs[FORKS], &match), 0);
}

/* All are there, behind the prefix. */
static void run_fork(struct run *r)
{
	uint32_t ids[PREFIX];

	prefix_ids(ids);
	client_compute(&r->c, r->seqs[FORKS], ids, PREFIX);
	fill(&r->c);
	for (uint32_t i = 0; i < FORKS; i++) {
		const struct abi_entry fork = {.kind = ABI_FORK, .seq = r->seqs[FORKS]};
		r->seqs[i] = client_do(&r->c, fork, NULL, 0).value;
	}
}

static struct sched_status run_end(struct run *r)
{
	struct sched_status status = harness_status(&r->h);

	client_end(&r->c);
	harness_stop(&r->h);
	return status;
}

static struct sched_status compute(struct run *r, bool slow)
{
	run_open(r, slow);
	run_fork(r);
	extend_all(r);
	assert_int_equal(step_all(r, 0), 0);
	assert_int_equal(step_all(r, 1), 0);
	return run_end(r);
}

static void a_cut_step_gives_the_same_bits(void **state)
{
	struct run *whole = calloc(1, sizeof(*whole)), *cut = calloc(1, sizeof(*cut));

	(void)state;
	assert_int_equal(compute(whole, false).steps_cut, 0);
	struct sched_status status = compute(cut, true);

	assert_int_equal(status.steps_cut, shape.n_layers);
	assert_true(status.cut_batches >= shape.n_layers * ROWS / 6);
	assert_memory_equal(whole->o, cut->o, sizeof(whole->o));
	free(whole);
	free(cut);
}

static int submit_some(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	assert_true(batch->n_jobs > 0);
	return backend_cpu.submit(b, batch, ret_id);
}

/* The prefix' first layer, with the n-th array that is to grow not growing. Returns whether there
 * was such an array; some can be done without. */
static bool lack(struct run *r, unsigned n, unsigned *inout_failed)
{
	const struct abi_entry trim = {.kind = ABI_TRIM, .seq = r->seqs[FORKS]};
	const struct abi_step_seq rec = client_step_seq(&r->c, r->seqs[FORKS], PREFIX);
	uint32_t ids[PREFIX];
	bool lacked;
	int status;

	prefix_ids(ids);
	assert_int_equal(client_extend(&r->c, r->seqs[FORKS], ids, PREFIX).status, 0);
	short_memory_fails_in(n);
	status = client_step(&r->c, &rec, 0).status;
	lacked = short_memory_failed();
	short_memory_fails_in(0);
	assert_true(status == 0 || (lacked && status == -ENOMEM));
	*inout_failed += status != 0;
	assert_int_equal(client_do(&r->c, trim, NULL, 0).status, 0);
	return lacked;
}

/* And the backend gets nothing of it. What could not grow can the next time, and the one behind it
 * cannot. */
static void a_step_whose_slice_finds_no_memory_says_so(void **state)
{
	struct run *r = calloc(1, sizeof(*r));
	unsigned n_lacked = 0, n_failed = 0;

	(void)state;
	short_memory_spare();
	run_open(r, true);
	r->ops.submit = submit_some;
	while (lack(r, n_lacked ? 2 : 1, &n_failed))
		assert_in_range(++n_lacked, 1, LACKED_MAX);
	print_message("%u steps failed of %u\n", n_failed, n_lacked);
	assert_true(n_failed > 2);
	run_end(r);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_step_gives_the_same_bits),
		cmocka_unit_test(a_step_whose_slice_finds_no_memory_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
