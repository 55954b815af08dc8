/*
 * sparse_test.c - what a backend does for sparse prefill: masses of blocks estimated from its
 * pages, jobs of some KV heads alone, and jobs of chosen blocks; and blocks chosen for a chunk of
 * queries.
 *
 * One sequence, the last tokens of which ask. argv[1]: the module of the backend, else it is the
 * CPU's; without its device the program says so and exits with 77.
 */
#include "device_ops.h"
#include "sparse_fixture.h"

#include "estimate_model.h"
#include "kernels/plan/select.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As attention_test.c has them: of the norm of O. */
static const double bounds[] = {[WORK_FP32] = 1e-5, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};

/* ---- estimates ------------------------------------------------------------------------------ */

static struct backend_estimate estimate_of(const struct fixture *f, uint32_t n_q, uint32_t stride)
{
	uint64_t bytes = fixture_row_bytes(f, fixture_q_values(f));

	return (struct backend_estimate){.shape = &f->shape,
					 .slices = f->slices,
					 .n_slices = f->tree.n_slices,
					 .layer = 1,
					 .q = f->base + (f->n - n_q) * bytes,
					 .q_stride = bytes,
					 .n_q = n_q,
					 .q_pos = f->n - n_q,
					 .n_k = f->n,
					 .stride = stride,
					 .block_tokens = 128};
}

static void check_estimate(struct oracle_random *random, enum work_dtype dtype, uint32_t n_q,
			   uint32_t stride)
{
	struct fixture f;

	fixture_init(&f, dtype, random);
	struct backend_estimate e = estimate_of(&f, n_q, stride);
	struct estimate_shape shape = {
		6, 3, f.shape.head_dim, stride, e.block_tokens, (double)f.shape.scale};
	struct estimate_input input = {.q = f.q + (size_t)(N - n_q) * fixture_q_values(&f),
				       .k = f.k,
				       .n_q = n_q,
				       .q_pos = N - n_q,
				       .n_k = N};
	size_t n = 3u * estimate_n_blocks(n_q, 128) * estimate_n_blocks(N, 128);
	double *want = malloc(n * sizeof(*want));
	const float *got;

	assert_int_equal(estimate_blocks(&shape, &input, want), 0);
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &got), 0);
	/* A score is a sum of 512 products in fp32, at most 40 here: some 2e-5 off, and so are its
	 * weights. */
	for (size_t i = 0; i < n; i++)
		assert_true(fabs((double)got[i] - want[i]) <= 1e-4 * want[i] + 1e-30);
	free(want);
	fixture_done(&f);
}

static void test_masses_are_those_of_the_twin(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	enum work_dtype exact = fixture_on_cpu() ? WORK_FP32 : WORK_FP16;

	(void)state;
	check_estimate(&random, exact, 300, 8);
	check_estimate(&random, WORK_FP16, 252, 8);
	check_estimate(&random, WORK_BF16, 20, 8);
	check_estimate(&random, exact, 300, 16);
}

/* Nodes that begin within a page, and within a group: windows of several pages. */
static void test_masses_of_pages_that_are_shared(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f, askew;
	uint32_t n = 0;
	size_t n_mass = 3u * 3 * estimate_n_blocks(N, 128);
	float *want = malloc(n_mass * sizeof(*want));
	const float *got;

	(void)state;
	fixture_init(&f, WORK_FP16, &random);
	struct backend_estimate e = estimate_of(&f, CHUNK, 8);
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &got), 0);
	memcpy(want, got, n_mass * sizeof(*want));
	askew = f;
	for (uint32_t at = 0; at < N; n++) { /* the same tokens, page after page in other pieces */
		uint32_t page = at / PAGE, first = at % PAGE, left = PAGE - first;
		uint32_t count = 1 + oracle_below(&random, left);
		count = N - at < count ? N - at : count;
		if (n + (N - at) / PAGE + 2 >= PAGES_MOST)
			count = N - at < left ? N - at : left;
		askew.slices[n] =
			(struct work_slice){f.slices[page].page, (uint16_t)first, (uint16_t)count};
		at += count;
	}
	e.slices = askew.slices;
	e.n_slices = n;
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &got), 0);
	assert_memory_equal(got, want, n_mass * sizeof(*got));
	free(want);
	fixture_done(&f);
}

