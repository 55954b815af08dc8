/* attention_test.c - the CPU backend's attention against float64, over random trees, shapes and
 * policies. */
#include "world.h"
#include "world_cases.h"
#include "kernels/cpu/vec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Half a unit of the last place is 2^-12 of a value in fp16 and 2^-9 in bf16; their mean over
 * values of random magnitude is well below. fp32 is summed in chains of products, whose roundings
 * grow with their root. */
static const double bounds[] = {[WORK_FP32] = 2e-6, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
static const char *const isas[] = {"generic", "avx2", "avx512"};

static struct work_shape shape_make(uint32_t ratio, uint32_t head_dim, uint32_t page_tokens,
				    enum work_dtype dtype)
{
	return (struct work_shape){.n_layers = 2,
				   .n_q_heads = 2 * ratio,
				   .n_kv_heads = 2,
				   .head_dim = head_dim,
				   .page_tokens = page_tokens,
				   .dtype = dtype,
				   .scale = 1 / sqrtf((float)head_dim)};
}

static void config_make(const struct world *w, uint32_t which, struct plan_config *ret)
{
	plan_config_init(ret, PLAN_AUTO, &w->shape, 4);
	assert_int_equal(plan_policy_parse(plan_ways[which], ret), 0);
	ret->tile_rows = backend_cpu.tile_rows(w->backend, &w->shape);
	/* contexts here are short: cut them all the same */
	ret->segment_tokens = 2 * WORK_TILE_TOKENS;
}

/* All policies on one world: each within the bound. */
static void check_policies(struct world *w)
{
	double bound = bounds[w->shape.dtype];

	for (uint32_t i = 0; i < PLAN_N_WAYS; i++) {
		struct plan_config config;
		struct world_answer answer;
		double lse, error;

		config_make(w, i, &config);
		world_run(w, &config, 0, w->tree.n_queries, &answer);
		error = world_error(w, 0, w->tree.n_queries, &answer, &lse);
		world_answer_done(&answer);
		if (error > bound || lse > 1e-5)
			fail_msg("policy %s, ratio %u, dim %u, page %u, dtype %d: error %g "
				 "(at most %g), LSE %g",
				 plan_ways[i], w->shape.n_q_heads / w->shape.n_kv_heads,
				 w->shape.head_dim, w->shape.page_tokens, (int)w->shape.dtype,
				 error, bound, lse);
	}
}

static void run_world(struct work_shape shape, uint32_t n_threads, struct oracle_random *random)
{
	struct world_want want = {.shape = shape,
				  .n_threads = n_threads,
				  .n_nodes = 1 + oracle_below(random, 10),
				  .n_queries = 1 + oracle_below(random, 8),
				  .node_tokens = 200,
				  .drafts = true};
	struct world w;

	world_init(&w, &want, random);
	check_policies(&w);
	world_done(&w);
}

static void every_isa(void (*run)(struct oracle_random *), const char *name)
{
	struct oracle_random random = oracle_seed(name);

	for (uint32_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		if (!vec_select(isas[i]))
			continue;
		assert_int_equal(setenv("COPPICE_CPU_ISA", isas[i], 1), 0);
		run(&random);
	}
	unsetenv("COPPICE_CPU_ISA");
}

static void run_dims_and_dtypes(struct oracle_random *random)
{
	static const uint32_t dims[] = {64, 96, 128, 192, 256};

	for (uint32_t i = 0; i < 5; i++) {
		for (int dtype = WORK_FP32; dtype <= WORK_BF16; dtype++)
			run_world(shape_make(4, dims[i], 16u << oracle_below(random, 3), dtype), 2,
				  random);
	}
}

static void test_every_head_dim_and_dtype_is_within_its_bound(void **state)
{
	(void)state;
	every_isa(run_dims_and_dtypes, __func__);
}

static void run_ratios(struct oracle_random *random)
{
	for (uint32_t ratio = 1; ratio <= 16; ratio++)
		run_world(shape_make(ratio, 64, 16u << oracle_below(random, 3), ratio % 3), 1,
			  random);
}

static void test_every_ratio_of_heads_is_within_its_bound(void **state)
{
	(void)state;
	every_isa(run_ratios, __func__);
}

static void run_many_heads(struct oracle_random *random)
{
	static const uint32_t ratios[] = {20, 32, 64, 71, 128};

	for (uint32_t i = 0; i < 5; i++)
		run_world(shape_make(ratios[i], i % 2 ? 64 : 96, 16u << oracle_below(random, 3),
				     i % 3),
			  1, random);
}

static void test_many_query_heads_to_a_kv_head_are_within_their_bound(void **state)
{
	(void)state;
	every_isa(run_many_heads, __func__);
}

static void run_odd_dims(struct oracle_random *random)
{
	for (uint32_t dim = 16; dim <= 112; dim += 32)
		run_world(shape_make(3, dim, 16u << oracle_below(random, 3), WORK_BF16), 1, random);
}

static void test_head_dims_that_end_in_half_a_pair_are_within_their_bound(void **state)
{
	(void)state;
	every_isa(run_odd_dims, __func__);
}

static const char *row_raw(const struct world *w, const struct world_answer *answer, uint32_t row)
{
	return (const char *)answer->raw +
	       row * world_row_values(w) * work_dtype_bytes(w->shape.dtype);
}

/* Query by query alone against all together: the same bits. */
static void check_company(struct world *w, uint32_t which, const struct world_answer *together)
{
	size_t row_bytes = world_row_values(w) * work_dtype_bytes(w->shape.dtype);
	struct plan_config config;

	config_make(w, which, &config);
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		uint32_t first = oracle_below(&(struct oracle_random){i + 1}, i + 1);
		uint32_t row = w->first_row[i], n = w->queries[i].n_rows;
		struct world_answer alone, some;

		world_run(w, &config, i, 1, &alone);
		world_run(w, &config, first, i - first + 1, &some);
		assert_memory_equal(row_raw(w, &alone, row), row_raw(w, together, row),
				    n * row_bytes);
		assert_memory_equal(row_raw(w, &some, row), row_raw(w, together, row),
				    n * row_bytes);
		assert_memory_equal(alone.lse + row * w->shape.n_q_heads,
				    together->lse + row * w->shape.n_q_heads,
				    n * w->shape.n_q_heads * sizeof(float));
		world_answer_done(&alone);
		world_answer_done(&some);
	}
}

