/*
 * attend_played_test.c - attention's own kernels, run on the CPU (played_attend.cu), by schedules
 * of random trees, against float64: who folds what, who waits for whom, where everything lies.
 * What a GPU's timing brings about is cuda_test's.
 */
#include "proto/arith.h"
#include "proto/cleanup.h"
#include "kernels/cuda/device/row_map.h"
#include "kernels/cuda/device/shape.h"
#include "kernels/cuda/schedule/schedule.h"
#include "kernels/plan/plan.h"
#include "oracle.h"
#include "played_attend.h"
#include "variant_capped.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES_MAX 400u
#define SLICES_MAX 4096u
#define PAGE_TOKENS 32u
#define EXTENT_PAGES 64u
#define CHUNK_VALUES 8u
#define ROWS_COMPARED 12u
#define ROWS_MAX 20u /* of a query */
#define TREE_ROWS 100u /* of all queries: a thread of a GPU takes its time here */
#define HEADS_MAX 24u
#define N_TREES 6u
#define SECONDS_MOST 100u /* of a test that might not end */

/* Sums are of floats as a GPU has them: the error is that of weights and outputs in the dtype, half
 * a step of which is 2^-11 and 2^-8 of a value. */
static const double bounds[] = {[WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};

struct played {
	struct work_shape shape;
	uint32_t qk, v; /* dims of keys and values; shape's is the larger one */
	struct work_tree tree;
	struct work_node nodes[NODES_MAX];
	struct work_slice slices[SLICES_MAX];
	struct work_query queries[NODES_MAX];
	uint32_t lows[NODES_MAX][ROWS_MAX];
	uint32_t n_pages, n_rows;
	struct oracle_kv kv;
	char *pool; /* owned */
	float *q; /* owned, [rows of all queries][n_q_heads][shape's head_dim] */
	char *device_q, *o; /* owned: as the kernels have them, of qk and of v columns */
	float *lse; /* owned, [rows][n_q_heads] */
	struct work_list list;
	struct schedule schedule;
	struct device_row *rows; /* owned */
	void *parts; /* owned */
	bool lacks; /* the work tile of that index, its KV */
	uint32_t lacking;
};

/* How often something was in schedules, since a test began. */
static struct seen {
	uint32_t merges, merges_of_nothing, outputs, wide, shared;
} seen;

/* ---- a tree --------------------------------------------------------------------------------- */

static uint32_t add_node(struct played *p, uint32_t parent, uint32_t n_tokens)
{
	struct work_node *node = &p->nodes[p->tree.n_nodes];
	const struct work_node *above = parent == WORK_NONE ? NULL : &p->nodes[parent];
	uint32_t pos = above ? above->pos + above->n_tokens : 0, end = pos + n_tokens;

	*node = (struct work_node){.parent = parent,
				   .pos = pos,
				   .n_tokens = n_tokens,
				   .slice = p->tree.n_slices};
	while (pos < end) {
		uint32_t row = pos % PAGE_TOKENS, n = min_u32(PAGE_TOKENS - row, end - pos);

		assert_true(p->tree.n_slices < SLICES_MAX);
		p->slices[p->tree.n_slices++] =
			(struct work_slice){p->n_pages++, (uint16_t)row, (uint16_t)n};
		pos += n;
	}
	node->n_slices = p->tree.n_slices - node->slice;
	return p->tree.n_nodes++;
}

static void add_query(struct played *p, uint32_t leaf, uint32_t n_rows)
{
	uint32_t end = p->nodes[leaf].pos + p->nodes[leaf].n_tokens;

	p->queries[p->tree.n_queries++] =
		(struct work_query){.node = leaf, .pos = end - n_rows, .n_rows = n_rows};
	p->n_rows += n_rows;
}

/* A document, which some have more of, and what each has alone. */
static void make_tree(struct played *p, struct oracle_random *random)
{
	static const uint32_t documents[] = {20, 150, 500};
	uint32_t document = documents[oracle_below(random, 3)] + oracle_below(random, 60);
	uint32_t n = 1 + oracle_below(random, oracle_below(random, 2) ? 40 : 8);
	uint32_t most = min_u32(ROWS_MAX, TREE_ROWS / n);
	uint32_t n_rows = oracle_below(random, 3) ? 1 : 1 + oracle_below(random, most);
	uint32_t root = add_node(p, WORK_NONE, document);
	uint32_t more = add_node(p, root, 1 + oracle_below(random, 100));

	for (uint32_t i = 0; i < n; i++) {
		uint32_t parent = oracle_below(random, 3) ? root : more;

		add_query(p, add_node(p, parent, n_rows + oracle_below(random, 60)), n_rows);
	}
}

/* A document that many blocks share: what they have of a row is merged. */
static void make_long_tree(struct played *p, struct oracle_random *random)
{
	uint32_t root = add_node(p, WORK_NONE, 1000 + oracle_below(random, 600));

	for (uint32_t i = 0; i < 3; i++)
		add_query(p, add_node(p, root, 1 + oracle_below(random, 60)), 1);
}

static struct work_shape shape_of(uint32_t n_q, uint32_t n_kv, enum work_dtype dtype, uint32_t dim)
{
	return (struct work_shape){.n_layers = 1,
				   .n_q_heads = n_q,
				   .n_kv_heads = n_kv,
				   .head_dim = dim,
				   .page_tokens = PAGE_TOKENS,
				   .dtype = dtype,
				   .scale = 1 / sqrtf((float)dim)};
}

static struct work_shape draw_shape(struct oracle_random *random)
{
	static const uint32_t heads[][2] = {{8, 2}, {4, 4}, {16, 1}, {14, 2}, {24, 1}, {8, 1}};
	static const uint32_t dims[] = {64, 96, 96, 128, 192, 256};
	const uint32_t *of = heads[oracle_below(random, 6)];

	return shape_of(of[0], of[1], oracle_below(random, 3) ? WORK_FP16 : WORK_BF16,
			dims[oracle_below(random, 6)]);
}

/* ---- values --------------------------------------------------------------------------------- */

/* A head of dim values as the dtype has them, and as floats, which are 0 behind them. */
static void draw(const struct played *p, struct oracle_random *random, float *to, void *encoded,
		 uint32_t dim)
{
	for (uint32_t i = 0; i < p->shape.head_dim; i++)
		to[i] = i < dim ? oracle_normal(random) : 0;
	oracle_encode(p->shape.dtype, encoded, to, dim);
	oracle_decode(p->shape.dtype, to, encoded, dim);
}

/* K or V of a token's KV head to where its chunks lie. */
static void put_head(uint32_t dim, char *kv_block, uint32_t row, const char *values)
{
	for (uint32_t c = 0; c < dim / CHUNK_VALUES; c++)
		memcpy(kv_block + kv_chunk_offset(dim, row, c), values + c * KV_CHUNK_BYTES,
		       KV_CHUNK_BYTES);
}

/* As the pool and schedules see it: KV blocks of two dims are as long as those of their mean. */
static struct work_shape shape_in_pool(const struct played *p)
{
	struct work_shape shape = p->shape;

	shape.head_dim = (p->qk + p->v) / 2;
	return shape;
}

static void put_token(struct played *p, struct oracle_random *random, uint32_t page, uint32_t row)
{
	struct work_shape in_pool = shape_in_pool(p);
	char values[KV_HEAD_DIM_MOST * KV_VALUE_BYTES];

	for (uint32_t h = 0; h < p->shape.n_kv_heads; h++) {
		size_t at = oracle_kv_row(&p->kv, page, row) + (size_t)h * p->shape.head_dim;
		char *to = p->pool +
			   ((uint64_t)page * p->shape.n_kv_heads + h) * kv_head_bytes(&in_pool) +
			   row / KV_BLOCK_TOKENS * kv_block_bytes(p->qk, p->v);

		draw(p, random, p->kv.k + at, values, p->qk);
		put_head(p->qk, to, row % KV_BLOCK_TOKENS, values);
		draw(p, random, p->kv.v + at, values, p->v);
		put_head(p->v, to + kv_part_bytes(p->qk), row % KV_BLOCK_TOKENS, values);
	}
}

static void *aligned(size_t bytes)
{
	void *at = aligned_alloc(1024, (bytes + 1024) / 1024 * 1024);

	assert_non_null(at);
	return memset(at, 0, (bytes + 1024) / 1024 * 1024);
}

static void make_values(struct played *p, struct oracle_random *random)
{
	struct work_shape in_pool = shape_in_pool(p);
	uint32_t heads = p->n_rows * p->shape.n_q_heads;

	p->pool = aligned((uint64_t)p->n_pages * p->shape.n_kv_heads * kv_head_bytes(&in_pool));
	assert_int_equal(oracle_kv_init(&p->kv, &p->shape, p->n_pages), 0);
	for (uint32_t i = 0; i < p->tree.n_slices; i++)
		for (uint32_t j = 0; j < p->slices[i].count; j++)
			put_token(p, random, p->slices[i].page, p->slices[i].first + j);
	p->q = calloc((size_t)heads * p->shape.head_dim, sizeof(*p->q));
	p->device_q = aligned((size_t)heads * p->qk * KV_VALUE_BYTES);
	p->o = aligned((size_t)heads * p->v * KV_VALUE_BYTES);
	p->lse = calloc(heads, sizeof(*p->lse));
	assert_true(p->q && p->lse);
	for (size_t i = 0; i < heads; i++)
		draw(p, random, p->q + i * p->shape.head_dim,
		     p->device_q + i * p->qk * KV_VALUE_BYTES, p->qk);
}

/* ---- a launch ------------------------------------------------------------------------------- */

static void make_schedule(struct played *p, uint32_t n_blocks)
{
	struct work_shape in_pool = shape_in_pool(p);
	uint64_t page_sources = p->shape.n_kv_heads * kv_head_bytes(&in_pool) / KV_SOURCE_BYTES;
	struct plan_config config;
	struct schedule_want want = {.shape = &in_pool,
				     .list = &p->list,
				     .pages = {EXTENT_PAGES, page_sources,
					       EXTENT_PAGES * page_sources},
				     .costs = costs_find(CODE_WGMMA),
				     .n_blocks = n_blocks,
				     .code = CODE_WGMMA};

	plan_config_init(&config, PLAN_AUTO, &in_pool, n_blocks);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &p->tree, &p->list), 0);
	assert_int_equal(schedule_make(&p->schedule, &want), 0);
}