static void test_bad_estimates_are_refused(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;
	const float *mass;

	(void)state;
	fixture_init(&f, WORK_FP16, &random);
	struct backend_estimate e = estimate_of(&f, 300, 12);
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &mass), -EINVAL);
	e = estimate_of(&f, 301, 8);
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &mass), -EINVAL);
	e = estimate_of(&f, 300, 8);
	e.n_slices--;
	assert_int_equal(fixture_ops->estimate(f.backend, &e, &mass), -EINVAL);
	fixture_done(&f);
}

/* ---- choices -------------------------------------------------------------------------------- */

/* The backend's own choice is that by its masses. Its sums are of the same masses in another order:
 * 1e-12 off. */
static void check_choice(struct fixture *f, const struct select_config *config, uint32_t n_q,
			 uint32_t skip)
{
	const struct select_chunk chunk = {128, N - n_q - skip, n_q + skip, skip,
					   estimate_n_blocks(N, 128)};
	uint32_t n_ranges = select_n_ranges(&chunk), n_words = select_n_words(chunk.n_blocks);
	struct backend_estimate e = estimate_of(f, n_q, 8);
	uint64_t *want = calloc((size_t)3 * n_ranges * n_words, sizeof(*want));
	struct select_shares shares = {0}, want_shares = {0};
	const uint64_t *got;
	const float *mass;

	assert_int_equal(fixture_ops->estimate(f->backend, &e, &mass), 0);
	for (uint32_t head = 0; head < 3; head++)
		assert_int_equal(select_chunk(config, &chunk,
					      mass + (size_t)head * n_ranges * chunk.n_blocks,
					      want + (size_t)head * n_ranges * n_words,
					      &want_shares),
				 0);
	assert_int_equal(fixture_ops->choose(f->backend, &e, config, &chunk, &got, &shares), 0);
	assert_memory_equal(got, want, (size_t)3 * n_ranges * n_words * sizeof(*want));
	assert_true(shares.attended == want_shares.attended);
	assert_true(shares.visible == want_shares.visible);
	assert_true(fabs(shares.total_mass - want_shares.total_mass) <=
		    1e-12 * want_shares.total_mass);
	assert_true(fabs(shares.kept_mass - want_shares.kept_mass) <=
		    1e-12 * want_shares.total_mass);
	free(want);
}

static void test_a_choice_is_that_by_the_masses(void **state)
{
	static const double taus[] = {1e-9, 0.3, 0.5, 0.8, 0.95, 0.999999, 1};
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;

	(void)state;
	if (!fixture_ops->choose)
		skip();
	fixture_init(&f, WORK_FP16, &random);
	for (uint32_t i = 0; i < sizeof(taus) / sizeof(taus[0]); i++)
		for (uint32_t round = 0; round < 8; round++) {
			struct select_config config = {taus[i], oracle_below(&random, 4),
						       oracle_below(&random, 4)};
			uint32_t squares = 1 + oracle_below(&random, 60);
			/* The chunk ends with the path, and its estimate begins at a multiple of
			 * 8. */
			check_choice(&f, &config, N % 8 + 8 * squares, oracle_below(&random, 8));
		}
	fixture_done(&f);
}

/* ---- attention ------------------------------------------------------------------------------ */

static const uint64_t *kept_of_head(const struct fixture *f, const void *of, uint32_t row,
				    uint32_t head)
{
	(void)f;
	(void)row;
	return (const uint64_t *)of + head;
}

/* Lists of random blocks, one for each KV head: together they write what each writes of its head
 * alone. */
static void check_single_heads(enum work_dtype dtype, struct oracle_random *random)
{
	struct work_list lists[3] = {0};
	struct backend_job jobs[3];
	struct backend_io io;
	struct fixture f;
	uint64_t kept[3];

	fixture_init(&f, dtype, random);
	struct plan_config plan = fixture_plan(&f);
	io = fixture_output(&f, 0);
	for (uint32_t head = 0; head < 3; head++) {
		kept[head] = 1 | (uint64_t)oracle_below(random, 1u << estimate_n_blocks(N, BLOCK));
		struct select_query chosen = {&kept[head], estimate_n_blocks(N, BLOCK)};
		assert_int_equal(select_plan(&plan, &f.tree, &chosen, BLOCK, &lists[head]), 0);
		jobs[head] = fixture_job(&f, &lists[head], &io);
		jobs[head].head = head;
		jobs[head].n_heads = 1;
	}
	fixture_run(&f, jobs, 3);
	assert_true(fixture_error(&f, 0, kept_of_head, kept) < bounds[dtype]);
	for (uint32_t head = 0; head < 3; head++)
		plan_list_done(&lists[head]);
	fixture_done(&f);
}

