/*
 * schedule_strips_test.c - KV blocks of a strip, of which the strip before had some: they are what
 * they would be if all were read anew; and KV tiles that both have.
 *
 * Prompts stand on a document that all share; strips are read in their order, each twice.
 */
#include "kernels/cuda/schedule/schedule_impl.h"
#include "kernels/plan/plan.h"
#include "oracle.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE_TOKENS 32u
#define QUERIES_MAX 12u
#define SLICES_MAX 2048u
#define N_BLOCKS 132u
#define RUNS ROUNDS(100, 25)
#define PAGE_SOURCES ((uint64_t)PAGE_TOKENS / KV_BLOCK_TOKENS * kv_block_sources(&shape))

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = 32,
					.n_kv_heads = 8,
					.head_dim = 128,
					.page_tokens = PAGE_TOKENS,
					.dtype = WORK_BF16,
					.scale = 0.1f};

struct prompts {
	struct work_node nodes[2 * QUERIES_MAX + 1];
	struct work_slice slices[SLICES_MAX];
	struct work_query queries[QUERIES_MAX];
	struct work_tree tree;
	uint32_t n_pages;
};

static uint32_t add_node(struct prompts *p, uint32_t parent, uint32_t pos, uint32_t n_tokens)
{
	struct work_node *node = &p->nodes[p->tree.n_nodes];

	*node = (struct work_node){.parent = parent,
				   .pos = pos,
				   .n_tokens = n_tokens,
				   .slice = p->tree.n_slices};
	for (uint32_t at = pos, n; at < pos + n_tokens; at += n, node->n_slices++) {
		n = min_u32(PAGE_TOKENS - at % PAGE_TOKENS, pos + n_tokens - at);
		p->slices[p->tree.n_slices++] =
			(struct work_slice){p->n_pages++, (uint16_t)(at % PAGE_TOKENS),
					    (uint16_t)n};
	}
	return p->tree.n_nodes++;
}

/* Each behind the document, or behind tokens of its own there. */
static void prompts_init(struct prompts *p, struct oracle_random *random)
{
	uint32_t document = 1 + oracle_below(random, 9000),
		 n = 1 + oracle_below(random, oracle_below(random, 2) ? QUERIES_MAX : 2);

	memset(p, 0, sizeof(*p));
	add_node(p, WORK_NONE, 0, document);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t pos = document, parent = 0, own = oracle_below(random, 200);
		uint32_t n_rows = 1 + oracle_below(random, i % 4 ? 300 : 1000);

		if (own && oracle_below(random, 2)) {
			parent = add_node(p, 0, pos, own);
			pos += own;
		}
		p->queries[i] = (struct work_query){.node = add_node(p, parent, pos, n_rows),
						    .pos = pos,
						    .n_rows = n_rows};
	}
	p->tree.n_queries = n;
	p->tree.nodes = p->nodes;
	p->tree.slices = p->slices;
	p->tree.queries = p->queries;
}

/* Some rows see nothing before a position. */
static void list_make(const struct prompts *p, struct oracle_random *random, struct work_list *list)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &shape, N_BLOCKS);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &p->tree, list), 0);
	for (uint32_t i = 0; oracle_below(random, 8) == 0 && i < list->n_rows; i++)
		list->rows[i].low = list->rows[i].pos / 2;
}

static struct schedule_want want_of(const struct work_list *list)
{
	return (struct schedule_want){.shape = &shape,
				      .list = list,
				      .pages = {64, PAGE_SOURCES, 64 * PAGE_SOURCES},
				      .costs = costs_find(CODE_WGMMA),
				      .n_blocks = N_BLOCKS,
				      .code = CODE_WGMMA};
}

static struct make make_of(struct schedule *schedule, const struct schedule_want *want)
{
	struct row_map map = row_map_of(&shape);

	return (struct make){.p = schedule,
			     .want = want,
			     .list = want->list,
			     .map = map,
			     .wide = true,
			     .block_tokens = DEVICE_BLOCK_ROWS / map.heads};
}

