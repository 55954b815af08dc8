/*
 * schedule_test.c - what the GPU is given to run, looked at without one: every row of a schedule
 * sees each token of its path once and no other, also after tokens have been taken into it.
 *
 * The schedule is read as the kernels read it: work tiles, their KV tiles in order, KV blocks by
 * mask.
 */
#include "kernels/cuda/device/row_map.h"
#include "kernels/cuda/schedule/schedule.h"
#include "kernels/plan/cut.h"
#include "kernels/plan/plan.h"
#include "oracle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EXTENT_PAGES 64u
#define PAGES_MAX 8192u
#define ROWS_MAX 150u
#define NODES_MAX 64u
#define QUERIES_MAX 48u
#define N_BLOCKS 132u
#define TOKENS_MAX 64u /* that a schedule takes in */

static bool lone_paths; /* queries have long paths of their own */
static bool windows; /* rows see nothing before some position */

/* A tree whose page p holds the tokens of one node; queries stand at leaves of their own. */
struct tree {
	struct work_shape shape;
	struct work_node nodes[NODES_MAX + QUERIES_MAX];
	struct work_slice slices[PAGES_MAX];
	struct work_query queries[QUERIES_MAX];
	uint32_t parents[QUERIES_MAX][ROWS_MAX]; /* of draft trees */
	uint32_t lows[QUERIES_MAX][ROWS_MAX];
	struct work_tree tree;
	uint32_t n_pages;
};

/* From a KV block to the next, in sources. */
static uint32_t kv_block_step(const struct work_shape *shape)
{
	return kv_block_sources(shape);
}

static struct pool_pages pages_of(const struct work_shape *shape)
{
	uint64_t sources = shape->page_tokens / KV_BLOCK_TOKENS * kv_block_step(shape);

	return (struct pool_pages){.per_extent = EXTENT_PAGES,
				   .page_sources = sources,
				   .extent_sources = EXTENT_PAGES * sources};
}

static uint32_t source_of(const struct work_shape *shape, uint32_t page, uint32_t row)
{
	struct pool_pages p = pages_of(shape);

	return (uint32_t)(page / p.per_extent * p.extent_sources +
			  page % p.per_extent * p.page_sources) +
	       row / KV_BLOCK_TOKENS * kv_block_step(shape);
}

static uint32_t add_node(struct tree *t, uint32_t parent, uint32_t n_tokens)
{
	const struct work_node *above = parent == WORK_NONE ? NULL : &t->nodes[parent];
	struct work_node *node = &t->nodes[t->tree.n_nodes];
	uint32_t pos = above ? above->pos + above->n_tokens : 0, end = pos + n_tokens;

	*node = (struct work_node){.parent = parent,
				   .pos = pos,
				   .n_tokens = n_tokens,
				   .slice = t->tree.n_slices};
	while (pos < end) {
		uint32_t row = pos % t->shape.page_tokens, n = t->shape.page_tokens - row;

		n = n < end - pos ? n : end - pos;
		t->slices[t->tree.n_slices++] =
			(struct work_slice){t->n_pages++, (uint16_t)row, (uint16_t)n};
		pos += n;
	}
	node->n_slices = t->tree.n_slices - node->slice;
	return t->tree.n_nodes++;
}

/* The last n_rows tokens of the leaf; every other time a draft tree. */
static void add_query(struct tree *t, struct oracle_random *random, uint32_t leaf, uint32_t n_rows)
{
	uint32_t i = t->tree.n_queries++, end = t->nodes[leaf].pos + t->nodes[leaf].n_tokens;

	t->queries[i] = (struct work_query){.node = leaf, .pos = end - n_rows, .n_rows = n_rows};
	for (uint32_t j = 0; j < n_rows; j++)
		t->lows[i][j] = oracle_below(random, end - n_rows + j + 2);
	if (windows && oracle_below(random, 4))
		t->queries[i].lows = t->lows[i];
	if (n_rows == 1 || oracle_below(random, 2))
		return;
	for (uint32_t j = 0; j < n_rows; j++)
		t->parents[i][j] = j == 0 || oracle_below(random, 9) == 0 ? WORK_NONE
									  : oracle_below(random, j);
	t->queries[i].parents = t->parents[i];
	if (oracle_below(random, 2))
		t->queries[i].n_before = oracle_below(random, n_rows);
	t->queries[i].n_rows -= t->queries[i].n_before;
	t->queries[i].pos += t->queries[i].n_before;
}