static void check_invariance(struct work_shape shape, struct oracle_random *random)
{
	struct world_want want = {
		.shape = shape, .n_nodes = 8, .n_queries = 10, .node_tokens = 150, .drafts = true};
	struct oracle_random same = *random;
	struct world_answer first = {0};

	for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
		for (uint32_t which = 0; which < 2; which++) {
			struct world w;
			struct plan_config config;
			struct world_answer answer;

			*random = same;
			want.n_threads = n_threads;
			world_init(&w, &want, random);
			config_make(&w, which, &config);
			world_run(&w, &config, 0, w.tree.n_queries, &answer);
			check_company(&w, which, &answer);
			if (first.raw) {
				assert_memory_equal(first.raw, answer.raw, answer.raw_bytes);
				world_answer_done(&answer);
			} else {
				first = answer;
			}
			world_done(&w);
		}
	}
	world_answer_done(&first);
}

static void run_invariance(struct oracle_random *random)
{
	check_invariance(shape_make(4, 64, 32, WORK_FP32), random);
	check_invariance(shape_make(5, 96, 16, WORK_BF16), random);
	check_invariance(shape_make(1, 64, 64, WORK_FP16), random);
}

static void test_bits_depend_neither_on_company_nor_threads_with_auto_and_none(void **state)
{
	(void)state;
	every_isa(run_invariance, __func__);
}

/* Lists made by hand: what no planner makes, but work.h allows. */
struct hand {
	struct world w;
	struct work_tree tree;
	struct work_query query;
	struct work_row row;
	struct work_piece pieces[4];
	struct work_tile tiles[2];
	struct work_item items[2];
	uint32_t merge_first[2], merge_parts[2];
	struct work_list list;
};

/* One sequence of 3 pages and one query at its end; the list has no item yet. */
static void hand_init(struct hand *h, struct oracle_random *random)
{
	struct world_want want = {.shape = shape_make(2, 64, 32, WORK_FP32),
				  .n_threads = 1,
				  .n_nodes = 1,
				  .n_queries = 1,
				  .node_tokens = 1};

	*h = (struct hand){0};
	world_init(&h->w, &want, random);
	h->query = (struct work_query){.node = 0, .n_rows = 1};
	h->tree = h->w.tree;
	h->tree.queries = &h->query;
	h->row = (struct work_row){.pos = 100};
	h->list = (struct work_list){.rows = &h->row,
				     .items = h->items,
				     .tiles = h->tiles,
				     .pieces = h->pieces,
				     .merge_first = h->merge_first,
				     .merge_parts = h->merge_parts,
				     .n_rows = 1};
}

