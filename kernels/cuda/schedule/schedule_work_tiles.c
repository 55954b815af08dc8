/*
 * schedule_work_tiles.c - strips cut into work tiles: where a work tile's KV blocks end, which rows
 * see something of them, and where these have their place. Work tiles of strips that are alike
 * share their KV tiles. Into how many parts a strip goes is said by schedule_cost.c. See
 * schedule_impl.h.
 */
#include "schedule_load.h"

#include <errno.h>
#include <string.h>

#define PART_STEPS 12u

/* Rows that see something of the cut's KV blocks: marks them, and narrows the cut to them. */
static void find_rows(const struct make *m, struct cut *cut, bool *sees)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t n_rows = cut->strip->row_end - cut->strip->row_begin;

	memset(sees, 0, n_rows * sizeof(*sees));
	for (uint32_t i = cut->begin; i < cut->end; i = kv_blocks[i].alike_end) {
		const struct device_kv_block *g = &kv_blocks[i].kv_block;

		for (uint32_t t = g->row_begin; t < g->row_end; t++)
			sees[t] = sees[t] || cut_row_sees(m, cut->strip, &kv_blocks[i], t);
	}
	cut->row_begin = 0;
	cut->row_end = n_rows;
	while (cut->row_begin < n_rows && !sees[cut->row_begin])
		cut->row_begin++;
	while (cut->row_end > cut->row_begin && !sees[cut->row_end - 1])
		cut->row_end--;
}

/* Each row's place in the work tile; which of them are partials is known only when all work tiles
 * are made. */
static int make_dests(struct make *m, const struct cut *cut, const bool *sees)
{
	uint32_t n = cut->row_end - cut->row_begin, at = m->p->n[SCHEDULE_DESTS];
	uint32_t *dests = make_append(m, SCHEDULE_DESTS, n);
	uint32_t *counts = m->p->scratch[COUNTS].at;
	struct seen *seen = make_scratch(m, SEEN, (size_t)m->n_seen + n, sizeof(*seen));

	if (!dests || !seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = cut->strip->row_begin + cut->row_begin + i;

		dests[i] = DEVICE_DEST_NOTHING;
		if (!sees[cut->row_begin + i])
			continue;
		counts[row]++;
		seen[m->n_seen++] = (struct seen){row, at + i};
	}
	return 0;
}

static int make_work_tile(struct make *m, struct cut *cut)
{
	bool sees[DEVICE_WORK_TILE_ROWS];
	struct device_work_tile *work_tile;
	uint32_t n_rows, n_kv_tiles = 0, dest = m->p->n[SCHEDULE_DESTS];
	int r;

	find_rows(m, cut, sees);
	if (cut->row_begin == cut->row_end)
		return 0;
	n_rows = cut->row_end - cut->row_begin;
	while (m->block_tokens << cut->blocks_log2 < n_rows)
		cut->blocks_log2++;
	cut->block_tokens = (n_rows + (1u << cut->blocks_log2) - 1) >> cut->blocks_log2;
	kv_tiles_deal(m, cut);
	cut->kv_tile = m->p->n[SCHEDULE_KV_TILES];
	r = make_dests(m, cut, sees);
	if (!r)
		r = kv_tiles_make(m, cut);
	n_kv_tiles = m->p->n[SCHEDULE_KV_TILES] - cut->kv_tile + cut->n_shared;
	if (!r && m->want->tails)
		r = tails_reserve(m, cut);
	work_tile = r ? NULL : make_append(m, SCHEDULE_WORK_TILES, 1);
	if (!work_tile)
		return -ENOMEM;
	*work_tile = (struct device_work_tile){
		.row = cut->strip->row_begin + cut->row_begin,
		.n_rows = cut->row_end - cut->row_begin,
		.kv_tile = cut->kv_tile,
		.n_kv_tiles = n_kv_tiles,
		.dest = dest,
		.blocks_log2 = cut->blocks_log2,
		.flags = (cut->queues[QUEUE_WIDE].n > 0 ? DEVICE_WORK_TILE_WIDE : 0) |
			 (cut->dealt ? DEVICE_WORK_TILE_DEALT : 0) |
			 (cut->old ? DEVICE_WORK_TILE_OLD : 0),
		.block_tokens = cut->block_tokens,
		.shared = cut->shared,
		.n_shared = cut->n_shared,
		.shared_run = cut->shared_run,
	};
	return 0;
}

/* The end of KV blocks from i on that lie side by side for the same rows, of a KV tile that begins
 * at a multiple from begin. */
static uint32_t run_end(const struct piece_kv_block *kv_blocks, uint32_t begin, uint32_t i)
{
	uint32_t in_kv_tile = (i - begin) % DEVICE_KV_TILE_BLOCKS;

	return min_u32(kv_blocks[i].beside_end, i + DEVICE_KV_TILE_BLOCKS - in_kv_tile);
}