/* Queries' rows come one after the other. */
static uint32_t first_row(const struct played *p, uint32_t query)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < query; i++)
		n += p->queries[i].n_rows;
	return n;
}

static void make_rows(struct played *p)
{
	struct row_map map = row_map_of(&p->shape);

	p->rows = calloc(p->list.n_rows * map.n, sizeof(*p->rows));
	assert_non_null(p->rows);
	for (uint32_t i = 0; i < p->list.n_rows * map.n; i++) {
		const struct work_row *row = &p->list.rows[i / map.n];
		uint64_t head =
			(first_row(p, row->query) + row->token) * (uint64_t)p->shape.n_q_heads +
			i % map.n * map.heads;

		p->rows[i] =
			(struct device_row){.q = (uintptr_t)p->device_q +
						 head * p->qk * KV_VALUE_BYTES,
					    .o = (uintptr_t)p->o + head * p->v * KV_VALUE_BYTES,
					    .lse = (uintptr_t)(p->lse + head),
					    .pos = row->pos,
					    .low = row->low};
	}
}

static struct device_attend attend_of(struct played *p, uint32_t n_blocks, uint32_t *ticket)
{
	struct schedule *s = &p->schedule;
	struct work_shape in_pool = shape_in_pool(p);
	size_t entries = (size_t)s->n_parts * p->shape.n_kv_heads * row_map_of(&p->shape).heads;
	struct device_attend a = {
		.shape = shape_on_device(&in_pool),
		.work_tiles = s->arrays[SCHEDULE_WORK_TILES].at,
		.kv_tiles = s->arrays[SCHEDULE_KV_TILES].at,
		.firsts = s->arrays[SCHEDULE_FIRSTS].at,
		.sources = s->arrays[SCHEDULE_SOURCES].at,
		.dests = s->arrays[SCHEDULE_DESTS].at,
		.merges = s->arrays[SCHEDULE_MERGES].at,
		.rows = p->rows,
		.pool = p->pool,
		.ticket = ticket,
		.n_work_tiles = s->n[SCHEDULE_WORK_TILES],
		.n_kv_tiles = s->n[SCHEDULE_KV_TILES],
		.n_dests = s->n[SCHEDULE_DESTS],
		.n_merges = s->n[SCHEDULE_MERGES],
		.n_rows = p->list.n_rows * row_map_of(&p->shape).n,
		.n_blocks = n_blocks,
		.bounded = p->list.bounded,
	};

