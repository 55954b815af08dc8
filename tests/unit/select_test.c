/*
 * select_test.c - selections as plans: over random trees what the CPU computes from one is
 * attention to the kept tokens alone, and with everything kept it is what `none` computes, bit for
 * bit.
 */
#include "world.h"

#include "kernels/plan/select.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK 64u
#define MAX_WORDS 64u

/* What the queries of a world keep. */
struct choice {
	struct select_query queries[WORLD_QUERIES];
	uint64_t kept[WORLD_QUERIES][MAX_WORDS];
};

static void world_make(struct world *w, bool drafts, struct oracle_random *random)
{
	struct world_want want = {
		.shape = {.n_layers = 2,
			  .n_q_heads = 4,
			  .n_kv_heads = 2,
			  .head_dim = 32,
			  .page_tokens = 16u << oracle_below(random, 3),
			  .dtype = WORK_FP32,
			  .scale = 0.2f},
		.n_threads = 1,
		.n_nodes = 1 + oracle_below(random, 8),
		.n_queries = 1 + oracle_below(random, 6),
		.node_tokens = 400,
		.drafts = drafts,
	};

	world_init(w, &want, random);
}

static struct plan_config config_of(const struct world *w)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_NONE, &w->shape, 4);
	config.segment_tokens = 2 * WORK_TILE_TOKENS;
	return config;
}

static bool is_kept(const struct choice *c, uint32_t query, uint32_t pos, uint32_t block_tokens)
{
	const struct select_query *q = &c->queries[query];
	uint32_t block = pos / block_tokens;

	return !q->kept || block >= q->n_blocks || select_has(q->kept, block);
}

static void choice_make(struct choice *c, const struct world *w, struct oracle_random *random)
{
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		uint32_t n = oracle_below(random, 40), one_in = 1 + oracle_below(random, 4);
		memset(c->kept[i], 0, sizeof(c->kept[i]));
		for (uint32_t j = 0; j < n; j++)
			if (oracle_below(random, one_in) == 0)
				c->kept[i][j / 64] |= UINT64_C(1) << (j % 64);
		c->queries[i] = (struct select_query){.kept = c->kept[i], .n_blocks = n};
	}
}

/* Runs a list over KV that is in its pages by now. */
static void list_run(struct world *w, const struct work_list *list, float *ret_o)
{
	struct backend_io io[WORLD_QUERIES] = {0};
	uint64_t row_bytes = world_row_values(w) * sizeof(float), id = 0, done = 0;
	float *o = world_alloc(w, world_rows(w) * row_bytes);
	struct backend_job job = {
		.shape = &w->shape, .tree = &w->tree, .list = list, .io = io, .layer = 1};
	struct backend_batch batch = {.jobs = &job, .n_jobs = 1};

	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		io[i].q = world_address(w, w->q_raw) + w->first_row[i] * row_bytes;
		io[i].o = world_address(w, o) + w->first_row[i] * row_bytes;
		io[i].q_stride = io[i].o_stride = row_bytes;
	}
	assert_int_equal(w->ops->submit(w->backend, &batch, &id), 0);
	while (done < id)
		assert_int_equal(w->ops->completed(w->backend, &done), 0);
	memcpy(ret_o, o, world_rows(w) * row_bytes);
	world_release(w, o);
}

/* By the book: one head of one row, kept tokens alone. */
static void row_by_the_book(const struct world *w, const struct choice *c, uint32_t query,
			    uint32_t token, uint32_t head, double *ret_o)
{
	const struct work_query *at = &w->queries[query];
	uint32_t dim = w->shape.head_dim, kv_head = head / 2;
	const float *q = w->q + (w->first_row[query] + token) * world_row_values(w) + head * dim;
	double sum = 0;

	memset(ret_o, 0, dim * sizeof(*ret_o));
	for (uint32_t node = at->node; node != WORK_NONE; node = w->nodes[node].parent) {
		uint32_t pos = w->nodes[node].pos;
		for (uint32_t i = 0; i < w->nodes[node].n_slices; i++) {
			const struct work_slice *slice = &w->slices[w->nodes[node].slice + i];
			for (uint32_t j = 0; j < slice->count; j++, pos++) {
				size_t kv = oracle_kv_row(&w->kv, slice->page, slice->first + j) +
					    kv_head * dim;
				double score = 0;
				if (pos > at->pos + token || !is_kept(c, query, pos, BLOCK))
					continue;
				for (uint32_t d = 0; d < dim; d++)
					score += (double)q[d] * w->kv.k[kv + d];
				score = exp(score * w->shape.scale);
				sum += score;
				for (uint32_t d = 0; d < dim; d++)
					ret_o[d] += score * w->kv.v[kv + d];
			}
		}
	}
	for (uint32_t d = 0; d < dim && sum > 0; d++)
		ret_o[d] /= sum;
}

