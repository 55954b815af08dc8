/*
 * cuda_test.c - the GPU's attention against float64, over random trees, shapes and policies; and
 * the module's manners.
 *
 * argv[1] is the module; argv[2] "few": the tests that suit a tool which slows kernels down a
 * hundredfold. Without a device the program says so and exits with 77, which CTest counts as
 * skipped.
 */
#include "device_ops.h"
#include "kernels/cuda/module/module.h"
#include "probe.h"
#include "world.h"
#include "world_cases.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
/* The log of a sum of exponentials: scores are sums of products in fp32 of which the tensor cores
 * round some down, and exp2 has 2 units of the last place. */
#define LSE_BOUND 1e-4

/* As attention_test.c: half a unit of the last place is 2^-12 of a value in fp16 and 2^-9 in bf16,
 * of the weights as well as of the output. */
static const double bounds[] = {[WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
static const char *module; /* its path */
static const struct backend_ops *cuda;

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
	plan_config_init(ret, PLAN_AUTO, &w->shape, 66);
	assert_int_equal(plan_policy_parse(plan_ways[which], ret), 0);
	ret->tile_rows = cuda->tile_rows(w->backend, &w->shape);
	/* contexts here are short: cut them all the same */
	ret->segment_tokens = 2 * WORK_TILE_TOKENS;
}

/* All policies on one world: each within the bound, twice with the same bits. */
static void check_policies(struct world *w)
{
	double bound = bounds[w->shape.dtype];

	for (uint32_t i = 0; i < PLAN_N_WAYS; i++) {
		struct plan_config config;
		struct world_answer answer, again;
		double lse, error;

		config_make(w, i, &config);
		world_run(w, &config, 0, w->tree.n_queries, &answer);
		world_run(w, &config, 0, w->tree.n_queries, &again);
		error = world_error(w, 0, w->tree.n_queries, &answer, &lse);
		if (error > bound || lse > LSE_BOUND)
			fail_msg("policy %s, ratio %u, dim %u, page %u, dtype %d: error %g "
				 "(at most %g), LSE %g",
				 plan_ways[i], w->shape.n_q_heads / w->shape.n_kv_heads,
				 w->shape.head_dim, w->shape.page_tokens, (int)w->shape.dtype,
				 error, bound, lse);
		assert_memory_equal(answer.raw, again.raw, answer.raw_bytes);
		world_answer_done(&answer);
		world_answer_done(&again);
	}
}

static void run_world(struct work_shape shape, uint32_t node_tokens, struct oracle_random *random)
{
	struct world_want want = {.shape = shape,
				  .ops = cuda,
				  .n_nodes = 1 + oracle_below(random, 10),
				  .n_queries = 1 + oracle_below(random, 8),
				  .node_tokens = node_tokens,
				  .drafts = true};
	struct world w;

	world_init(&w, &want, random);
	check_policies(&w);
	world_done(&w);
}

/* Told to make all code anew, the driver has none for sm_90a: what is tested then is what other
 * devices compute with. */
static void test_code_that_the_driver_makes_has_no_wide_tiles(void **state)
{
	struct backend_config config = {.pool_bytes = 2 * MIB, .extent_bytes = 2 * MIB};
	void *at = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	cuda_describe describe = NULL;
	struct backend *b = NULL;
	struct cuda_card card;
	char error[256];

	(void)state;
	assert_non_null(at);
	*(void **)&describe = dlsym(at, CUDA_MODULE_DESCRIBE);
	assert_non_null(describe);
	assert_int_equal(cuda->open(&config, &b, error, sizeof(error)), 0);
	describe(b, &card);
	print_message("%s %s wide tiles\n", card.name,
		      card.code == CODE_WGMMA ? "with" : "without");
	assert_false(card.code == CODE_WGMMA && getenv("CUDA_FORCE_PTX_JIT"));
	cuda->close(b);
	dlclose(at);
}

static void test_every_head_dim_and_dtype_is_within_its_bound(void **state)
{
	static const uint32_t dims[] = {64, 96, 128, 192, 256};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		for (int dtype = WORK_FP16; dtype <= WORK_BF16; dtype++) {
			for (uint32_t page = 16; page <= 64; page *= 2)
				run_world(shape_make(4, dims[i], page, dtype), 200, &random);
		}
	}
}