	p->parts = aligned(entries * (p->v + 2) * sizeof(float));
	a.part_o = p->parts;
	a.part_stats = a.part_o + entries * p->v;
	return a;
}

static struct device_work_tile *lacking_of(const struct played *p)
{
	struct device_work_tile *work_tiles = p->schedule.arrays[SCHEDULE_WORK_TILES].at;

	return &work_tiles[p->lacking % p->schedule.n[SCHEDULE_WORK_TILES]];
}

static void launch(const struct played *p, const struct device_attend *a)
{
	const struct device_kernel kernel = {p->qk, p->shape.dtype == WORK_BF16, a->bounded};

	if (p->qk != p->v) {
		assert_int_equal(played_two_dims(a, p->qk), 0);
		return;
	}
	assert_int_equal(device_attend_init(&kernel), 0);
	assert_int_equal(device_attend(a, (struct launch_to){0}), 0);
	assert_int_equal(device_merge(a, (struct launch_to){0}), 0);
}

static void look_at(const struct schedule *s)
{
	const struct device_merge *merges = s->arrays[SCHEDULE_MERGES].at;
	const struct device_kv_tile *kv_tiles = s->arrays[SCHEDULE_KV_TILES].at;
	const struct device_work_tile *work_tiles = s->arrays[SCHEDULE_WORK_TILES].at;
	const uint32_t *dests = s->arrays[SCHEDULE_DESTS].at;

	for (uint32_t i = 0; i < s->n[SCHEDULE_MERGES]; i++)
		*(merges[i].n_parts ? &seen.merges : &seen.merges_of_nothing) += 1;
	for (uint32_t i = 0; i < s->n[SCHEDULE_DESTS]; i++)
		seen.outputs += dests[i] == DEVICE_NONE;
	for (uint32_t i = 0; i < s->n[SCHEDULE_KV_TILES]; i++)
		seen.wide += kv_tiles[i].run > 1;
	for (uint32_t i = 0; i < s->n[SCHEDULE_WORK_TILES]; i++)
		seen.shared += work_tiles[i].n_shared > 0;
}

