/*
 * variant_test.c - a variant of attention against float64: capped scores and a sink
 * (variant_capped.h), on the CPU; argv[1]: on the GPU, by a module whose kernels for rows with a
 * first position have both.
 *
 * On the CPU a variant is a table of vec.h whose softmax changes scores first, and a sink is merged
 * with what attention gives back, as a part of no values (merge.h).
 */
#include "device_ops.h"
#include "kernels/cpu/vec.h"
#include "kernels/merge.h"
#include "variant_capped.h"
#include "world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLDS 4u
#define DIM 128u
/* As cuda_test.c. Caps make scores no larger, and slopes no steeper. */
#define BOUND 5e-4
#define LSE_BOUND 1e-4

static const struct backend_ops *ops; /* NULL: the CPU's */

static void softmax_capped(const struct vec_softmax *a)
{
	for (uint32_t i = 0; i < a->n_rows * WORK_TILE_TOKENS; i++)
		a->s[i] = CAPPED_AT_LOG2 * tanhf(a->s[i] / CAPPED_AT_LOG2);
	vec_generic.softmax(a);
}

/* In the place of vec.c's: the CPU's backend of this program computes by this table. */
const struct vec *vec_select(const char *forced)
{
	static struct vec capped;

	(void)forced;
	capped = vec_generic;
	capped.softmax = softmax_capped;
	return &capped;
}

static bool is_bounded(const struct world *w)
{
	for (uint32_t q = 0; q < w->tree.n_queries; q++) {
		for (uint32_t i = 0; w->queries[q].lows && i < w->queries[q].n_rows; i++) {
			if (w->queries[q].lows[i] > 0)
				return true;
		}
	}
	return false;
}

/* Some row sees nothing before a position; KV that many rows see, and some that few do. A token's
 * heads of a KV head are one row of the GPU's, or three (row_map.h). */
static void make_world(struct world *w, struct oracle_random *random)
{
	static double sinks[48];
	struct world_want want = {.shape = {.n_layers = 2,
					    .n_q_heads = oracle_below(random, 2) ? 32 : 48,
					    .n_kv_heads = 2,
					    .head_dim = DIM,
					    .page_tokens = 32,
					    .dtype = WORK_FP16,
					    .scale = 0.125f},
				  .ops = ops,
				  .n_threads = 1,
				  .n_nodes = 1 + oracle_below(random, 4),
				  .n_queries = 2 + oracle_below(random, 4),
				  .node_tokens = 300,
				  .windows = true};

	world_init(w, &want, random);
	while (!is_bounded(w)) {
		world_done(w);
		world_init(w, &want, random);
	}
	for (uint32_t h = 0; h < 48; h++)
		sinks[h] = CAPPED_SINK(h);
	w->kv.cap = CAPPED_AT;
	w->kv.sinks = sinks;
}

/* What a backend does whose variants have none. */
static void merge_sinks(const struct world *w, struct world_answer *answer)
{
	static const float nothing[DIM];

	for (size_t i = 0; i < (size_t)world_rows(w) * w->shape.n_q_heads; i++) {
		const struct merge_state sink =
			merge_of_lse((float)w->kv.sinks[i % w->shape.n_q_heads]);
		struct merge_state all = merge_of_lse(answer->lse[i]);
		float *o = answer->o + i * DIM;

		merge_fold(&all, o, &sink, nothing, DIM);
		answer->lse[i] = merge_lse(&all);
		for (uint32_t d = 0; d < DIM; d++)
			o[d] *= merge_scale(&all);
	}
}

static void run(struct world *w, struct world_answer *ret)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &w->shape, 66);
	config.tile_rows = ops ? ops->tile_rows(w->backend, &w->shape)
			       : backend_cpu.tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, ret);
	if (!ops)
		merge_sinks(w, ret);
}

static void test_a_variant_is_within_its_bounds(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < WORLDS; i++) {
		struct world_answer answer;
		struct world w;
		double lse;

		make_world(&w, &random);
		run(&w, &answer);
		assert_true(world_error(&w, 0, w.tree.n_queries, &answer, &lse) <= BOUND);
		assert_true(lse <= LSE_BOUND);
		world_answer_done(&answer);
		world_done(&w);
	}
}

/* Scores here are above the cap, and sinks are not small: who leaves one of them out is far off. */
static void test_what_is_left_out_is_seen_to_be_wrong(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct world_answer answer;
	struct world w;
	double lse;

	(void)state;
	make_world(&w, &random);
	run(&w, &answer);
	w.kv.cap = 0;
	assert_true(world_error(&w, 0, w.tree.n_queries, &answer, &lse) > 10 * BOUND);
	memset(w.truth.known, 0, w.tree.n_queries * sizeof(*w.truth.known));
	w.kv.cap = CAPPED_AT;
	w.kv.sinks = NULL;
	world_error(&w, 0, w.tree.n_queries, &answer, &lse);
	assert_true(lse > 10 * LSE_BOUND);
	world_answer_done(&answer);
	world_done(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_variant_is_within_its_bounds),
		cmocka_unit_test(test_what_is_left_out_is_seen_to_be_wrong),
	};
	int r = argc > 1 ? device_ops(argv[1], &ops) : 0;

	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