static struct world_cases cases(void)
{
	return (struct world_cases){cuda, bounds, PLAN_N_WAYS, config_make};
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

static void test_every_ratio_of_heads_is_within_its_bound(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t ratio = 1; ratio <= 16; ratio++) {
		run_world(shape_make(ratio, 64, 16u << oracle_below(&random, 3), WORK_FP16), 200,
			  &random);
		run_world(shape_make(ratio, 128, 32, WORK_BF16), 200, &random);
	}
}

static void test_many_query_heads_to_a_kv_head_are_within_their_bound(void **state)
{
	static const uint32_t ratios[] = {20, 24, 32, 64, 71, 128}, dims[] = {64, 96, 128, 192};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 24; i++) {
		struct work_shape shape =
			shape_make(ratios[i % 6], dims[i / 6], 16u << oracle_below(&random, 3),
				   WORK_FP16 + i % 2);

		if (i % 3 == 0) { /* one KV head */
			shape.n_q_heads /= 2;
			shape.n_kv_heads = 1;
		}
		run_world(shape, i % 4 ? 200 : 1500, &random);
	}
}

static void test_rows_see_nothing_before_their_low(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct world_cases c = cases();

	(void)state;
	world_cases_windows(&c, &random);
}

static void test_long_contexts_that_are_cut_are_within_their_bound(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		run_world(shape_make(1 + 3 * i, 128, 64, WORK_FP16 + i % 2), 3000, &random);
	run_world(shape_make(4, 96, 64, WORK_FP16), 3000, &random);
	run_world(shape_make(4, 192, 64, WORK_BF16), 3000, &random);
}

/* One world on either backend, from the same random numbers. Each is within its bound of float64,
 * so that they are within twice that of each other. */
static void check_against_cpu(struct work_shape shape, struct oracle_random *random)
{
	struct world_want want = {.shape = shape,
				  .ops = cuda,
				  .n_nodes = 1 + oracle_below(random, 10),
				  .n_queries = 1 + oracle_below(random, 8),
				  .node_tokens = 300,
				  .drafts = true};
	struct oracle_random same = *random;
	struct world_answer gpu, cpu;
	struct plan_config config;
	struct world w;

	world_init(&w, &want, random);
	config_make(&w, 0, &config);
	world_run(&w, &config, 0, w.tree.n_queries, &gpu);
	world_done(&w);
	want.ops = &backend_cpu;
	want.n_threads = 1;
	world_init(&w, &want, &same);
	plan_config_init(&config, PLAN_AUTO, &shape, 1);
	config.tile_rows = backend_cpu.tile_rows(w.backend, &shape);
	world_run(&w, &config, 0, w.tree.n_queries, &cpu);

	double off = 0, norm = 0;

	for (size_t i = 0; i < world_rows(&w) * world_row_values(&w); i++) {
		off += pow(gpu.o[i] - cpu.o[i], 2);
		norm += pow(cpu.o[i], 2);
	}
	assert_true(sqrt(off) <= 2 * bounds[shape.dtype] * sqrt(norm));
	for (size_t i = 0; i < (size_t)world_rows(&w) * shape.n_q_heads; i++)
		assert_true(gpu.lse[i] == cpu.lse[i] ||
			    fabs(gpu.lse[i] - cpu.lse[i]) <= 2 * LSE_BOUND);
	world_answer_done(&gpu);
	world_answer_done(&cpu);
	world_done(&w);
}

static void test_the_cpus_backend_answers_the_same(void **state)
{
	static const uint32_t dims[] = {64, 96, 128, 192, 256};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		check_against_cpu(shape_make(1 + oracle_below(&random, 16), dims[i % 5],
					     16u << oracle_below(&random, 3),
					     WORK_FP16 + i / 5 % 2),
				  &random);
}