static void hand_run(struct hand *h, float *o, float *lse)
{
	struct backend_io io = {.q = (uintptr_t)h->w.q_raw,
				.o = (uintptr_t)o,
				.lse = (uintptr_t)lse};
	struct backend_job job = {&h->w.shape, &h->tree, &h->list, &io, 1};
	struct backend_batch batch = {&job, 1};
	uint64_t id;

	assert_int_equal(backend_cpu.submit(h->w.backend, &batch, &id), 0);
}

static void assert_nothing_seen(const struct hand *h, const float *o, const float *lse)
{
	for (size_t i = 0; i < world_row_values(&h->w); i++)
		assert_true(o[i] == 0);
	for (size_t i = 0; i < h->w.shape.n_q_heads; i++)
		assert_true(lse[i] == -INFINITY);
}

static void test_a_row_without_partials_is_zero_with_lse_minus_infinity(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct hand h;
	float o[256], lse[8];

	(void)state;
	hand_init(&h, &random);
	memset(o, 0xff, sizeof(o));
	hand_run(&h, o, lse);
	assert_nothing_seen(&h, o, lse);
	world_done(&h.w);
}

static void one_item(struct hand *h, uint32_t n_tiles, uint32_t n_pieces)
{
	h->tiles[0] = (struct work_tile){0, n_pieces, 0, 1};
	h->items[0] = (struct work_item){0, 1, 0, n_tiles, 0, WORK_NONE};
	h->merge_first[1] = 1;
	h->list.n_items = 1;
	h->list.n_tiles = n_tiles;
	h->list.n_pieces = n_pieces;
	h->list.n_parts = 1;
}

static void test_a_row_that_sees_no_key_of_its_tiles_is_zero_too(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct hand h;
	float o[256], lse[8];

	(void)state;
	hand_init(&h, &random);
	h.row.pos = 4;
	h.pieces[0] = (struct work_piece){0, 0, 1, 0, 5, 0, 1};
	one_item(&h, 1, 1);
	memset(o, 0xff, sizeof(o));
	hand_run(&h, o, lse);
	assert_nothing_seen(&h, o, lse);
	world_done(&h.w);
}

/* Appends the same V everywhere, and K of which the first value is given by row. */
static void hand_fill(struct hand *h, float (*key)(uint32_t row))
{
	static float k[96][2][64], v[96][2][64];
	struct work_slice slots[3] = {{0, 0, 32}, {1, 0, 32}, {2, 0, 32}};
	struct work_query query = {.n_rows = 96};
	struct work_tree tree = {.queries = &query, .n_queries = 1};
	struct work_list list = {0};
	struct backend_io io = {.k = (uintptr_t)k,
				.v = (uintptr_t)v,
				.k_stride = sizeof(k[0]),
				.v_stride = sizeof(v[0]),
				.slots = slots,
				.n_slots = 3};
	struct backend_job job = {&h->w.shape, &tree, &list, &io, 1};
	struct backend_batch batch = {&job, 1};
	uint64_t id;

	memset(k, 0, sizeof(k));
	for (uint32_t i = 0; i < 96; i++) {
		for (uint32_t j = 0; j < 128; j++)
			v[i][j / 64][j % 64] = (float)i;
		k[i][0][0] = k[i][1][0] = key(i);
	}
	assert_int_equal(backend_cpu.submit(h->w.backend, &batch, &id), 0);
}

static float key_zero(uint32_t row)
{
	(void)row;
	return 0;
}

static float key_minus_infinity(uint32_t row)
{
	(void)row;
	return -INFINITY;
}

static void test_pieces_lie_at_any_key_of_a_tile_and_row_of_a_page(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct hand h;
	float o[256], lse[8];

	(void)state;
	hand_init(&h, &random);
	hand_fill(&h, key_zero);
	h.pieces[0] = (struct work_piece){0, 29, 3, 1, 0, 0, 1}; /* V 29, 30, 31 */
	h.pieces[1] = (struct work_piece){2, 5, 17, 40, 3, 0, 1}; /* V 69 to 85 */
	h.pieces[2] = (struct work_piece){1, 31, 1, 63, 20, 0, 1}; /* V 63 */
	one_item(&h, 1, 3);
	hand_run(&h, o, lse);
	for (size_t i = 0; i < world_row_values(&h.w); i++)
		assert_float_equal(o[i], (90.0 + 17 * 77 + 63) / 21, 1e-4);
	assert_float_equal(lse[0], log(21), 1e-6);
	world_done(&h.w);
}

