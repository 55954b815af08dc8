/*
 * summary_test.c - what is left of KV that is elsewhere: mean keys taken in from pages in spans,
 * masses estimated from them against the same in float64, and legs in which every KV head sees
 * blocks of its own. The CPU's backend, or with argv[1], the GPU's module, that one's. Without a
 * device the program says so and exits with 77.
 */
#include "device_ops.h"
#include "oracle.h"

#include "estimate_model.h"
#include "kernels/plan/select.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N 1600u
#define N_ROWS 200u
#define PAGE 32u
#define N_PAGES (N / PAGE)
#define BLOCK 64u
#define N_BLOCKS (N / BLOCK)
#define LAYER 1u

static const struct backend_ops *ops = &backend_cpu;

static const struct work_shape SHAPE = {.n_layers = 2,
					.n_q_heads = 6,
					.n_kv_heads = 3,
					.head_dim = 64,
					.page_tokens = PAGE,
					.dtype = WORK_BF16,
					.scale = 0.08f};

enum {
	Q_VALUES = 6 * 64,
	K_VALUES = 3 * 64,
	K_AT = 0,
	V_AT = K_AT + N * K_VALUES * 2,
	Q_AT = V_AT + N * K_VALUES * 2,
	O_AT = Q_AT + N_ROWS * Q_VALUES * 2,
	OTHER_O_AT = O_AT + N_ROWS * Q_VALUES * 2,
	ARENA_BYTES = OTHER_O_AT + N_ROWS * Q_VALUES * 2,
};

struct fixture {
	struct oracle_random random;
	struct backend *backend; /* owned */
	char *memory; /* owned */
	uint64_t base;
	struct work_slice slices[2 * N_PAGES];
	uint32_t n_slices;
	struct backend_summary *summary; /* owned */
};

/* Some pages' tokens lie in two: a path that leaves another inside a page, here between groups of
 * 8. whole: none do. */
static void make_slices(struct fixture *f, bool whole)
{
	uint32_t spare = N_PAGES;

	for (uint32_t i = 0; i < N_PAGES; i++) {
		uint16_t cut = !whole && oracle_below(&f->random, 4) == 0
				       ? (uint16_t)(8 + 8 * oracle_below(&f->random, PAGE / 8 - 1))
				       : PAGE;
		f->slices[f->n_slices++] = (struct work_slice){i * 7 % N_PAGES, 0, cut};
		if (cut < PAGE)
			f->slices[f->n_slices++] =
				(struct work_slice){spare++, cut, (uint16_t)(PAGE - cut)};
	}
}

/* Keys of some blocks lean towards the queries. */
static void fill(struct fixture *f)
{
	float value;

	for (uint32_t i = 0; i < O_AT / 2; i++) {
		bool key = i < V_AT / 2, query = i >= Q_AT / 2;
		bool lean = key && i / K_VALUES / BLOCK % 3 == 0;
		value = oracle_normal(&f->random) + (query ? 0.5f : 0) + (lean ? 0.5f : 0);
		oracle_encode(WORK_BF16, f->memory + 2 * i, &value, 1);
	}
}

static uint64_t submit(struct fixture *f, const struct backend_job *jobs, uint32_t n_jobs,
		       const struct backend_leg *leg)
{
	const struct backend_batch batch = {jobs, n_jobs};
	uint64_t id = 0, done = 0;
	int r = leg ? ops->tier->leg(f->backend, &batch, leg, &id)
		    : ops->submit(f->backend, &batch, &id);

	while (!r && done < id)
		r = ops->completed(f->backend, &done);
	assert_int_equal(r, 0);
	return id;
}

static struct plan_config plan_of(const struct fixture *f)
{
	struct plan_config plan;

	plan_config_init(&plan, PLAN_AUTO, &SHAPE, 4);
	plan.tile_rows = ops->tile_rows(f->backend, &SHAPE);
	return plan;
}