/* A tool that looks at each access takes seconds for what else takes milliseconds: one world of
 * each path. */
static void test_few_worlds_are_within_their_bound(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	run_world(shape_make(4, 128, 32, WORK_FP16), 100, &random);
	run_world(shape_make(16, 64, 16, WORK_BF16), 60, &random);
	run_world(shape_make(1, 256, 64, WORK_FP16), 60, &random);
	run_world(shape_make(8, 128, 32, WORK_BF16), 700, &random);
}

/* ---- lists made by hand --------------------------------------------------------------------- */

static struct backend_io probe_io(struct probe *p)
{
	memset(p->o, 0xff, 512);
	return (struct backend_io){.q = world_address(&p->w, p->q),
				   .o = world_address(&p->w, p->o),
				   .lse = world_address(&p->w, p->lse)};
}

static void assert_row(struct probe *p, uint32_t layer, uint32_t page, uint32_t row, float value)
{
	struct backend_io io = probe_io(p);

	p->piece = (struct work_piece){page, (uint16_t)row, 1, row, row, 0, 1};
	probe_submit(p, &p->list, &io, layer);
	for (uint32_t i = 0; i < 256; i++)
		assert_true((float)p->o[i] == value + (float)(i / 128 * 64 + i % 64));
}

static void test_moves_are_done_in_order_for_all_layers(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_move moves[] = {{0, 3, 1, 17}, {1, 17, 1, 18}, {0, 4, 0, 3}};
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	for (uint32_t layer = 0; layer < 2; layer++) {
		probe_put(&p, layer, 0, 3, 100.0f + (float)layer);
		probe_put(&p, layer, 0, 4, 200.0f + (float)layer);
	}
	assert_int_equal(cuda->move(p.w.backend, &p.w.shape, moves, 3), 0);
	for (uint32_t layer = 0; layer < 2; layer++) {
		assert_row(&p, layer, 1, 17, 100.0f + (float)layer);
		assert_row(&p, layer, 1, 18, 100.0f + (float)layer);
		assert_row(&p, layer, 0, 3, 200.0f + (float)layer);
		assert_row(&p, layer, 0, 4, 200.0f + (float)layer);
	}
	world_done(&p.w);
}