static void run(struct played *p, uint32_t n_blocks)
{
	uint32_t ticket[2] = {0};
	struct device_attend a;

	make_schedule(p, n_blocks);
	look_at(&p->schedule);
	make_rows(p);
	a = attend_of(p, n_blocks, ticket);
	if (p->lacks)
		lacking_of(p)->n_kv_tiles = lacking_of(p)->n_shared = 0;
	launch(p, &a);
	assert_int_equal(ticket[0] | ticket[1], 0);
}

/* ---- what came of it ------------------------------------------------------------------------ */

static void expect_row(const struct played *p, uint32_t query, uint32_t token)
{
	uint32_t dim = p->shape.head_dim, n_heads = p->shape.n_q_heads;
	uint32_t first = (first_row(p, query) + token) * n_heads;
	CLEANUP_FREE double *o = calloc(n_heads * dim, sizeof(*o));
	double lse[HEADS_MAX], off = 0, all = 0;
	float got[KV_HEAD_DIM_MOST];

	assert_non_null(o);
	oracle_row(&p->kv, &p->tree, query, token, p->q + (size_t)first * dim, o, lse);
	for (uint32_t h = 0; h < n_heads; h++) {
		oracle_decode(p->shape.dtype, got,
			      p->o + (size_t)(first + h) * p->v * KV_VALUE_BYTES, p->v);
		for (uint32_t d = 0; d < p->v; d++) {
			off += (got[d] - o[h * dim + d]) * (got[d] - o[h * dim + d]);
			all += o[h * dim + d] * o[h * dim + d];
		}
		assert_true(fabs(p->lse[first + h] - lse[h]) < bounds[p->shape.dtype]);
	}
	assert_true(sqrt(off) <= 2 * bounds[p->shape.dtype] * sqrt(all));
}