/* From begin on, whole granules that together take so long; the end of them. */
static uint32_t part_end(const struct make *m, const struct strip *strip, uint32_t begin,
			 double part_ns)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	struct run run = {.n_pieces = 1};
	struct load load;
	uint32_t i = begin;
	double ns = 0;

	load_init(m, strip, &load);
	while (i < m->n_kv_blocks) {
		const struct device_kv_block *g = &kv_blocks[i].kv_block;
		uint32_t end = run_end(kv_blocks, begin, i);
		struct seen_run seen = {&run, g->row_begin, g->row_end};

		run.n_kv_blocks = end - i;
		run_weigh(m, &run);
		if (!load_takes(m, &load, &seen, part_ns, &ns))
			break;
		i = end;
		if (((i - begin) & (load_granule(&load, i - begin) - 1)) == 0 && ns >= part_ns)
			break;
	}
	return i;
}

/* The strip's parts, at most so many; their ends, if there is room. Returns how many, most + 1:
 * more than that. */
static uint32_t count_parts(const struct make *m, const struct strip *strip, double part_ns,
			    uint32_t most, uint32_t *ends)
{
	uint32_t n = 0;

	for (uint32_t end = 0; end < m->n_kv_blocks && n <= most; n++) {
		end = part_end(m, strip, end, part_ns);
		if (n < most)
			ends[n] = end;
	}
	return n;
}

/* The ends of parts that are no more than parts->n. KV blocks one by one take longer than in runs,
 * so parts are made longer until there are no more. 0: there are more all the same. */
static uint32_t find_ends(const struct make *m, const struct strip *strip, struct parts *parts,
			  uint32_t *ends)
{
	for (uint32_t i = 0; i < PART_STEPS; i++) {
		uint32_t n = count_parts(m, strip, parts->each_ns, parts->n, ends);

		if (n <= parts->n)
			return n;
		parts->each_ns *= 1.05;
	}
	return 0;
}

/* A strip whole, or cut into parts that take about the same. */
static int make_work_tiles(struct make *m, struct strip *strip, double limit_ns)
{
	double entries = (double)m->p->expect.n_work_tiles * m->want->shape->n_kv_heads;
	bool few = entries <= FEW_WAVES * m->want->n_blocks;
	struct parts parts = strip_parts(m, strip, limit_ns);
	uint32_t *ends = make_scratch(m, ENDS, parts.n, sizeof(*ends));
	uint32_t end = 0, n_ends = 0;
	int r = ends ? strip_read(m, strip) : -ENOMEM;

	if (!r && parts.n > 1)
		r = strip_mix(m, strip, parts.n, ends);
	if (r < 0)
		return r;
	if (r)
		n_ends = parts.n;
	else if (few && parts.n > 1)
		n_ends = find_ends(m, strip, &parts, ends);
	r = 0;
	for (uint32_t i = 0; end < m->n_kv_blocks && !r; i++) {
		struct cut cut = {.strip = strip, .begin = end, .end = m->n_kv_blocks};

		if (parts.n > 1)
			cut.end = n_ends ? ends[i] : part_end(m, strip, end, parts.each_ns);
		end = cut.end;
		r = make_work_tile(m, &cut);
	}
	return r;
}

/* ---- work tiles that are alike -------------------------------------------------------------- */

/* Work tiles of the strip that are those before, with rows of its own. */
static int copy_work_tiles(struct make *m, const struct strip *strip)
{
	bool sees[DEVICE_WORK_TILE_ROWS];
	int r = 0;

	memset(sees, true, sizeof(sees));
	for (uint32_t i = 0; i < m->alike.n_work_tiles && !r; i++) {
		struct cut cut = {.strip = strip, .row_end = m->alike.n_rows};
		uint32_t dest = m->p->n[SCHEDULE_DESTS];
		struct device_work_tile *work_tile;

		r = make_dests(m, &cut, sees);
		work_tile = r ? NULL : make_append(m, SCHEDULE_WORK_TILES, 1);
		if (!work_tile)
			return -ENOMEM;
		*work_tile = ((struct device_work_tile *)m->p->arrays[SCHEDULE_WORK_TILES]
				      .at)[m->alike.work_tile + i];
		work_tile->row = strip->row_begin;
		work_tile->dest = dest;
	}
	m->p->n_kv_blocks += m->alike.n_kv_blocks;
	return r;
}

int work_tiles_make(struct make *m, struct strip *strip, double limit_ns)
{
	uint32_t n_rows = strip->row_end - strip->row_begin,
		 work_tile = m->p->n[SCHEDULE_WORK_TILES];
	bool all = !m->want->tails && strip_sees_all(m, strip);
	uint64_t n_kv_blocks = m->p->n_kv_blocks;

	if (all && m->alike.item == strip->item && m->alike.n_rows == n_rows)
		return copy_work_tiles(m, strip);
	int r = make_work_tiles(m, strip, limit_ns);
	if (all)
		m->alike = (struct alike){.item = strip->item,
					  .n_rows = n_rows,
					  .work_tile = work_tile,
					  .n_work_tiles = m->p->n[SCHEDULE_WORK_TILES] - work_tile,
					  .n_kv_blocks = m->p->n_kv_blocks - n_kv_blocks};
	return r;
}