static void test_jobs_of_single_heads_write_their_heads_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	if (fixture_on_cpu())
		check_single_heads(WORK_FP32, &random);
	check_single_heads(WORK_FP16, &random);
	check_single_heads(WORK_BF16, &random);
}

/* tau = 1 by way of estimate, selection and jobs of heads; on the CPU the bits of exact
 * attention. */
static void check_all_blocks(enum work_dtype dtype, struct oracle_random *random)
{
	const struct select_config config = {.tau = 1};
	struct select_shares shares = {0};
	struct work_list exact = {0}, chosen = {0};
	struct fixture f;

	fixture_init(&f, dtype, random);
	struct plan_config plan = fixture_plan(&f);
	struct select_chunk chunk = {128, N - CHUNK, CHUNK, 0, estimate_n_blocks(N, 128)};
	struct backend_estimate e = estimate_of(&f, CHUNK, 8);
	const float *mass;
	struct backend_io io = fixture_output(&f, 0), io_exact = fixture_output(&f, 1), ios[3];
	uint64_t kept[3];
	struct work_query queries[3];
	struct select_query selected[3];
	struct work_tree tree = f.tree;

	assert_int_equal(fixture_ops->estimate(f.backend, &e, &mass), 0);
	tree.queries = queries;
	tree.n_queries = select_n_ranges(&chunk);
	assert_int_equal(tree.n_queries, 3);
	for (uint32_t head = 0; head < 3; head++) {
		const float *of_head = mass + (size_t)head * 3 * chunk.n_blocks;
		assert_int_equal(select_chunk(&config, &chunk, of_head, kept, &shares), 0);
		for (uint32_t i = 0; i < 3; i++) {
			struct select_range range = select_range_at(&chunk, i);
			queries[i] = (struct work_query){0, N - CHUNK + range.begin,
							 range.end - range.begin, NULL};
			selected[i] = (struct select_query){&kept[i], chunk.n_blocks};
			ios[i] = io;
			ios[i].q += range.begin * io.q_stride;
			ios[i].o += range.begin * io.o_stride;
		}
		assert_int_equal(select_plan(&plan, &tree, selected, 128, &chosen), 0);
		struct backend_job job = fixture_job(&f, &chosen, ios);
		job.tree = &tree;
		job.head = head;
		job.n_heads = 1;
		fixture_run(&f, &job, 1);
	}
	assert_true(shares.attended == shares.visible);
	assert_int_equal(plan_make(&plan, &f.tree, &exact), 0);
	struct backend_job job = fixture_job(&f, &exact, &io_exact);
	fixture_run(&f, &job, 1);
	if (fixture_on_cpu())
		assert_memory_equal(f.arena + fixture_o_offset(&f, 0),
				    f.arena + fixture_o_offset(&f, 1),
				    CHUNK * fixture_row_bytes(&f, fixture_q_values(&f)));
	assert_true(fixture_error(&f, 0, NULL, NULL) < bounds[dtype]);
	assert_true(fixture_error(&f, 1, NULL, NULL) < bounds[dtype]);
	plan_list_done(&exact);
	plan_list_done(&chosen);
	fixture_done(&f);
}

static void test_all_blocks_are_exact_attention(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	check_all_blocks(fixture_on_cpu() ? WORK_FP32 : WORK_FP16, &random);
}

/* ---- blocks of all heads at once ------------------------------------------------------------ */

#define RANGES_MOST 40u

struct choice {
	struct backend_chosen of;
	uint32_t ranges[RANGES_MOST];
	uint64_t *kept; /* owned */
};

static const uint64_t *kept_of_range(const struct fixture *f, const void *of, uint32_t row,
				     uint32_t head)
{
	const struct choice *c = of;
	uint32_t range = c->of.n_ranges - 1;

	(void)f;
	while (c->ranges[range] > row)
		range--;
	return c->kept + ((size_t)head * c->of.n_ranges + range) * select_n_words(c->of.n_blocks);
}