static void append(struct fixture *f)
{
	struct work_node node = {.parent = WORK_NONE, .n_tokens = N, .n_slices = f->n_slices};
	struct work_query query = {.n_rows = N};
	struct work_tree tree = {&node, f->slices, &query, 1, f->n_slices, 1};
	struct backend_io io = {.k = f->base + K_AT,
				.v = f->base + V_AT,
				.k_stride = K_VALUES * 2,
				.v_stride = K_VALUES * 2,
				.slots = f->slices,
				.n_slots = f->n_slices};
	struct plan_config plan = plan_of(f);
	struct work_list list = {0};
	struct backend_job job = {
		.shape = &SHAPE, .tree = &tree, .list = &list, .io = &io, .layer = LAYER};

	assert_int_equal(plan_make(&plan, &tree, &list), 0);
	submit(f, &job, 1, NULL);
	plan_list_done(&list);
}

static int open_with(void **state, bool whole)
{
	const struct backend_config config = {.pool_bytes = 8 * MIB, .extent_bytes = 2 * MIB};
	struct fixture *f = calloc(1, sizeof(*f));
	char error[400] = "";

	f->random = oracle_seed("summary");
	if (ops->open(&config, &f->backend, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(ops->extent_commit(f->backend, i), 0);
	f->memory =
		mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(ops->arena_attach(f->backend, f->memory, ARENA_BYTES, &f->base), 0);
	make_slices(f, whole);
	fill(f);
	append(f);
	assert_int_equal(ops->tier->summary->make(f->backend, &SHAPE, &f->summary), 0);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return open_with(state, false);
}

static int setup_whole(void **state)
{
	return open_with(state, true);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ops->tier->summary->free(f->backend, f->summary);
	ops->arena_detach(f->backend, f->base, ARENA_BYTES);
	munmap(f->memory, ARENA_BYTES);
	ops->close(f->backend);
	free(f);
	return 0;
}

/* ---- summaries ------------------------------------------------------------------------------ */

/* Spans of some slices each, one after the other. */
static void take_in(struct fixture *f)
{
	struct backend_span span = {.shape = &SHAPE, .layer = LAYER, .to_layer = LAYER};
	uint32_t pos = 0;

	for (uint32_t i = 0, begin = 0; i < f->n_slices; i++) {
		pos += f->slices[i].count;
		if (i + 1 < f->n_slices && oracle_below(&f->random, 3))
			continue;
		span.slices = f->slices + begin;
		span.n_slices = i + 1 - begin;
		assert_int_equal(ops->tier->summary->add(f->backend, f->summary, &span), 0);
		span.pos = pos;
		begin = i + 1;
	}
}

static float *decoded(const struct fixture *f, size_t at, size_t n)
{
	float *values = malloc(n * sizeof(*values));

	oracle_decode(WORK_BF16, values, f->memory + at, n);
	return values;
}

static double distance(const double *a, const float *b, size_t n)
{
	double d = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		d += (a[i] - (double)b[i]) * (a[i] - (double)b[i]);
		sum += a[i] * a[i];
	}
	return sqrt(d / sum);
}

/* On a GPU sums of 8 queries are rounded to bf16, 2^-9 of scores up to 2 or 3 that softmax takes
 * the exponential of. */
static double tolerance(void)
{
	return ops == &backend_cpu ? 1e-5 : 5e-3;
}

static void compare_masses(struct fixture *f, uint32_t block, uint32_t n_rows, uint32_t n_k)
{
	const struct estimate_shape shape = {SHAPE.n_q_heads, SHAPE.n_kv_heads,	  SHAPE.head_dim, 8,
					     block,	      (double)SHAPE.scale};
	const struct backend_estimate e = {.shape = &SHAPE,
					   .summary = f->summary,
					   .layer = LAYER,
					   .q = f->base + Q_AT,
					   .q_stride = Q_VALUES * 2,
					   .n_q = n_rows,
					   .q_pos = n_k - n_rows,
					   .n_k = n_k,
					   .stride = 8,
					   .block_tokens = block};
	size_t n = (size_t)SHAPE.n_kv_heads * estimate_n_blocks(n_rows, block) *
		   estimate_n_blocks(n_k, block);
	float *q = decoded(f, Q_AT, N_ROWS * Q_VALUES), *k = decoded(f, K_AT, N * K_VALUES);
	float *means = malloc((size_t)N / 8 * K_VALUES * sizeof(*means));
	uint16_t *rounded = malloc((size_t)N / 8 * K_VALUES * sizeof(*rounded));
	const float *mass;
	double *want = malloc(n * sizeof(*want));

	estimate_means(&shape, k, N, means);
	oracle_encode(WORK_BF16, rounded, means, (size_t)N / 8 * K_VALUES);
	oracle_decode(WORK_BF16, means, rounded, (size_t)N / 8 * K_VALUES);
	struct estimate_input in = {
		.q = q, .means = means, .n_q = n_rows, .q_pos = n_k - n_rows, .n_k = n_k};
	assert_int_equal(estimate_blocks(&shape, &in, want), 0);
	assert_int_equal(ops->estimate(f->backend, &e, &mass), 0);
	double d = distance(want, mass, n);
	if (!(d <= tolerance()))
		fail_msg("block %u, %u rows, %u keys: %g", block, n_rows, n_k, d);
	free(q);
	free(k);
	free(means);
	free(rounded);
	free(want);
}

static void masses_from_means_are_those_of_the_book(void **state)
{
	static const uint32_t blocks[] = {64, 128, 256, 1024, 4096};
	struct fixture *f = *state;

	take_in(f);
	for (uint32_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		compare_masses(f, blocks[i], N_ROWS, N);
		compare_masses(f, blocks[i], 8 + 8 * oracle_below(&f->random, N_ROWS / 8 - 1),
			       N - 8 * oracle_below(&f->random, 50));
	}
}

static void what_nobody_took_in_is_no_estimate(void **state)
{
	struct fixture *f = *state;
	struct backend_estimate e = {.shape = &SHAPE,
				     .summary = f->summary,
				     .layer = LAYER,
				     .q = f->base + Q_AT,
				     .q_stride = Q_VALUES * 2,
				     .n_q = 8,
				     .q_pos = N - 8,
				     .n_k = N,
				     .stride = 8,
				     .block_tokens = BLOCK};
	const float *mass;

	assert_int_not_equal(ops->estimate(f->backend, &e, &mass), 0);
	take_in(f);
	assert_int_equal(ops->estimate(f->backend, &e, &mass), 0);
	e.stride = 16;
	assert_int_not_equal(ops->estimate(f->backend, &e, &mass), 0);
}

/* ---- heads in legs --------------------------------------------------------------------------- */

struct chosen {
	uint64_t kept[3][1]; /* of each KV head */
};

static struct backend_io io_of(const struct fixture *f, uint64_t o_at)
{
	return (struct backend_io){.q = f->base + Q_AT,
				   .o = f->base + o_at,
				   .q_stride = Q_VALUES * 2,
				   .o_stride = Q_VALUES * 2};
}

/* Blocks [begin, end) of the path, for those heads that see any of them. */
static void run_blocks(struct fixture *f, const struct chosen *c, uint32_t begin, uint32_t end,
		       const struct backend_io *io, const struct backend_leg *leg)
{
	struct work_slice slices[2 * N_PAGES];
	struct work_node node = {.parent = WORK_NONE, .pos = begin * BLOCK};
	struct work_query query = {.pos = N - N_ROWS, .n_rows = N_ROWS};
	struct work_tree tree = {&node, slices, &query, 1, 0, 1};
	struct work_list lists[3] = {0};
	struct backend_job jobs[3];
	struct plan_config plan = plan_of(f);
	uint64_t here = ((UINT64_C(1) << end) - 1) & ~((UINT64_C(1) << begin) - 1);
	uint32_t n = 0, pos = 0;

	for (uint32_t i = 0; i < f->n_slices; pos += f->slices[i++].count)
		if (pos >= begin * BLOCK && pos < end * BLOCK)
			slices[tree.n_slices++] = f->slices[i];
	node.n_slices = tree.n_slices;
	node.n_tokens = (end - begin) * BLOCK;
	bool all = end == N_BLOCKS && leg;
	for (uint32_t head = 0; head < (all ? 1 : 3); head++) {
		const struct select_query chosen = {all ? NULL : c->kept[head], N_BLOCKS};
		if (!all && !(c->kept[head][0] & here))
			continue;
		assert_int_equal(select_plan(&plan, &tree, &chosen, BLOCK, &lists[n]), 0);
		jobs[n] = (struct backend_job){.shape = &SHAPE,
					       .tree = &tree,
					       .list = &lists[n],
					       .io = io,
					       .layer = LAYER,
					       .head = head,
					       .n_heads = all ? 0 : 1};
		n++;
	}
	if (n > 0)
		submit(f, jobs, n, leg);
	for (uint32_t i = 0; i < 3; i++)
		plan_list_done(&lists[i]);
}

/* The blocks that rows stand in are seen by all heads, which the last leg is for. */
static struct chosen choose(struct fixture *f)
{
	struct chosen c;

	for (uint32_t head = 0; head < 3; head++) {
		c.kept[head][0] = ((UINT64_C(1) << N_BLOCKS) - 1) &
				  ~((UINT64_C(1) << (N - N_ROWS) / BLOCK) - 1);
		for (uint32_t i = 0; i < (N - N_ROWS) / BLOCK; i++)
			if (oracle_below(&f->random, 5) < head + 1)
				c.kept[head][0] |= UINT64_C(1) << i;
	}
	return c;
}

static void heads_see_blocks_of_their_own(void **state)
{
	struct fixture *f = *state;
	const struct backend_io whole = io_of(f, O_AT), part = io_of(f, OTHER_O_AT);
	size_t n = N_ROWS * Q_VALUES;

	for (uint32_t i = 0; i < 6; i++) {
		struct chosen c = choose(f);
		struct backend_leg leg = {.n_rows = N_ROWS, .first = true};
		const uint32_t last = (N - N_ROWS) / BLOCK;

		memset(f->memory + O_AT, 0xff, ARENA_BYTES - O_AT);
		run_blocks(f, &c, 0, N_BLOCKS, &whole, NULL);
		for (uint32_t begin = 0, end; begin < N_BLOCKS; begin = end) {
			end = begin + 1 + oracle_below(&f->random, 6);
			end = begin < last && end > last ? last : end;
			end = begin >= last ? N_BLOCKS : end;
			leg.last = end == N_BLOCKS;
			run_blocks(f, &c, begin, end, &part, &leg);
			for (uint32_t head = 0; head < 3; head++)
				leg.first = leg.first && !(c.kept[head][0] << (64 - end));
		}
		float *a = decoded(f, O_AT, n), *b = decoded(f, OTHER_O_AT, n);
		double *want = malloc(n * sizeof(*want));
		for (size_t j = 0; j < n; j++)
			want[j] = (double)a[j];
		/* Both round to bf16, legs on a GPU their parts too: 2^-9 each at most. */
		double d = distance(want, b, n);
		if (!(d < 4e-3))
			fail_msg("case %u: %g", i, d);
		free(want);
		free(a);
		free(b);
	}
}

/* The same in one job, of blocks that the device makes slots of by itself: heads that see nothing
 * here are in it too. */
static void run_windows(struct fixture *f, const struct chosen *c, uint32_t begin, uint32_t end,
			const struct backend_io *io, const struct backend_leg *leg)
{
	static const uint32_t first[1] = {0};
	struct work_slice path[2 * N_PAGES], slices[2 * N_PAGES];
	uint64_t here = ((UINT64_C(1) << end) - 1) & ~((UINT64_C(1) << begin) - 1), kept[3];
	struct work_node node = {.parent = WORK_NONE,
				 .pos = begin * BLOCK,
				 .n_tokens = (end - begin) * BLOCK};
	struct work_query query = {.pos = N - N_ROWS, .n_rows = N_ROWS};
	struct work_tree tree = {&node, slices, &query, 1, 0, 1};
	struct backend_chosen chosen = {.slices = path,
					.block_tokens = BLOCK,
					.n_blocks = end,
					.n_ranges = 1,
					.ranges = first,
					.kept = kept};
	struct plan_config plan = plan_of(f);
	struct work_list list = {0};
	struct backend_job job = {.shape = &SHAPE,
				  .tree = &tree,
				  .list = &list,
				  .io = io,
				  .layer = LAYER,
				  .chosen = &chosen};
	uint32_t pos = 0;

	for (uint32_t i = 0; i < f->n_slices && pos < end * BLOCK; pos += f->slices[i++].count) {
		path[chosen.n_slices] = f->slices[i];
		if (pos >= begin * BLOCK)
			slices[tree.n_slices++] = f->slices[i];
		else
			path[chosen.n_slices].page = WORK_NONE;
		chosen.n_slices++;
	}
	node.n_slices = tree.n_slices;
	for (uint32_t head = 0; head < 3; head++)
		kept[head] = c->kept[head][0] & here;
	assert_int_equal(plan_make(&plan, &tree, &list), 0);
	assert_true(ops->takes_chosen(f->backend, &job));
	submit(f, &job, 1, leg);
	plan_list_done(&list);
}

/* In whatever order: what the rows themselves stand in is neither first nor last. */
static void heads_see_windows_of_their_own(void **state)
{
	struct fixture *f = *state;
	const struct backend_io whole = io_of(f, O_AT), part = io_of(f, OTHER_O_AT);
	size_t n = N_ROWS * Q_VALUES;

	if (!ops->takes_chosen)
		skip();
	for (uint32_t i = 0; i < 12; i++) {
		const uint32_t last = (N - N_ROWS) / BLOCK, step = 1 + oracle_below(&f->random, 6);
		struct chosen c = choose(f);
		struct backend_leg leg = {.n_rows = N_ROWS, .first = true};

		memset(f->memory + O_AT, 0xff, ARENA_BYTES - O_AT);
		run_blocks(f, &c, 0, N_BLOCKS, &whole, NULL);
		for (uint32_t begin = 0; begin < last; begin += step) {
			uint32_t end = begin + step < last ? begin + step : last;

			leg.last = end == last;
			run_windows(f, &c, begin, end, &part, &leg);
			if (leg.first)
				run_windows(f, &c, last, N_BLOCKS, &part,
					    &(struct backend_leg){.n_rows = N_ROWS});
			leg.first = false;
		}
		float *a = decoded(f, O_AT, n), *b = decoded(f, OTHER_O_AT, n);
		double *want = malloc(n * sizeof(*want));
		for (size_t j = 0; j < n; j++)
			want[j] = (double)a[j];
		double d = distance(want, b, n); /* as above */
		if (!(d < 4e-3))
			fail_msg("case %u: %g", i, d);
		free(want);
		free(a);
		free(b);
	}
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(masses_from_means_are_those_of_the_book),
		TEST(what_nobody_took_in_is_no_estimate),
		TEST(heads_see_blocks_of_their_own),
		cmocka_unit_test_setup_teardown(heads_see_windows_of_their_own, setup_whole,
						teardown),
	};
	int r = argc > 1 ? device_ops(argv[1], &ops) : 0;

	return r ? r : cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