static void played_done(struct played *p)
{
	schedule_done(&p->schedule);
	plan_list_done(&p->list);
	oracle_kv_done(&p->kv);
	free(p->pool);
	free(p->q);
	free(p->device_q);
	free(p->o);
	free(p->lse);
	free(p->rows);
	free(p->parts);
	free(p);
}

static struct played *played_new(struct work_shape shape)
{
	struct played *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->shape = shape;
	p->qk = p->v = shape.head_dim;
	p->tree = (struct work_tree){.nodes = p->nodes, .slices = p->slices, .queries = p->queries};
	return p;
}

/* Has the query rows in the work tile that lacks its KV? */
static bool misses_some(const struct played *p, uint32_t query)
{
	uint32_t n = row_map_of(&p->shape).n;

	if (!p->lacks)
		return false;
	const struct device_work_tile *lacking = lacking_of(p);

	for (uint32_t i = 0; i < lacking->n_rows; i++)
		if (p->list.rows[(lacking->row + i) / n].query == query)
			return true;
	return false;
}

/* Rows that see nothing before a position have its kernels (played_attend.cu). */
static void expect_variant(struct played *p)
{
	static double sinks[HEADS_MAX];

	for (uint32_t h = 0; h < HEADS_MAX; h++)
		sinks[h] = CAPPED_SINK(h);
	p->kv.cap = CAPPED_AT;
	p->kv.sinks = sinks;
}

/* Some rows of a tree that has been made. */
static void expect_right(struct played *p, struct oracle_random *random, uint32_t n_blocks)
{
	make_values(p, random);
	run(p, n_blocks);
	if (p->list.bounded)
		expect_variant(p);
	for (uint32_t k = 0; k < ROWS_COMPARED; k++) {
		uint32_t query = oracle_below(random, p->tree.n_queries);

		if (!misses_some(p, query))
			expect_row(p, query, oracle_below(random, p->queries[query].n_rows));
	}
}

/* Rows that see nothing before a position, anywhere in their paths, or nothing at all. */
static void bound_rows(struct played *p, struct oracle_random *random)
{
	for (uint32_t i = 0; i < p->tree.n_queries; i++) {
		struct work_query *query = &p->queries[i];

		for (uint32_t j = 0; j < query->n_rows; j++) {
			uint32_t end = query->pos + j + 1;
			bool sees = end > 1 && oracle_below(random, 5) != 0;

			p->lows[i][j] = sees ? 1 + oracle_below(random, end - 1) : end;
		}
		query->lows = p->lows[i];
	}
}

static void test_kernels_are_right_on_the_cpu(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < N_TREES; i++) {
		struct played *p = played_new(draw_shape(&random));

		make_tree(p, &random);
		expect_right(p, &random, 1 + oracle_below(&random, 12));
		played_done(p);
	}
}