static bool are_equal(const struct piece_kv_block *a, const struct piece_kv_block *b)
{
	return memcmp(&a->kv_block, &b->kv_block, sizeof(a->kv_block)) == 0 &&
	       a->source == b->source && a->causal == b->causal && a->tail == b->tail &&
	       a->grows == b->grows && a->beside_end == b->beside_end;
}

/* Are those up to where it says so whole, and of its rows? */
static void assert_alike(const struct piece_kv_block *at, uint32_t i, uint32_t n)
{
	assert_in_range(at[i].alike_end, i + 1, n);
	for (uint32_t k = i; at[i].alike_end > i + 1 && k < at[i].alike_end; k++) {
		assert_true(kv_block_is_whole(&at[k]));
		assert_int_equal(at[k].kv_block.row_begin, at[i].kv_block.row_begin);
		assert_int_equal(at[k].kv_block.row_end, at[i].kv_block.row_end);
	}
}

/* Some of its rows see only a part of its tokens, and that is known. */
static void assert_causal(const struct make *m, const struct strip *strip,
			  const struct piece_kv_block *at)
{
	const struct device_kv_block *g = &at->kv_block;
	const struct work_row *rows = m->list->rows + strip->row_begin;
	bool causal = false;

	for (uint32_t i = g->row_begin; i < g->row_end; i++)
		causal |= (int64_t)rows[i].pos < (int64_t)g->pos + g->end - 1 ||
			  (int64_t)rows[i].low > (int64_t)g->pos + g->first;
	assert_int_equal(at->causal, causal);
}

static void assert_is_as_read_anew(struct make *m, struct make *anew, const struct strip *strip)
{
	const struct piece_kv_block *is, *want;

	assert_int_equal(strip_read(m, strip), 0);
	anew->kept = (struct kept){0};
	assert_int_equal(strip_read(anew, strip), 0);
	is = m->p->scratch[KV_BLOCKS].at;
	want = anew->p->scratch[KV_BLOCKS].at;
	assert_int_equal(m->n_kv_blocks, anew->n_kv_blocks);
	for (uint32_t i = 0; i < m->n_kv_blocks; i++) {
		assert_true(are_equal(&is[i], &want[i]));
		assert_causal(m, strip, &is[i]);
		if (i % 16 == 0)
			assert_alike(is, i, m->n_kv_blocks);
	}
}

/* As who mixes them does. */
static void change_order(struct make *m)
{
	struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at, first = kv_blocks[0];

	kv_blocks[0] = kv_blocks[m->n_kv_blocks - 1];
	kv_blocks[m->n_kv_blocks - 1] = first;
	strip_find_stretches(m);
}

/* Returns how many strips had KV blocks of the one before. */
static uint32_t read_all(struct make *m, struct make *anew, struct oracle_random *random)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < m->n_strips; i++) {
		const struct strip *strip = &make_strips_of(m)[i];
		const struct kept before = m->kept;

		assert_is_as_read_anew(m, anew, strip);
		n_kept += before.n_rows && before.item == strip->item && before.n_kv_blocks &&
			  m->kept.n_kv_blocks >= before.n_kv_blocks;
		if (oracle_below(random, 4) == 0)
			change_order(m);
	}
	return n_kept;
}

static void strips_are_what_they_would_be_if_read_anew(void **state)
{
	static struct prompts prompts;
	struct oracle_random random = oracle_seed("schedule_strips_test");
	struct schedule schedule = {0}, other = {0};
	struct work_list list = {0};
	uint32_t n_kept = 0;

	(void)state;
	for (int run = 0; run < RUNS; run++) {
		struct schedule_want want = want_of(&list);
		struct make m = make_of(&schedule, &want), anew;

		prompts_init(&prompts, &random);
		list_make(&prompts, &random, &list);
		assert_int_equal(runs_make(&m), 0);
		assert_int_equal(strips_make(&m, 4u << oracle_below(&random, 4)), 0);
		anew = m;
		anew.p = &other;
		assert_int_equal(runs_make(&anew), 0);
		n_kept += read_all(&m, &anew, &random);
	}
	assert_true(n_kept > RUNS);
	schedule_done(&schedule);
	schedule_done(&other);
	plan_list_done(&list);
}