static void assert_nothing_seen(const struct probe *p)
{
	for (uint32_t i = 0; i < 256; i++)
		assert_true(p->o[i] == 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(p->lse[i] == -INFINITY);
}

static void test_a_row_without_partials_is_zero_with_lse_minus_infinity(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct work_list list = {.n_rows = 1};
	struct backend_io io;
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	io = probe_io(&p);
	list.rows = &p.row;
	list.merge_first = p.merge_first;
	p.merge_first[1] = 0;
	probe_submit(&p, &list, &io, 1);
	assert_nothing_seen(&p);
	world_done(&p.w);
}

static void test_a_row_that_sees_no_key_of_its_tiles_is_zero_too(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_io io;
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	io = probe_io(&p);
	p.row.pos = 4;
	p.piece = (struct work_piece){0, 0, 1, 0, 5, 0, 1};
	probe_submit(&p, &p.list, &io, 1);
	assert_nothing_seen(&p);
	world_done(&p.w);
}

/* Warps that share out one slot: those that get none of it have no scores, and 2 to the power of
 * what the other has is more than a float holds. */
static void test_a_row_whose_scores_are_all_very_low_has_its_mean(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	for (uint32_t i = 0; i < 128; i++)
		p.k[i] = (_Float16)4;
	for (uint32_t i = 0; i < 256; i++)
		p.q[i] = (_Float16)-4;
	probe_put(&p, 0, 0, 9, 3);
	assert_row(&p, 0, 0, 9, 3);
	world_done(&p.w);
}

static void assert_reads_zeros(struct probe *p)
{
	struct backend_io io = probe_io(p);

	p->piece = (struct work_piece){0, 0, 1, 0, 0, 0, 1};
	probe_submit(p, &p->list, &io, 0);
	for (uint32_t i = 0; i < 256; i++)
		assert_true(p->o[i] == 0);
}

static void test_a_released_extent_comes_back_zeroed(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	probe_put(&p, 0, 0, 0, 7);
	cuda->extent_release(p.w.backend, 0);
	assert_int_equal(cuda->extent_commit(p.w.backend, 0), 0);
	assert_int_equal(cuda->extent_commit(p.w.backend, 0), -EINVAL);
	assert_reads_zeros(&p);
	world_done(&p.w);
}

struct preparer {
	struct backend *backend;
	int first, again;
};

static void *prepare_first_extent(void *arg)
{
	struct preparer *p = arg;

	p->first = cuda->extent_prepare(p->backend, 0);
	p->again = cuda->extent_prepare(p->backend, 0);
	return NULL;
}

static void test_an_extent_is_prepared_by_another_thread(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct preparer preparer;
	pthread_t thread;
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	probe_put(&p, 0, 0, 0, 7);
	cuda->extent_release(p.w.backend, 0);
	preparer.backend = p.w.backend;
	assert_int_equal(pthread_create(&thread, NULL, prepare_first_extent, &preparer), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(preparer.first, 0);
	assert_int_equal(preparer.again, -EINVAL);
	assert_reads_zeros(&p);
	world_done(&p.w);
}

/* A batch that writes it is under way. */
static void test_an_extent_is_renewed_behind_batches(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct work_slice slot = {0, 0, 1};
	struct work_list nothing = {0};
	struct backend_io in;
	struct backend_job job;
	struct probe p;
	uint64_t id;

	(void)state;
	probe_init(&p, cuda, &random);
	in = (struct backend_io){.k = world_address(&p.w, p.k),
				 .v = world_address(&p.w, p.v),
				 .slots = &slot,
				 .n_slots = 1};
	job = (struct backend_job){.shape = &p.w.shape,
				   .tree = &p.tree,
				   .list = &nothing,
				   .io = &in};
	for (uint32_t i = 0; i < 128; i++)
		p.v[i] = (_Float16)7;
	assert_int_equal(cuda->submit(p.w.backend, &(struct backend_batch){&job, 1}, &id), 0);
	assert_int_equal(cuda->extent_renew(p.w.backend, 0), 0);
	assert_reads_zeros(&p);
	world_done(&p.w);
}

/* An output two bytes past a multiple of 16. */
static void test_rows_may_lie_at_any_address(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_io io;
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	probe_put(&p, 0, 0, 9, 3);
	io = probe_io(&p);
	io.o += 2;
	p.piece = (struct work_piece){0, 9, 1, 9, 9, 0, 1};
	probe_submit(&p, &p.list, &io, 0);
	for (uint32_t i = 0; i < 255; i++)
		assert_true((float)p.o[i + 1] == 3 + (float)(i / 128 * 64 + i % 64));
	world_done(&p.w);
}

static void test_a_plan_is_used_again_under_its_id(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_counters before, after;
	struct probe p;

	(void)state;
	probe_init(&p, cuda, &random);
	probe_put(&p, 0, 0, 3, 40);
	probe_put(&p, 1, 0, 3, 50);
	p.piece = (struct work_piece){0, 3, 1, 3, 3, 0, 1};
	cuda->counters(p.w.backend, &before);
	for (uint32_t i = 0; i < 40; i++) {
		struct backend_io io = probe_io(&p);
		struct backend_job job = {.shape = &p.w.shape,
					  .tree = &p.tree,
					  .list = &p.list,
					  .io = &io,
					  .plan_id = 1 + i / 20,
					  .layer = i % 2};
		struct backend_batch batch = {&job, 1};
		uint64_t id = 0, done = 0;

		assert_int_equal(cuda->submit(p.w.backend, &batch, &id), 0);
		while (done < id)
			assert_int_equal(cuda->completed(p.w.backend, &done), 0);
		assert_true((float)p.o[5] == (i % 2 ? 55 : 45));
	}
	cuda->counters(p.w.backend, &after);
	assert_int_equal(after.batches - before.batches, 40);
	assert_int_equal(after.rows - before.rows, 40);
	assert_true(after.kv_bytes_read > before.kv_bytes_read && after.busy_ns > before.busy_ns);
	world_done(&p.w);
}

static void test_what_cannot_be_computed_is_refused_in_a_sentence(void **state)
{
	struct backend_config config = {.pool_bytes = 4 * MIB, .extent_bytes = 2 * MIB};
	struct work_shape shape = shape_make(1, 64, 32, WORK_FP32);
	char error[256] = "";
	struct backend *b;

	(void)state;
	assert_int_equal(cuda->open(&config, &b, error, sizeof(error)), 0);
	assert_int_equal(cuda->page_bytes(b, &shape, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "fp32"));
	shape.dtype = WORK_FP16;
	shape.head_dim = 80;
	assert_int_equal(cuda->page_bytes(b, &shape, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "head_dim 80"));
	shape.head_dim = 64;
	shape.n_q_heads = 2 * (WORK_HEADS_MAX + 1);
	assert_int_equal(cuda->page_bytes(b, &shape, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "129"));
	cuda->close(b);
	config.pool_bytes = UINT64_C(1) << 50;
	assert_int_equal(cuda->open(&config, &b, error, sizeof(error)), -ENOMEM);
	assert_non_null(strstr(error, "smaller"));
	config.pool_bytes = 4 * MIB;
	config.device = "GPU-00000000-nobody";
	assert_int_equal(cuda->open(&config, &b, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "nvidia-smi"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves_are_done_in_order_for_all_layers),
		cmocka_unit_test(test_a_row_without_partials_is_zero_with_lse_minus_infinity),
		cmocka_unit_test(test_a_row_that_sees_no_key_of_its_tiles_is_zero_too),
		cmocka_unit_test(test_a_row_whose_scores_are_all_very_low_has_its_mean),
		cmocka_unit_test(test_a_released_extent_comes_back_zeroed),
		cmocka_unit_test(test_an_extent_is_prepared_by_another_thread),
		cmocka_unit_test(test_an_extent_is_renewed_behind_batches),
		cmocka_unit_test(test_rows_may_lie_at_any_address),
		cmocka_unit_test(test_a_plan_is_used_again_under_its_id),
		cmocka_unit_test(test_what_cannot_be_computed_is_refused_in_a_sentence),
		cmocka_unit_test(test_code_that_the_driver_makes_has_no_wide_tiles),
		cmocka_unit_test(test_every_head_dim_and_dtype_is_within_its_bound),
		cmocka_unit_test(test_q_of_what_wants_no_output_is_not_read),
		cmocka_unit_test(test_a_token_that_is_not_finite_harms_only_who_sees_it),
		cmocka_unit_test(test_keys_that_grow_along_the_way_are_within_their_bound),
		cmocka_unit_test(test_every_ratio_of_heads_is_within_its_bound),
		cmocka_unit_test(test_many_query_heads_to_a_kv_head_are_within_their_bound),
		cmocka_unit_test(test_rows_see_nothing_before_their_low),
		cmocka_unit_test(test_long_contexts_that_are_cut_are_within_their_bound),
		cmocka_unit_test(test_the_cpus_backend_answers_the_same),
	};
	const struct CMUnitTest few[] = {
		cmocka_unit_test(test_moves_are_done_in_order_for_all_layers),
		cmocka_unit_test(test_a_row_without_partials_is_zero_with_lse_minus_infinity),
		cmocka_unit_test(test_rows_may_lie_at_any_address),
		cmocka_unit_test(test_a_plan_is_used_again_under_its_id),
		cmocka_unit_test(test_few_worlds_are_within_their_bound),
	};
	int r;

	module = argc > 1 ? argv[1] : CUDA_MODULE_NAME;
	r = device_ops(module, &cuda);
	if (r)
		return r;
	return argc > 2 && strcmp(argv[2], "few") == 0 ? cmocka_run_group_tests(few, NULL, NULL)
						       : cmocka_run_group_tests(tests, NULL, NULL);
}