static void check_rows(const struct world *w, const struct choice *c, const float *o)
{
	uint32_t dim = w->shape.head_dim;
	double expected[32];

	for (uint32_t i = 0; i < w->tree.n_queries; i++)
		for (uint32_t token = 0; token < w->queries[i].n_rows; token++)
			for (uint32_t head = 0; head < 4; head++) {
				const float *row = o +
						   (w->first_row[i] + token) * world_row_values(w) +
						   head * dim;
				double off = 0, norm = 0;
				row_by_the_book(w, c, i, token, head, expected);
				for (uint32_t d = 0; d < dim; d++) {
					off += pow(row[d] - expected[d], 2);
					norm += expected[d] * expected[d];
				}
				assert_true(sqrt(off) <= 1e-5 * sqrt(norm));
			}
}

static void test_kept_tokens_alone_are_attended_to(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t run = 0; run < 40; run++) {
		struct choice choice;
		struct world w;
		struct world_answer exact;
		struct work_list list = {0};
		world_make(&w, false, &random);
		struct plan_config config = config_of(&w);
		world_run(&w, &config, 0, w.tree.n_queries, &exact);
		choice_make(&choice, &w, &random);
		assert_int_equal(select_plan(&config, &w.tree, choice.queries, BLOCK, &list), 0);
		float *o = malloc(exact.raw_bytes);
		list_run(&w, &list, o);
		check_rows(&w, &choice, o);
		free(o);
		plan_list_done(&list);
		world_answer_done(&exact);
		world_done(&w);
	}
}

static void test_everything_kept_has_the_bits_of_none(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t run = 0; run < 40; run++) {
		struct choice choice = {0};
		struct world w;
		struct world_answer exact;
		struct work_list list = {0};
		char error[256] = "";
		world_make(&w, true, &random);
		struct plan_config config = config_of(&w);
		world_run(&w, &config, 0, w.tree.n_queries, &exact);
		for (uint32_t i = 0; i < w.tree.n_queries; i += 2) { /* in one way or the other */
			memset(choice.kept[i], 0xff, sizeof(choice.kept[i]));
			choice.queries[i] = (struct select_query){choice.kept[i], 7};
		}
		assert_int_equal(select_plan(&config, &w.tree, choice.queries, 4 * BLOCK, &list),
				 0);
		if (plan_list_check(&w.tree, &list, error, sizeof(error)))
			fail_msg("%s", error);
		float *o = malloc(exact.raw_bytes);
		list_run(&w, &list, o);
		assert_memory_equal(o, exact.raw, exact.raw_bytes);
		free(o);
		plan_list_done(&list);
		world_answer_done(&exact);
		world_done(&w);
	}
}

static void test_what_is_not_kept_is_not_read(void **state)
{
	struct work_node node = {.parent = WORK_NONE, .n_tokens = 1024, .n_slices = 16};
	struct work_query query = {.pos = 1020, .n_rows = 4};
	struct work_slice slices[16];
	struct work_tree tree = {&node, slices, &query, 1, 16, 1};
	struct work_shape shape = {.n_q_heads = 4, .n_kv_heads = 2};
	uint64_t kept = 1 << 0 | 1 << 3;
	struct select_query selection = {&kept, 4};
	struct work_list list = {0};
	struct plan_config config;

	(void)state;
	for (uint16_t i = 0; i < 16; i++)
		slices[i] = (struct work_slice){.page = i, .count = 64};
	plan_config_init(&config, PLAN_NONE, &shape, 1);
	assert_int_equal(select_plan(&config, &tree, &selection, 256, &list), 0);
	assert_int_equal(list.kv_tokens_read, 512);
	assert_int_equal(list.kv_tokens_alone, 1024);
	kept = 0;
	assert_int_equal(select_plan(&config, &tree, &selection, 256, &list), 0);
	assert_int_equal(list.n_items, 0);
	assert_int_equal(list.merge_first[4], 0);
	plan_list_done(&list);
}

static void test_blocks_that_cut_tiles_are_refused(void **state)
{
	struct work_tree tree = {0};
	struct work_shape shape = {.n_q_heads = 4, .n_kv_heads = 2};
	struct work_list list = {0};
	struct plan_config config;

	(void)state;
	plan_config_init(&config, PLAN_NONE, &shape, 1);
	assert_int_equal(select_plan(&config, &tree, NULL, 32, &list), -EINVAL);
	assert_int_equal(select_plan(&config, &tree, NULL, 0, &list), -EINVAL);
	assert_int_equal(select_plan(&config, &tree, NULL, 64, &list), 0);
	config.segment_tokens = 100;
	assert_int_equal(select_plan(&config, &tree, NULL, 64, &list), -EINVAL);
	plan_list_done(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_tokens_alone_are_attended_to),
		cmocka_unit_test(test_everything_kept_has_the_bits_of_none),
		cmocka_unit_test(test_what_is_not_kept_is_not_read),
		cmocka_unit_test(test_blocks_that_cut_tiles_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