/* Queries of at most so many rows. */
static void tree_init(struct tree *t, struct oracle_random *random, uint32_t rows_max)
{
	uint32_t n_inner = 1 + oracle_below(random, 12), n = 1 + oracle_below(random, QUERIES_MAX);
	static const uint32_t dims[] = {64, 96, 128, 192, 256}, many[] = {20, 24, 32, 64, 71, 128};
	uint32_t kv_heads = 1u << oracle_below(random, 3), heads = 1 + oracle_below(random, 16);

	if (oracle_below(random, 3) == 0)
		heads = many[oracle_below(random, 6)];

	memset(t, 0, sizeof(*t));
	t->shape = (struct work_shape){1,
				       kv_heads * heads,
				       kv_heads,
				       dims[oracle_below(random, 5)],
				       16u << oracle_below(random, 3),
				       WORK_FP16,
				       1};
	t->tree.nodes = t->nodes;
	t->tree.slices = t->slices;
	t->tree.queries = t->queries;
	for (uint32_t i = 0; i < n_inner; i++)
		add_node(t, i ? oracle_below(random, i) : WORK_NONE,
			 1 + oracle_below(random, i ? 100 : 900));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t n_rows = 1 + oracle_below(random, rows_max);

		add_query(t, random,
			  add_node(t, oracle_below(random, n_inner),
				   n_rows + (lone_paths ? 1000 : oracle_below(random, 60))),
			  n_rows);
	}
}

/* ---- reading a schedule --------------------------------------------------------------------- */

/* How often a row sees each KV block's token, by KV block and row in the KV block. */
struct sight {
	uint8_t *times; /* owned, [KV blocks][8] */
	uint32_t n_kv_blocks;
	uint32_t step; /* from a KV block's source to the next */
	/* whose pages are looked at: page p is device p % n_devices's page p / n_devices */
	uint32_t device, n_devices;
};

static const void *array_of(const struct schedule *p, enum schedule_array array)
{
	return p->arrays[array].at;
}

static uint32_t block_of_token(const struct device_work_tile *work_tile, uint32_t token)
{
	return work_tile->flags & DEVICE_WORK_TILE_DEALT
		       ? token & ((1u << work_tile->blocks_log2) - 1)
		       : token / work_tile->block_tokens;
}

/* Where a warp does not look at the mask, its rows see all of the KV block. */
static void expect_plain(const struct device_kv_tile *s, const struct device_work_tile *work_tile,
			 uint32_t token, const struct work_row *row,
			 const struct device_kv_block *g)
{
	uint32_t block = block_of_token(work_tile, token),
		 mask = (1u << work_tile->blocks_log2) - 1;

	for (uint32_t w = 0; w < DEVICE_WARPS; w++) {
		if (!((s->plain | s->plain_wide) >> w & 1) || (w & mask) != block)
			continue;
		assert_true(token >= g->row_begin && token < g->row_end);
		assert_true(g->first == 0 && g->end == KV_BLOCK_TOKENS);
		assert_true(!s->causal ||
			    (int64_t)row->pos >= (int64_t)g->pos + KV_BLOCK_TOKENS - 1);
		assert_true((int64_t)row->low <= g->pos);
	}
}

static void see_kv_tile(const struct schedule *p, const struct device_work_tile *work_tile,
			uint32_t kv_tile, uint32_t token, const struct work_row *row,
			struct sight *sight)
{
	const struct device_kv_tile *s =
		(const struct device_kv_tile *)array_of(p, SCHEDULE_KV_TILES) + kv_tile;
	const struct device_source *from =
		(const struct device_source *)array_of(p, SCHEDULE_SOURCES) + kv_tile;
	uint32_t block = block_of_token(work_tile, token), mine = 0;

	for (uint32_t w = 0; w < DEVICE_WARPS; w++)
		mine += s->warps >> w & 1 && (w & ((1u << work_tile->blocks_log2) - 1)) == block;
	assert_true(!s->wide || !s->causal);
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
		const struct device_kv_block *g = &s->kv_blocks[j];
		int64_t first = g->first, end = g->end;

		if (s->wide && from->kv_blocks[j] != DEVICE_NONE)
			assert_true(g->first == 0 && g->end == KV_BLOCK_TOKENS);
		expect_plain(s, work_tile, token, row, g);
		if (token < g->row_begin || token >= g->row_end)
			continue;
		if (s->causal && (int64_t)row->pos - g->pos + 1 < end)
			end = (int64_t)row->pos - g->pos + 1;
		if (s->causal && (int64_t)row->low - g->pos > first)
			first = (int64_t)row->low - g->pos;
		assert_true(s->partial || (first == 0 && end == KV_BLOCK_TOKENS));
		for (int64_t i = first; i < end; i++) {
			assert_int_not_equal(from->kv_blocks[j], DEVICE_NONE);
			sight->times[from->kv_blocks[j] / sight->step * 8 + i] += (uint8_t)mine;
		}
	}
}