/* Ranges of any length, blocks at random, but those that rows stand in. */
static void choice_make(const struct fixture *f, struct choice *c, struct oracle_random *random)
{
	uint32_t n_blocks = estimate_n_blocks(f->n, BLOCK), n_words = select_n_words(n_blocks);
	uint32_t n = 1 + oracle_below(random, 8), pos = f->n - f->chunk;
	uint32_t most = oracle_below(random, 2) ? 101 : 30; /* per cent */

	*c = (struct choice){.of = {.slices = f->slices,
				    .n_slices = f->tree.n_slices,
				    .block_tokens = BLOCK,
				    .n_blocks = n_blocks,
				    .n_ranges = n}};
	for (uint32_t i = 1; i < n; i++)
		c->ranges[i] = c->ranges[i - 1] + 1 + oracle_below(random, f->chunk / n - 1);
	c->kept = calloc((size_t)f->shape.n_kv_heads * n * n_words, sizeof(*c->kept));
	for (uint32_t i = 0; i < f->shape.n_kv_heads * n; i++) {
		uint32_t range = i % n, end = range + 1 < n ? c->ranges[range + 1] : f->chunk;
		uint32_t first = (pos + c->ranges[range]) / BLOCK, last = (pos + end - 1) / BLOCK;
		uint32_t share = oracle_below(random, most);
		for (uint32_t b = 0; b < n_blocks; b++)
			if ((b >= first && b <= last) || oracle_below(random, 100) < share)
				c->kept[i * n_words + b / 64] |= UINT64_C(1) << b % 64;
	}
	c->of.kept = c->kept;
	c->of.ranges = c->ranges;
}

/* The path without what no row attends to. */
static struct backend_chosen with_holes(const struct fixture *f, const struct choice *c,
					struct work_slice *slices)
{
	uint32_t n_words = select_n_words(c->of.n_blocks);
	struct backend_chosen ret = c->of;

	memcpy(slices, f->slices, f->tree.n_slices * sizeof(*slices));
	for (uint32_t i = 0; i < f->tree.n_slices; i++) {
		bool kept = false;
		for (uint32_t e = 0; e < f->shape.n_kv_heads * c->of.n_ranges; e++)
			kept = kept || select_has(c->kept + e * n_words, i * PAGE / BLOCK);
		slices[i].page = kept ? slices[i].page : WORK_NONE;
	}
	ret.slices = slices;
	return ret;
}

/* The job appends its rows' tokens too: once more, that is. */
static void append_with(const struct fixture *f, struct work_slice *slots, struct backend_io *io)
{
	uint64_t bytes = fixture_row_bytes(f, fixture_k_values(f));
	uint32_t pos = f->n - f->chunk;

	io->k = f->base + fixture_k_offset(f) + pos * bytes;
	io->v = io->k + f->n * bytes;
	io->k_stride = io->v_stride = bytes;
	io->slots = slots;
	for (uint32_t n; pos < f->n; pos += n) {
		n = PAGE - pos % PAGE < f->n - pos ? PAGE - pos % PAGE : f->n - pos;
		slots[io->n_slots++] = (struct work_slice){f->slices[pos / PAGE].page,
							   (uint16_t)(pos % PAGE), (uint16_t)n};
	}
}

static void check_chosen(struct fixture *f, struct oracle_random *random)
{
	struct work_slice slices[PAGES_MOST], slots[PAGES_MOST];
	struct work_list list = {0};
	struct choice c;

	fixture_make(f, random);
	struct plan_config plan = fixture_plan(f);
	struct backend_io io[2] = {fixture_output(f, 0), fixture_output(f, 1)};
	struct backend_job jobs[2] = {fixture_job(f, &list, &io[0]), fixture_job(f, &list, &io[1])};
	choice_make(f, &c, random);
	append_with(f, slots, &io[1]);
	const struct backend_chosen all = {f->slices,	  f->tree.n_slices, BLOCK, c.of.n_blocks,
					   c.of.n_ranges, c.ranges,	    NULL};
	jobs[0].chosen = &c.of;
	jobs[1].chosen = &all;
	assert_int_equal(plan_make(&plan, &f->tree, &list), 0);
	assert_true(fixture_ops->takes_chosen(f->backend, &jobs[0]));
	fixture_run(f, jobs, 2);
	double error = fixture_error(f, 0, kept_of_range, &c),
	       error_all = fixture_error(f, 1, NULL, NULL);
	if (!(error < bounds[f->shape.dtype] && error_all < bounds[f->shape.dtype]))
		fail_msg("dim %u, %u/%u heads, %u of %u tokens, %u ranges: %g and %g off",
			 f->shape.head_dim, f->shape.n_q_heads, f->shape.n_kv_heads, f->chunk, f->n,
			 c.of.n_ranges, error, error_all);
	const struct backend_chosen holes = with_holes(f, &c, slices);
	fixture_output(f, 0);
	jobs[0].chosen = &holes;
	assert_true(fixture_ops->takes_chosen(f->backend, &jobs[0]));
	fixture_run(f, jobs, 1);
	assert_true(fixture_error(f, 0, kept_of_range, &c) < bounds[f->shape.dtype]);
	jobs[0].chosen = &c.of;
	f->slices[0].first++; /* a page that is shared from within a group on */
	f->slices[0].count--;
	assert_false(fixture_ops->takes_chosen(f->backend, &jobs[0]));
	free(c.kept);
	plan_list_done(&list);
	fixture_done(f);
}