static void test_scores_of_minus_infinity_weigh_nothing(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct hand h;
	float o[256], lse[8];

	(void)state;
	hand_init(&h, &random);
	hand_fill(&h, key_minus_infinity);
	for (size_t i = 0; i < world_row_values(&h.w); i++)
		((float *)h.w.q_raw)[i] = 1;
	h.pieces[0] = (struct work_piece){0, 0, 32, 0, 0, 0, 1};
	one_item(&h, 1, 1);
	hand_run(&h, o, lse);
	assert_nothing_seen(&h, o, lse);
	world_done(&h.w);
}

static void test_two_partials_of_a_row_are_merged(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct hand h;
	float o[256], lse[8];

	(void)state;
	hand_init(&h, &random);
	hand_fill(&h, key_zero);
	h.pieces[0] = (struct work_piece){0, 0, 32, 0, 0, 0, 1};
	h.pieces[1] = (struct work_piece){2, 0, 16, 0, 64, 0, 1};
	one_item(&h, 1, 1);
	h.tiles[1] = (struct work_tile){1, 1, 0, 1};
	h.items[1] = (struct work_item){0, 1, 1, 1, 1, WORK_NONE};
	h.merge_first[1] = 2;
	h.merge_parts[1] = 1;
	h.list.n_items = h.list.n_tiles = h.list.n_pieces = h.list.n_parts = 2;
	hand_run(&h, o, lse);
	assert_float_equal(o[0], (32 * 15.5 + 16 * 71.5) / 48, 1e-4);
	assert_float_equal(lse[0], log(48), 1e-6);
	world_done(&h.w);
}

static void test_exp2_is_within_two_units_and_exact_at_0(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct vec *vec = vec_select(isas[i]);
		float x[16], y[16];

		for (uint32_t j = 0; vec && j < 1000000; j += 16) {
			for (uint32_t n = 0; n < 16; n++)
				x[n] = -1.27e-4f * (float)(j + n);
			vec->exp2(y, x, 16);
			for (uint32_t n = 0; n < 16; n++) {
				double want = x[n] < -126 ? 0 : exp2((double)x[n]);

				assert_true(fabs(y[n] - want) <= want * 0x1p-22);
			}
		}
		x[0] = 0;
		x[1] = -INFINITY;
		x[2] = NAN;
		if (!vec)
			continue;
		vec->exp2(y, x, 16);
		assert_true(y[0] == 1 && y[1] == 0 && isnan(y[2]));
	}
}

static struct world_cases cases(void)
{
	return (struct world_cases){&backend_cpu, bounds, PLAN_N_WAYS, config_make};
}

static void test_q_of_what_wants_no_output_is_not_read(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct world_cases c = cases();

	(void)state;
	world_cases_silent(&c, &random);
}

static void test_a_token_that_is_not_finite_harms_only_who_sees_it(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct world_cases c = cases();

	(void)state;
	world_cases_not_finite(&c, &random);
}

static void test_keys_that_grow_along_the_way_are_within_their_bound(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct world_cases c = cases();

	(void)state;
	world_cases_growing(&c, &random);
}

static void run_windows(struct oracle_random *random)
{
	struct world_cases c = cases();

	world_cases_windows(&c, random);
}

static void test_rows_see_nothing_before_their_low(void **state)
{
	(void)state;
	every_isa(run_windows, __func__);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_head_dim_and_dtype_is_within_its_bound),
		cmocka_unit_test(test_every_ratio_of_heads_is_within_its_bound),
		cmocka_unit_test(test_many_query_heads_to_a_kv_head_are_within_their_bound),
		cmocka_unit_test(test_rows_see_nothing_before_their_low),
		cmocka_unit_test(test_head_dims_that_end_in_half_a_pair_are_within_their_bound),
		cmocka_unit_test(
			test_bits_depend_neither_on_company_nor_threads_with_auto_and_none),
		cmocka_unit_test(test_a_row_without_partials_is_zero_with_lse_minus_infinity),
		cmocka_unit_test(test_a_row_that_sees_no_key_of_its_tiles_is_zero_too),
		cmocka_unit_test(test_pieces_lie_at_any_key_of_a_tile_and_row_of_a_page),
		cmocka_unit_test(test_scores_of_minus_infinity_weigh_nothing),
		cmocka_unit_test(test_q_of_what_wants_no_output_is_not_read),
		cmocka_unit_test(test_a_token_that_is_not_finite_harms_only_who_sees_it),
		cmocka_unit_test(test_keys_that_grow_along_the_way_are_within_their_bound),
		cmocka_unit_test(test_two_partials_of_a_row_are_merged),
		cmocka_unit_test(test_exp2_is_within_two_units_and_exact_at_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