/* row: of the schedule. */
static void see_row(const struct schedule *p, uint32_t row, const struct work_row *as,
		    struct sight *sight)
{
	const struct device_work_tile *work_tiles = array_of(p, SCHEDULE_WORK_TILES);
	const struct device_source *firsts = array_of(p, SCHEDULE_FIRSTS);
	const struct device_source *sources = array_of(p, SCHEDULE_SOURCES);

	memset(sight->times, 0, sight->n_kv_blocks * 8);
	for (uint32_t u = 0; u < p->n[SCHEDULE_WORK_TILES]; u++) {
		const struct device_work_tile *work_tile = &work_tiles[u];

		for (uint32_t i = 0; i < work_tile->n_kv_tiles && i < DEVICE_FIRST_KV_TILES; i++)
			assert_memory_equal(&firsts[u * DEVICE_FIRST_KV_TILES + i],
					    &sources[device_kv_tile_at(work_tile, i)],
					    sizeof(*sources));
		if (row < work_tile->row || row >= work_tile->row + work_tile->n_rows)
			continue;
		for (uint32_t i = 0; i < work_tile->n_kv_tiles; i++)
			see_kv_tile(p, work_tile, device_kv_tile_at(work_tile, i),
				    row - work_tile->row, as, sight);
	}
}

/* Takes what a row should have seen away; nothing must be left. */
static void unsee(struct sight *sight, const struct work_shape *shape, uint32_t page, uint32_t row)
{
	uint32_t own = page / sight->n_devices;
	uint8_t *at = &sight->times[source_of(shape, own, row) / sight->step * 8 + row % 8];

	if (page % sight->n_devices != sight->device)
		return;
	assert_int_equal(*at, 1);
	(*at)--;
}

/* Does row i of the query see the token of its node at pos? */
static bool sees_own(const struct work_query *query, uint32_t i, uint32_t pos)
{
	uint32_t draft_pos = query->pos - query->n_before;

	if (!query->parents || pos < draft_pos)
		return pos <= query->pos + i;
	for (i += query->n_before; i != WORK_NONE && i != pos - draft_pos;)
		i = query->parents[i];
	return i != WORK_NONE;
}

static void unsee_path(struct sight *sight, const struct tree *t, const struct work_row *row)
{
	const struct work_query *query = &t->queries[row->query];

	for (uint32_t node = query->node; node != WORK_NONE; node = t->nodes[node].parent) {
		const struct work_node *n = &t->nodes[node];
		uint32_t pos = n->pos;

		for (uint32_t i = n->slice; i < n->slice + n->n_slices; i++) {
			for (uint32_t j = 0; j < t->slices[i].count; j++, pos++) {
				if (pos < row->low)
					continue;
				if (node != query->node || sees_own(query, row->token, pos))
					unsee(sight, &t->shape, t->slices[i].page,
					      t->slices[i].first + j);
			}
		}
	}
}

static void expect_nothing(const struct sight *sight)
{
	for (uint32_t i = 0; i < sight->n_kv_blocks * 8; i++)
		assert_int_equal(sight->times[i], 0);
}

/* ---- tests ---------------------------------------------------------------------------------- */

struct fixture {
	struct tree t;
	struct work_list list;
	struct cut cut; /* of the list, where there are several devices */
	struct schedule schedule;
	struct sight sight;
};

/* rows_max == 0: of one row each, and the schedule takes in tokens; that of one of several
 * devices. */
static void fixture_init_on(struct fixture *f, struct oracle_random *random, uint32_t rows_max,
			    uint32_t device, uint32_t n_devices)
{
	struct plan_config config;
	struct schedule_want want;

	memset(f, 0, sizeof(*f));
	f->sight = (struct sight){.device = device, .n_devices = n_devices};
	tree_init(&f->t, random, rows_max ? rows_max : 1);
	plan_config_init(&config, PLAN_AUTO, &f->t.shape, N_BLOCKS);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &f->t.tree, &f->list), 0);
	if (n_devices > 1)
		assert_int_equal(cut_make(&f->cut, &f->list, n_devices, device), 0);
	want = (struct schedule_want){.shape = &f->t.shape,
				      .list = n_devices > 1 ? &f->cut.list : &f->list,
				      .pages = pages_of(&f->t.shape),
				      .costs = costs_find(CODE_WGMMA),
				      .n_blocks = N_BLOCKS,
				      .code = oracle_below(random, 4) ? CODE_WGMMA : CODE_MMA,
				      .tails = rows_max == 0};
	assert_int_equal(schedule_make(&f->schedule, &want), 0);
	f->sight.step = kv_block_step(&f->t.shape);
	f->sight.n_kv_blocks =
		(f->t.n_pages + QUERIES_MAX * SCHEDULE_TAIL_KV_BLOCKS * (n_devices + 1)) *
		f->t.shape.page_tokens / KV_BLOCK_TOKENS;
	f->sight.times = malloc((size_t)f->sight.n_kv_blocks * 8);
	assert_non_null(f->sight.times);
}