static void test_a_variant_is_right_on_the_cpu(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	seen = (struct seen){0};
	for (uint32_t i = 0; i < 2 * N_TREES; i++) {
		struct played *p = played_new(draw_shape(&random));

		if (i % 2)
			make_tree(p, &random);
		else
			make_long_tree(p, &random);
		bound_rows(p, &random);
		expect_right(p, &random, 1 + oracle_below(&random, i % 2 ? 12 : 40));
		assert_true(p->list.bounded);
		played_done(p);
	}
	assert_true(seen.merges && seen.merges_of_nothing && seen.outputs);
}

static void test_keys_and_values_may_be_of_different_dims(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < N_TREES; i++) {
		struct work_shape shape = draw_shape(&random);

		shape.dtype = WORK_FP16;
		shape.head_dim = i % 2 ? 128 : 192;
		struct played *p = played_new(shape);

		p->v = i % 2 ? 64 : 128;
		make_tree(p, &random);
		expect_right(p, &random, 1 + oracle_below(&random, 12));
		played_done(p);
	}
}

#define RING_MOST 20u /* KV tiles that a block has room for (traits.cuh) */

static void go_round(uint32_t qk, uint32_t v, struct oracle_random *random)
{
	struct played *p = played_new(shape_of(8, 1, WORK_FP16, qk));
	uint32_t root = add_node(p, WORK_NONE, 1500);

	for (uint32_t i = 0; i < 16; i++)
		add_query(p, add_node(p, root, 20 + i), 1);
	p->v = v;
	expect_right(p, random, 1);
	assert_true(p->schedule.n[SCHEDULE_KV_TILES] > 3 * RING_MOST && seen.wide);
	played_done(p);
}

/* Of one block: its ring is gone round by runs of wide tiles and by KV tiles between them. */
static void test_the_ring_goes_round(void **state)
{
	static const uint32_t dims[][2] = {{64, 64}, {96, 96}, {128, 128}, {128, 64}};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		seen = (struct seen){0};
		go_round(dims[i][0], dims[i][1], &random);
	}
}

/* Lengths that leave few KV blocks beside wide tiles, which a prompt's strips have in common. */
static void test_work_tiles_share_wide_tiles(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 6; i++, seen.shared = 0) {
		struct played *p = played_new(shape_of(16, 1, WORK_FP16 + i % 2, 64 + i / 2 * 32));
		uint32_t root = add_node(p, WORK_NONE, 64 * (10 + oracle_below(&random, 5)));

		for (uint32_t q = 0; q <= i; q++)
			add_query(p, add_node(p, root, 32 * (1 + oracle_below(&random, 6))), 16);
		expect_right(p, &random, 1 + oracle_below(&random, 2));
		assert_true(seen.shared);
		played_done(p);
	}
}

/* A KV head of sparse prefill may keep nothing of a work tile. The next ticket is drawn all the
 * same, whenever blocks draw: early, late, or none as there are as many blocks. */
static void test_a_work_tile_without_kv_is_passed(void **state)
{
	static const uint32_t n_blocks[] = {1, 2, 3, 24};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	alarm(SECONDS_MOST);
	for (uint32_t i = 0; i < 4 * N_TREES; i++) {
		struct played *p = played_new(draw_shape(&random));

		p->lacks = true;
		p->lacking = i < 4 ? 0 : oracle_below(&random, 1000);
		make_tree(p, &random);
		expect_right(p, &random, n_blocks[i % 4]);
		played_done(p);
	}
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_are_right_on_the_cpu),
		cmocka_unit_test(test_a_variant_is_right_on_the_cpu),
		cmocka_unit_test(test_keys_and_values_may_be_of_different_dims),
		cmocka_unit_test(test_the_ring_goes_round),
		cmocka_unit_test(test_work_tiles_share_wide_tiles),
		cmocka_unit_test(test_a_work_tile_without_kv_is_passed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