static void test_chosen_blocks_of_all_heads_at_once(void **state)
{
	static const uint32_t shapes[][6] = {
		/* dim, heads, KV heads, tokens, of which ask, dtype */
		{128, 2, 2, 1900, 500, WORK_FP16}, {128, 4, 1, 1000, 333, WORK_BF16},
		{64, 6, 2, 2048, 256, WORK_FP16},  {256, 2, 1, 900, 200, WORK_FP16},
		{128, 16, 1, 700, 40, WORK_FP16},  {64, 1, 1, 300, 300, WORK_BF16},
		{128, 3, 3, 2500, 130, WORK_FP16}, {128, 10, 2, 777, 129, WORK_FP16},
	};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	if (!fixture_ops->takes_chosen)
		skip();
	for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const uint32_t *s = shapes[i];
		struct fixture f = {.n = s[3],
				    .chunk = s[4],
				    .shape = {.n_layers = 2,
					      .n_q_heads = s[1],
					      .n_kv_heads = s[2],
					      .head_dim = s[0],
					      .page_tokens = PAGE,
					      .dtype = (enum work_dtype)s[5],
					      .scale = 1 / sqrtf((float)s[0])}};
		check_chosen(&f, &random);
	}
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void test_a_chunk_keeps_the_blocks_of_its_own_queries(void **state)
{
	const float mass[3 * 8] = {8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 1,
				   0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0};
	const struct select_config config = {.tau = 0.5};
	/* Queries 310 to 449: the first 10 without an estimate. */
	struct select_chunk chunk = {64, 310, 140, 10, 8};
	struct select_shares shares = {0};
	uint64_t kept[3];

	(void)state;
	assert_int_equal(select_n_ranges(&chunk), 3);
	assert_int_equal(select_range_at(&chunk, 0).begin, 0);
	assert_int_equal(select_range_at(&chunk, 0).end, 74);
	assert_int_equal(select_range_at(&chunk, 2).begin, 138);
	assert_int_equal(select_range_at(&chunk, 2).end, 140);
	assert_int_equal(select_chunk(&config, &chunk, mass, kept, &shares), 0);
	assert_int_equal(kept[0], 1 | 1 << 4 | 1 << 5); /* positions 310 to 383 */
	assert_int_equal(kept[1], 1 | 1 << 6); /* 384 to 447, whose squares begin at 384 */
	assert_int_equal(kept[2], 1 << 1 | 1 << 7);
	assert_true(shares.visible == 74 * 6 + 64 * 7 + 2 * 8);
	assert_true(shares.attended == 74 * 3 + 64 * 2 + 2 * 2);
	assert_true(shares.kept_mass == 24 && shares.total_mass == 25);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masses_are_those_of_the_twin),
		cmocka_unit_test(test_masses_of_pages_that_are_shared),
		cmocka_unit_test(test_a_choice_is_that_by_the_masses),
		cmocka_unit_test(test_bad_estimates_are_refused),
		cmocka_unit_test(test_jobs_of_single_heads_write_their_heads_alone),
		cmocka_unit_test(test_all_blocks_are_exact_attention),
		cmocka_unit_test(test_chosen_blocks_of_all_heads_at_once),
		cmocka_unit_test(test_a_chunk_keeps_the_blocks_of_its_own_queries),
	};
	int r = argc > 1 ? device_ops(argv[1], &fixture_ops) : 0;

	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