static void fixture_init(struct fixture *f, struct oracle_random *random, uint32_t rows_max)
{
	fixture_init_on(f, random, rows_max, 0, 1);
}

static void fixture_done(struct fixture *f)
{
	cut_done(&f->cut);
	free(f->sight.times);
	schedule_done(&f->schedule);
	plan_list_done(&f->list);
}

/* One of the schedule's rows that a row of the list is. */
static uint32_t one_of(const struct fixture *f, uint32_t row)
{
	uint32_t n = row_map_of(&f->t.shape).n;

	return row * n + row * 7 % n;
}

static void expect_paths(struct fixture *f, uint32_t step)
{
	for (uint32_t row = 0; row < f->list.n_rows; row += step) {
		see_row(&f->schedule, one_of(f, row), &f->list.rows[row], &f->sight);
		unsee_path(&f->sight, &f->t, &f->list.rows[row]);
		expect_nothing(&f->sight);
	}
}

static void test_every_row_sees_its_path_once(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));

	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		fixture_init(f, &random, i % 2);
		expect_paths(f, 1);
		fixture_done(f);
	}
	free(f);
}

static void test_prompts_and_drafts_see_theirs_once(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		fixture_init(f, &random, i % 4 ? 20 : ROWS_MAX);
		expect_paths(f, i % 4 ? 3 : 17);
		fixture_done(f);
	}
	free(f);
}

static void test_rows_with_lows_see_theirs_once(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));

	(void)state;
	windows = true;
	for (uint32_t i = 0; i < 60; i++) {
		fixture_init(f, &random, i % 4 ? 20 : ROWS_MAX);
		expect_paths(f, i % 4 ? 3 : 17);
		fixture_done(f);
	}
	windows = false;
	free(f);
}

/* As the device does: side by side, so in any order. */
static void write_patches(struct schedule *p, struct schedule_growth *growth,
			  struct oracle_random *random)
{
	for (uint32_t i = growth->n_patches; i > 1; i--) {
		uint32_t j = oracle_below(random, i);
		struct schedule_patch patch = growth->patches[j];

		growth->patches[j] = growth->patches[i - 1];
		growth->patches[i - 1] = patch;
	}
	for (uint32_t i = 0; i < growth->n_patches; i++) {
		const struct schedule_patch *patch = &growth->patches[i];

		memcpy((char *)p->arrays[patch->array].at + patch->offset, &patch->value,
		       sizeof(patch->value));
	}
	schedule_growth_written(growth);
}

/* A row's own tokens beyond the plan: page and row of each. */
struct grown {
	uint32_t page, row;
};

static void next_token(struct tree *t, uint32_t row_pos, struct grown *last)
{
	if (row_pos % t->shape.page_tokens == 0)
		last->page = t->n_pages++;
	last->row = row_pos % t->shape.page_tokens;
}

/* All of the schedule's that it is. */
static int advance_row(struct fixture *f, uint32_t row, const struct grown *to,
		       struct schedule_growth *growth)
{
	uint32_t n = row_map_of(&f->t.shape).n;
	uint32_t source = source_of(&f->t.shape, to->page / f->sight.n_devices, to->row);
	int r = 0;

	for (struct schedule_tail *t = &f->schedule.tails[row * n], *end = t + n; t < end && !r;
	     t++)
		r = to->page % f->sight.n_devices == f->sight.device
			    ? schedule_advance(t, f->list.rows[row].pos, source, growth)
			    : schedule_pass(t, f->list.rows[row].pos);
	return r;
}