/* All keys of the KV tile, by all of the work tile's rows that are in the row block. */
static bool rows_see_all(const struct work_row *rows, const struct device_work_tile *work_tile,
			 const struct device_kv_tile *kv_tile, const struct device_source *from,
			 uint32_t block)
{
	bool dealt = work_tile->flags & DEVICE_WORK_TILE_DEALT, any = false;
	uint32_t mask = (1u << work_tile->blocks_log2) - 1;

	for (uint32_t i = 0; i < work_tile->n_rows; i++) {
		if ((dealt ? i & mask : i / work_tile->block_tokens) != block)
			continue;
		any = true;
		for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
			const struct device_kv_block *g = &kv_tile->kv_blocks[j];
			int64_t last = (int64_t)g->pos + KV_BLOCK_TOKENS - 1;

			if (from->kv_blocks[j] == DEVICE_NONE || i < g->row_begin ||
			    i >= g->row_end || g->first != 0 || g->end != KV_BLOCK_TOKENS)
				return false;
			if (kv_tile->causal &&
			    (rows[i].pos < last || (int64_t)rows[i].low > g->pos))
				return false;
		}
	}
	return any;
}

/* Returns for how many. */
static uint32_t assert_plain(const struct schedule *p, const struct work_list *list, uint32_t at)
{
	const struct device_work_tile *work_tile =
		(const struct device_work_tile *)p->arrays[SCHEDULE_WORK_TILES].at + at;
	const struct device_kv_tile *kv_tile = p->arrays[SCHEDULE_KV_TILES].at;
	const struct device_source *from = p->arrays[SCHEDULE_SOURCES].at;
	const struct work_row *rows = list->rows + work_tile->row;
	uint32_t mask = (1u << work_tile->blocks_log2) - 1, n = 0;

	for (uint32_t t = 0; t < work_tile->n_kv_tiles; t++)
		for (uint32_t w = 0; w < DEVICE_WARPS; w++) {
			uint32_t i = device_kv_tile_at(work_tile, t);

			if (!(kv_tile[i].warps >> w & 1) ||
			    !rows_see_all(rows, work_tile, &kv_tile[i], &from[i], w & mask))
				continue;
			assert_true(kv_tile[i].plain >> w & 1);
			n += kv_tile[i].causal;
		}
	return n;
}

/* That costs time alone, and so no output tells. */
static void nobody_looks_at_a_mask_of_what_all_rows_see(void **state)
{
	static struct prompts prompts;
	struct oracle_random random = oracle_seed("plain");
	struct schedule schedule = {0};
	struct work_list list = {0};
	uint32_t n_causal = 0;

	(void)state;
	for (int run = 0; run < RUNS; run++) {
		const struct schedule_want want = want_of(&list);

		prompts_init(&prompts, &random);
		list_make(&prompts, &random, &list);
		assert_int_equal(schedule_make(&schedule, &want), 0);
		for (uint32_t i = 0; i < schedule.n[SCHEDULE_WORK_TILES]; i++)
			n_causal += assert_plain(&schedule, &list, i);
	}
	assert_true(n_causal > RUNS);
	schedule_done(&schedule);
	plan_list_done(&list);
}

static const struct device_work_tile *work_tiles_of(const struct schedule *p)
{
	return p->arrays[SCHEDULE_WORK_TILES].at;
}

static uint64_t sum_up_to(uint64_t n)
{
	return n * (n + 1) / 2;
}

/* 1 + the positions of all tokens that a row of the list sees, of the first of the schedule's rows
 * that it is. */