/* The next token of every row. 0 or -ESTALE. */
static int take_tokens(struct fixture *f, struct grown (*grown)[64], uint32_t n,
		       struct schedule_growth *growth)
{
	for (uint32_t row = 0; row < f->list.n_rows; row++) {
		uint32_t query = f->list.rows[row].query;
		const struct work_node *leaf = &f->t.nodes[f->t.queries[query].node];
		struct grown *at = &grown[row][n];
		int r;

		if (n == 0)
			at->page = f->t.slices[leaf->slice + leaf->n_slices - 1].page;
		else
			*at = at[-1];
		next_token(&f->t, ++f->list.rows[row].pos, at);
		r = advance_row(f, row, at, growth);
		assert_true(r == 0 || r == -ESTALE);
		if (r)
			return r;
	}
	return 0;
}

static void expect_path_and_tokens(struct fixture *f, uint32_t row, const struct grown *grown,
				   uint32_t n)
{
	see_row(&f->schedule, one_of(f, row), &f->list.rows[row], &f->sight);
	unsee_path(&f->sight, &f->t, &f->list.rows[row]);
	for (uint32_t k = 0; k < n; k++)
		unsee(&f->sight, &f->t.shape, grown[k].page, grown[k].row);
	expect_nothing(&f->sight);
}

/* Patches are written every so many tokens. Returns how many there were. */
static uint32_t take_all_tokens(struct fixture *f, uint32_t every, struct oracle_random *random)
{
	static struct grown grown[QUERIES_MAX][TOKENS_MAX];
	struct schedule_growth growth;
	uint32_t n = 0;

	assert_int_equal(schedule_growth_init(&growth, &f->schedule), 0);
	while (n < TOKENS_MAX && take_tokens(f, grown, n, &growth) == 0) {
		n++;
		if (n % every)
			continue;
		write_patches(&f->schedule, &growth, random);
		for (uint32_t row = n % 5; row < f->list.n_rows; row += 5)
			expect_path_and_tokens(f, row, grown[row], n);
	}
	schedule_growth_done(&growth);
	return n;
}

/* Inside a KV block, as whoever goes on from the same place may have taken the row behind it. */
static void expect_no_other_page(struct fixture *f)
{
	for (uint32_t row = 0; row < f->list.n_rows; row++) {
		uint32_t pos = ++f->list.rows[row].pos, tail = row * row_map_of(&f->t.shape).n;
		const struct grown at = {f->t.n_pages, pos % f->t.shape.page_tokens};
		int r = pos % KV_BLOCK_TOKENS ? -ESTALE : 0;

		assert_int_equal(schedule_pass(&f->schedule.tails[tail], pos), r);
		assert_int_equal(r ? advance_row(f, row, &at, NULL) : 0, r);
	}
}

static void test_tokens_are_taken_into_a_schedule(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));

	(void)state;
	for (int i = 0; i < 30; i++) {
		fixture_init(f, &random, 0);
		assert_true(take_all_tokens(f, i % 3 ? 1 : 9, &random) >=
			    (SCHEDULE_TAIL_KV_BLOCKS - 1) * KV_BLOCK_TOKENS);
		fixture_done(f);
		fixture_init(f, &random, 0);
		expect_no_other_page(f);
		fixture_done(f);
	}
	free(f);
}

/* Each device takes in those of its pages, and sees them and no others. */
static void test_tokens_are_taken_in_by_the_device_of_their_page(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));
	uint32_t n_later = 0;

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		struct oracle_random again = random;
		uint32_t n_devices = 2 + i % 3;

		for (uint32_t device = 0; device < n_devices; device++) {
			random = again;
			fixture_init_on(f, &random, 0, device, n_devices);
			n_later +=
				take_all_tokens(f, i % 2 ? 1 : 5, &random) > f->t.shape.page_tokens;
			fixture_done(f);
		}
	}
	assert_true(n_later > 0); /* pages that came to a device after others */
	free(f);
}

/* Each device has something of each path that is the path's own. */
static void test_a_page_elsewhere_needs_no_new_schedule(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture *f = malloc(sizeof(*f));

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		lone_paths = true;
		fixture_init_on(f, &random, 0, i % 4, 4);
		lone_paths = false;
		assert_true(take_all_tokens(f, 3, &random) >=
			    (SCHEDULE_TAIL_KV_BLOCKS - 1) * KV_BLOCK_TOKENS);
		fixture_done(f);
	}
	free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row_sees_its_path_once),
		cmocka_unit_test(test_prompts_and_drafts_see_theirs_once),
		cmocka_unit_test(test_rows_with_lows_see_theirs_once),
		cmocka_unit_test(test_tokens_are_taken_into_a_schedule),
		cmocka_unit_test(test_tokens_are_taken_in_by_the_device_of_their_page),
		cmocka_unit_test(test_a_page_elsewhere_needs_no_new_schedule),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