static uint64_t sum_seen(const struct schedule *p, const struct work_list *list, uint32_t row)
{
	const struct device_kv_tile *kv_tiles = p->arrays[SCHEDULE_KV_TILES].at;
	uint32_t own = row * row_map_of(&shape).n;
	uint64_t sum = 0;

	for (uint32_t u = 0; u < p->n[SCHEDULE_WORK_TILES]; u++) {
		const struct device_work_tile *work_tile = work_tiles_of(p) + u;
		uint32_t token = own - work_tile->row;

		for (uint32_t i = 0; token < work_tile->n_rows && i < work_tile->n_kv_tiles; i++) {
			const struct device_kv_tile *at =
				&kv_tiles[device_kv_tile_at(work_tile, i)];

			for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
				const struct device_kv_block *g = &at->kv_blocks[j];
				int64_t begin = g->pos + g->first, end = g->pos + g->end,
					most = (int64_t)list->rows[row].pos + 1;

				if (token < g->row_begin || token >= g->row_end)
					continue;
				end = at->causal && end > most ? most : end;
				if (end > begin)
					sum += sum_up_to((uint64_t)end) -
					       sum_up_to((uint64_t)begin);
			}
		}
	}
	return sum;
}

/* All warps take it, and their rows see all of it. */
static void assert_whole(const struct schedule *p, const struct work_list *list,
			 const struct device_work_tile *work_tile, uint32_t i)
{
	uint32_t at = device_kv_tile_at(work_tile, i);
	const struct device_kv_tile *kv_tile =
		(const struct device_kv_tile *)p->arrays[SCHEDULE_KV_TILES].at + at;
	const struct device_source *from =
		(const struct device_source *)p->arrays[SCHEDULE_SOURCES].at + at;

	assert_true(kv_tile->wide && kv_tile->warps == 0xff);
	for (uint32_t b = 0; b * work_tile->block_tokens < work_tile->n_rows; b++) {
		assert_true(rows_see_all(list->rows + work_tile->row, work_tile, kv_tile, from, b));
		assert_true(kv_tile->plain >> b & 1);
	}
}

/* Of a work tile that has shared ones: they and those behind them are one run. */
static void assert_run(const struct schedule *p, const struct device_work_tile *work_tile)
{
	const struct device_kv_tile *kv_tiles = p->arrays[SCHEDULE_KV_TILES].at;
	uint32_t end = device_run_at(work_tile, 0, 0) * DEVICE_WIDE_KV_TILES;

	assert_in_range(work_tile->n_shared, DEVICE_FIRST_KV_TILES, end);
	assert_int_equal(work_tile->n_shared % DEVICE_WIDE_KV_TILES, 0);
	for (uint32_t i = 0; i <= end && i < work_tile->n_kv_tiles; i++) {
		const struct device_kv_tile *at = &kv_tiles[device_kv_tile_at(work_tile, i)];

		assert_int_equal(at->wide && at->warps == 0xff, i < end);
	}
}

/* What strips have in common stands there once. */
static void strips_share_what_all_their_rows_see(void **state)
{
	static struct prompts prompts;
	struct oracle_random random = oracle_seed("shared");
	struct schedule schedule = {0};
	struct work_list list = {0};
	uint64_t n_shared = 0;

	(void)state;
	for (int run = 0; run < RUNS; run++) {
		const struct schedule_want want = want_of(&list);

		prompts_init(&prompts, &random);
		list_make(&prompts, &random, &list);
		assert_int_equal(schedule_make(&schedule, &want), 0);
		for (uint32_t u = 0; u < schedule.n[SCHEDULE_WORK_TILES]; u++) {
			const struct device_work_tile *work_tile = work_tiles_of(&schedule) + u;

			for (uint32_t i = 0; i < work_tile->n_shared; i += 5)
				assert_whole(&schedule, &list, work_tile, i);
			if (work_tile->n_shared)
				assert_run(&schedule, work_tile);
			n_shared += work_tile->n_shared;
		}
		for (uint32_t row = 0; row < list.n_rows && !list.rows[0].low; row += 37)
			assert_int_equal(sum_seen(&schedule, &list, row),
					 sum_up_to(list.rows[row].pos + 1));
	}
	assert_true(n_shared > 100 * RUNS);
	schedule_done(&schedule);
	plan_list_done(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strips_are_what_they_would_be_if_read_anew),
		cmocka_unit_test(nobody_looks_at_a_mask_of_what_all_rows_see),
		cmocka_unit_test(strips_share_what_all_their_rows_see),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
