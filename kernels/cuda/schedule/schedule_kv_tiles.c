/*
 * schedule_kv_tiles.c - the KV blocks of a work tile in KV tiles and wide tiles: KV blocks that
 * most row blocks of a warp group see are packed into wide tiles; of the others those that one row
 * block alone sees are dealt to its warps in turn. Wide tiles and KV tiles alternate: the ones wait
 * for the tensor cores, the others for memory. See schedule_impl.h.
 */
#include "schedule_impl.h"
#include "proto/arith.h"

#include <errno.h>
#include <string.h>

bool cut_row_sees(const struct make *m, const struct strip *strip, const struct piece_kv_block *at,
		  uint32_t token)
{
	const struct device_kv_block *g = &at->kv_block;

	if (token < g->row_begin || token >= g->row_end)
		return false;
	return !at->causal ||
	       work_row_sees_some(&m->list->rows[strip->row_begin + token],
				  (uint32_t)(g->pos + g->first), (uint32_t)g->end - g->first);
}

/* Tokens [begin, end) of a work tile. */
struct interval {
	uint32_t begin, end;
};

/* Those of the KV block's rows. */
static struct interval work_tile_interval(const struct cut *cut, const struct device_kv_block *g)
{
	uint32_t end = min_u32(g->row_end, cut->row_end);

	return (struct interval){
		.begin = max_u32(g->row_begin, cut->row_begin) - cut->row_begin,
		.end = end > cut->row_begin ? end - cut->row_begin : 0,
	};
}

uint32_t cut_block_of(const struct cut *cut, uint32_t token)
{
	return cut->dealt ? token & ((1u << cut->blocks_log2) - 1) : token / cut->block_tokens;
}

/* Row blocks of the work tile with a row that sees something of the KV block. */
static uint32_t work_tile_blocks(const struct make *m, const struct cut *cut,
				 const struct piece_kv_block *at)
{
	struct interval seen = work_tile_interval(cut, &at->kv_block);
	uint32_t blocks = 0;

	if (seen.begin >= seen.end)
		return 0;
	if (cut->dealt && seen.end - seen.begin >= 1u << cut->blocks_log2 && !at->causal)
		return (1u << (1u << cut->blocks_log2)) - 1;
	if (!cut->dealt && !at->causal) {
		uint32_t first = seen.begin / cut->block_tokens;
		uint32_t last = (seen.end - 1) / cut->block_tokens;

		return (2u << last) - (1u << first);
	}
	for (uint32_t t = seen.begin; t < seen.end; t++) {
		if (cut_row_sees(m, cut->strip, at, cut->row_begin + t))
			blocks |= 1u << cut_block_of(cut, t);
	}
	return blocks;
}

/* Whether all tokens of the block (those that exist) are among those of the KV block's rows and see
 * the whole KV block. */
static bool block_plain(const struct make *m, const struct cut *cut,
			const struct piece_kv_block *at, uint32_t block, struct interval seen)
{
	const struct work_row *rows = &m->list->rows[cut->strip->row_begin + cut->row_begin];
	uint32_t n = cut->row_end - cut->row_begin, step = cut->dealt ? 1u << cut->blocks_log2 : 1;
	uint32_t t = cut->dealt ? block : block * cut->block_tokens;

	if (t >= n)
		return false;
	for (uint32_t i = 0; i < cut->block_tokens && t < n; i++, t += step) {
		if (t < seen.begin || t >= seen.end)
			return false;
		if (at->causal &&
		    ((int64_t)rows[t].pos < (int64_t)at->kv_block.pos + KV_BLOCK_TOKENS - 1 ||
		     (int64_t)rows[t].low > (int64_t)at->kv_block.pos))
			return false;
	}
	return true;
}

/* Row blocks that have a row. */
static uint32_t blocks_of_all(const struct cut *cut)
{
	uint32_t n_rows = cut->row_end - cut->row_begin;
	uint32_t n = cut->dealt ? min_u32(n_rows, 1u << cut->blocks_log2)
				: ceil_div(n_rows, cut->block_tokens);

	return (1u << n) - 1;
}

/* Row blocks whose rows (those that exist) all see all 8 tokens. */
static uint32_t plain_blocks(const struct make *m, const struct cut *cut,
			     const struct piece_kv_block *at)
{
	const struct device_kv_block *g = &at->kv_block;
	struct interval seen = work_tile_interval(cut, g);
	uint32_t blocks = 0;

	if (g->first != 0 || g->end != KV_BLOCK_TOKENS)
		return 0;
	if (!at->causal && seen.begin == 0 && seen.end == cut->row_end - cut->row_begin)
		return blocks_of_all(cut);
	for (uint32_t b = 0; b < 1u << cut->blocks_log2; b++)
		blocks |= (uint32_t)block_plain(m, cut, at, b, seen) << b;
	return blocks;
}

/* A mask of row blocks as one of the warps that take them in this turn. */
uint32_t cut_warps_in_turn(struct cut *cut, enum queue_kind kind, uint32_t blocks)
{
	uint32_t n_blocks = 1u << cut->blocks_log2, n_splits = DEVICE_WARPS / n_blocks;

	return blocks << (cut->turns[kind]++ % n_splits * n_blocks);
}

/* All warps that have one of the row blocks. */
static uint32_t warps_of(const struct cut *cut, uint32_t blocks)
{
	static const uint32_t one_each[] = {0xff, 0x55, 0x11, 0x01}; /* by blocks_log2 */

	return (blocks & ((1u << (1u << cut->blocks_log2)) - 1)) * one_each[cut->blocks_log2];
}

/* Are the queue's next n KV tiles of whole KV blocks for the same rows, one behind the other? */
static bool are_alike(const struct piece_kv_block *kv_blocks, const struct queue *queue, uint32_t n)
{
	const uint32_t *at = &queue->kv_blocks[queue->used];

	n *= DEVICE_KV_TILE_BLOCKS;
	if (n > queue->n - queue->used || kv_blocks[at[0]].alike_end < at[0] + n)
		return false;
	for (uint32_t i = 1; i < n; i++)
		if (at[i] != at[0] + i)
			return false;
	return true;
}

/* The KV tile's i-th, for these rows. */
static void put_kv_block(const struct piece_kv_block *at, struct interval rows, struct kv_tile to,
			 uint32_t i)
{
	struct device_kv_block *g = &to.meta->kv_blocks[i];

	*g = at->kv_block;
	g->row_begin = (uint16_t)rows.begin;
	g->row_end = (uint16_t)rows.end;
	to.source->kv_blocks[i] = at->source;
}

/* The queue's next KV blocks into n KV tiles: all that is asked of one holds of all, and they
 * differ in where they are. Returns the plain row blocks. */
static uint32_t put_alike(const struct make *m, const struct cut *cut, struct queue *queue,
			  uint32_t n, struct kv_tile to)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	const struct piece_kv_block *at = &kv_blocks[queue->kv_blocks[queue->used]];
	struct interval seen = work_tile_interval(cut, &at->kv_block);
	struct device_kv_block like = at->kv_block;
	uint32_t plain = plain_blocks(m, cut, at);

	like.row_begin = (uint16_t)seen.begin;
	like.row_end = (uint16_t)seen.end;
	for (uint32_t t = 0; t < n; t++)
		for (uint32_t i = 0; i < DEVICE_KV_TILE_BLOCKS; i++, at++) {
			to.meta[t].kv_blocks[i] = like;
			to.meta[t].kv_blocks[i].pos = at->kv_block.pos;
			to.source[t].kv_blocks[i] = at->source;
		}
	queue->used += n * DEVICE_KV_TILE_BLOCKS;
	return plain;
}

/* How many KV blocks of the queue the next KV tile takes. */
static uint32_t next_blocks(const struct queue *queue)
{
	return min_u32(queue->n - queue->used, DEVICE_KV_TILE_BLOCKS);
}

/* The queue's next KV blocks into a KV tile, each by itself. Returns the row blocks that are plain
 * in all. */
static uint32_t put_each(const struct make *m, const struct cut *cut, struct queue *queue,
			 struct kv_tile to)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	const struct piece_kv_block *alike = NULL;
	uint32_t n = next_blocks(queue), plain = n == DEVICE_KV_TILE_BLOCKS ? ~0u : 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct piece_kv_block *at = &kv_blocks[queue->kv_blocks[queue->used + i]];

		put_kv_block(at, work_tile_interval(cut, &at->kv_block), to, i);
		to.meta->causal |= at->causal;
		to.meta->partial |= !kv_block_is_whole(at);
		if (plain && at != alike)
			plain &= plain_blocks(m, cut, at);
		alike = at->alike_end > (uint32_t)(at - kv_blocks) + 1 ? at + 1 : NULL;
	}
	queue->used += n;
	return plain;
}

/* Takes the queue's next KV blocks into n KV tiles, 4 each as long as there are so many. *ret: the
 * first. */
static int emit_kv_tiles(struct make *m, const struct cut *cut, struct queue *queue, uint32_t n,
			 uint32_t warps, struct kv_tile *ret)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t before = queue->used, n_put, plain;
	int r = make_kv_tiles(m, n, ret);

	for (uint32_t t = 0; t < n && !r; t += n_put) {
		struct kv_tile to = {ret->meta + t, ret->source + t};
		bool alike = are_alike(kv_blocks, queue, n - t);

		n_put = alike ? n - t : 1;
		if (alike || are_alike(kv_blocks, queue, 1))
			plain = put_alike(m, cut, queue, n_put, to);
		else
			plain = put_each(m, cut, queue, to);
		for (uint32_t i = 0; i < n_put; i++) {
			to.meta[i].warps = (uint8_t)warps;
			to.meta[i].plain = (uint8_t)(warps & warps_of(cut, plain));
		}
	}
	m->p->n_kv_blocks += queue->used - before;
	return r;
}

/* The next KV tile of a queue of KV tiles. */
static int emit_next(struct make *m, struct cut *cut, uint32_t kind)
{
	struct queue *queue = &cut->queues[kind];
	uint32_t n = next_blocks(queue), blocks = 0;
	struct kv_tile made;

	for (uint32_t i = 0; i < n; i++)
		blocks |= queue->blocks[queue->used + i];
	return emit_kv_tiles(m, cut, queue, 1, cut_warps_in_turn(cut, kind, blocks), &made);
}

/* All warps of warp groups that have one of the row blocks. */
static uint32_t warp_groups_of(uint32_t blocks)
{
	return (blocks & 0x0f ? 0x0f : 0) | (blocks & 0xf0 ? 0xf0 : 0);
}

/* The warps of the queue's wide tile i. */
static uint32_t wide_tile_warps(const struct queue *queue, uint32_t i)
{
	uint32_t blocks = 0;

	if (queue->same)
		return warp_groups_of(queue->same);
	for (uint32_t g = i * WIDE_TILE_BLOCKS; g < (i + 1) * WIDE_TILE_BLOCKS && g < queue->n; g++)
		blocks |= queue->blocks[g];
	return warp_groups_of(blocks);
}

/* How many wide tiles from i on, of those up to end, the same warps take. */
static uint32_t wide_tile_run(const struct cut *cut, uint32_t i, uint32_t end)
{
	const struct queue *queue = &cut->queues[QUEUE_WIDE];
	uint32_t warps = wide_tile_warps(queue, i), run = 1;

	if (DEVICE_WARPS >> cut->blocks_log2 > 1)
		return 1;
	if (queue->same)
		return end - i;
	while (i + run < end && wide_tile_warps(queue, i + run) == warps)
		run++;
	return run;
}

/* Wide tile i, the first of a run. */
static int emit_wide_tile(struct make *m, struct cut *cut, uint32_t i, uint32_t run)
{
	struct queue *queue = &cut->queues[QUEUE_WIDE];
	uint32_t warps = cut_warps_in_turn(cut, QUEUE_WIDE, wide_tile_warps(queue, i));
	struct kv_tile made;
	int r = emit_kv_tiles(m, cut, queue, DEVICE_WIDE_KV_TILES, warps, &made);

	if (r)
		return r;
	for (uint32_t t = 0; t < DEVICE_WIDE_KV_TILES; t++)
		made.meta[t].wide = true;
	made.meta->run = (uint8_t)run;
	made.meta->plain_wide =
		made.meta[0].plain & made.meta[1].plain & made.meta[2].plain & made.meta[3].plain;
	return 0;
}

/* KV tiles that are no wide tiles: block after block in turn, and of the common ones as many as
 * keep pace. */
static int emit_narrow(struct make *m, struct cut *cut, uint32_t *block)
{
	const struct queue *common = &cut->queues[QUEUE_COMMON];
	uint32_t left = 0, left_common = ceil_div(common->n - common->used, DEVICE_KV_TILE_BLOCKS);

	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		left += ceil_div(cut->queues[b].n - cut->queues[b].used, DEVICE_KV_TILE_BLOCKS);
	if (left == 0 || (left_common && *block % (1 + left / left_common) == 0)) {
		(*block)++;
		return left_common ? emit_next(m, cut, QUEUE_COMMON) : 0;
	}
	while (cut->queues[*block % DEVICE_WARPS].used == cut->queues[*block % DEVICE_WARPS].n)
		(*block)++;
	return emit_next(m, cut, (*block)++ % DEVICE_WARPS);
}

static uint32_t kv_tiles_of(const struct queue *queue)
{
	return ceil_div(queue->n, DEVICE_KV_TILE_BLOCKS);
}

/* ---- wide tiles that several work tiles have ------------------------------------------------ */

/* Of the cut's wide tiles the first, whose KV blocks all rows see. The next strip has them, too. */
static uint32_t count_common(const struct make *m, const struct cut *cut)
{
	const struct queue *wide_tiles = &cut->queues[QUEUE_WIDE];
	uint32_t n = 0;

	if (DEVICE_WARPS >> cut->blocks_log2 > 1 || cut->dealt ||
	    m->kept.n_rows != cut->row_end - cut->row_begin)
		return 0;
	while (n < wide_tiles->n && wide_tiles->kv_blocks[n] < m->kept.n_kv_blocks)
		n++;
	return n / WIDE_TILE_BLOCKS;
}

/* Where the queue's i-th KV block lies. */
static uint32_t queued_source(const struct make *m, const struct queue *queue, uint32_t i)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;

	return kv_blocks[queue->kv_blocks[i]].source;
}

/* How many of the cut's first n_common wide tiles the lead has one behind the other; *ret: its KV
 * tile where they begin. */
static uint32_t count_led(const struct make *m, const struct cut *cut, const struct lead *lead,
			  uint32_t n_common, uint32_t *ret)
{
	const struct device_source *sources = m->p->arrays[SCHEDULE_SOURCES].at;
	const struct queue *wide_tiles = &cut->queues[QUEUE_WIDE];
	uint32_t at = lead->kv_tile, end = lead->kv_tile + lead->n_kv_tiles, n = 0;
	uint32_t most = n_common * WIDE_TILE_BLOCKS;

	while (at < end && sources[at].kv_blocks[0] != queued_source(m, wide_tiles, 0))
		at += DEVICE_WIDE_KV_TILES;
	*ret = at;
	most = min_u32(most, (end - at) * DEVICE_KV_TILE_BLOCKS);
	while (n < most &&
	       sources[at + n / DEVICE_KV_TILE_BLOCKS].kv_blocks[n % DEVICE_KV_TILE_BLOCKS] ==
		       queued_source(m, wide_tiles, n))
		n++;
	return n / WIDE_TILE_BLOCKS;
}

/* The next strips have more of the cut's own than of what there was in its place. */
static void lead_put(struct kept *kept, struct lead *old, const struct cut *cut, uint32_t n_common)
{
	if (!old && kept->n_leads == LEADS)
		return;
	old = old ? old : &kept->leads[kept->n_leads++];
	*old = (struct lead){cut->kv_tile, n_common * DEVICE_WIDE_KV_TILES};
}

/* Takes the cut's first wide tiles from where they stand, if these are nearly all that all rows
 * see; else they will stand among its own for others. */
static void share_wide_tiles(struct make *m, struct cut *cut, uint32_t n_wide_tiles)
{
	struct kept *kept = &m->kept;
	uint32_t n_common = count_common(m, cut), n = 0;
	struct lead *lead = NULL;

	if (n_common * DEVICE_WIDE_KV_TILES < DEVICE_FIRST_KV_TILES)
		return;
	for (uint32_t i = 0; i < kept->n_leads && n < n_common; i++) {
		uint32_t at, n_led = count_led(m, cut, &kept->leads[i], n_common, &at);

		if (n_led <= n)
			continue;
		n = n_led;
		lead = &kept->leads[i];
		cut->shared = at;
	}
	if (n < n_common - n_common / 8) {
		lead_put(kept, lead, cut, n_common);
		return;
	}
	cut->n_shared = n * DEVICE_WIDE_KV_TILES;
	cut->queues[QUEUE_WIDE].used = n * WIDE_TILE_BLOCKS;
	m->p->n_kv_blocks += n * WIDE_TILE_BLOCKS;
	cut->shared_run = wide_tile_run(cut, 0, n_wide_tiles);
}

/* ---- the cut's order ------------------------------------------------------------------------- */

/* Between wide tiles as many KV tiles as keep pace, in fours, as wide tiles begin at multiples of
 * four. */
static int emit_queues(struct make *m, struct cut *cut)
{
	struct queue *wide_tiles = &cut->queues[QUEUE_WIDE];
	uint32_t n_narrow = kv_tiles_of(&cut->queues[QUEUE_COMMON]), block = 0, done = 0;
	uint32_t n_wide_tiles = ceil_div(wide_tiles->n, WIDE_TILE_BLOCKS), run, alike = 0;
	int r = 0;

	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		n_narrow += kv_tiles_of(&cut->queues[b]);
	run = n_narrow < DEVICE_WIDE_KV_TILES
		      ? n_wide_tiles
		      : 1 + n_wide_tiles * DEVICE_WIDE_KV_TILES / (n_narrow + 1);
	if (run == n_wide_tiles)
		share_wide_tiles(m, cut, n_wide_tiles);
	run = min_u32(run, UINT8_MAX);
	for (uint32_t i = cut->n_shared / DEVICE_WIDE_KV_TILES; i < n_wide_tiles && !r; i++) {
		uint32_t end = min_u32(n_wide_tiles, (i / run + 1) * run);
		uint32_t due = end == i + 1 ? n_narrow * end / (n_wide_tiles + 1) : 0;

		alike = alike > 1 ? alike - 1 : wide_tile_run(cut, i, end);
		r = emit_wide_tile(m, cut, i, alike);
		for (due -= due % DEVICE_WIDE_KV_TILES; done < due && !r; done++)
			r = emit_narrow(m, cut, &block);
	}
	for (; done < n_narrow && !r; done++)
		r = emit_narrow(m, cut, &block);
	return r;
}

/* Which queue a KV block that these blocks see goes to. */
static uint32_t queue_of(const struct make *m, const struct cut *cut,
			 const struct piece_kv_block *at, uint32_t blocks)
{
	if (m->wide && kv_block_is_whole(at) && cut->blocks_log2 >= 2 && most_of_warps(blocks))
		return QUEUE_WIDE;
	return blocks & (blocks - 1) ? QUEUE_COMMON : (uint32_t)__builtin_ctz(blocks);
}

uint32_t cut_queue_of(const struct make *m, const struct cut *cut, const struct piece_kv_block *at)
{
	uint32_t blocks = work_tile_blocks(m, cut, at);

	return blocks ? queue_of(m, cut, at, blocks) : QUEUE_COMMON;
}

/* A last wide tile of little is left to KV tiles. */
static void spare_wide_tile(struct cut *cut)
{
	struct queue *wide_tiles = &cut->queues[QUEUE_WIDE], *common = &cut->queues[QUEUE_COMMON];
	uint32_t rest = wide_tiles->n % WIDE_TILE_BLOCKS;

	if (rest == 0 || rest > DEVICE_KV_TILE_BLOCKS)
		return;
	wide_tiles->n -= rest;
	common->same = 0;
	for (uint32_t i = 0; i < rest; i++, common->n++) {
		common->kv_blocks[common->n] = wide_tiles->kv_blocks[wide_tiles->n + i];
		common->blocks[common->n] = wide_tiles->blocks[wide_tiles->n + i];
	}
}

/* Twice the KV blocks that the busiest warp folds in KV tiles, and those that all fold in wide
 * tiles, which take half as long. */
static uint32_t busiest(const struct make *m, const struct cut *cut)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t counts[N_QUEUES] = {0}, most = 0;

	for (uint32_t i = cut->begin, end; i < cut->end; i = end) {
		uint32_t blocks = work_tile_blocks(m, cut, &kv_blocks[i]);

		end = min_u32(kv_blocks[i].alike_end, cut->end);
		if (blocks)
			counts[queue_of(m, cut, &kv_blocks[i], blocks)] += end - i;
	}
	for (uint32_t b = 0; b < 1u << cut->blocks_log2; b++)
		most = max_u32(most, counts[b]);
	return 2 * (most + counts[QUEUE_COMMON]) + counts[QUEUE_WIDE];
}

/* Deals tokens to row blocks in turn where neighbours have so unlike amounts to read that some
 * warps would have little to do. */
void kv_tiles_deal(const struct make *m, struct cut *cut)
{
	uint32_t apart, dealt;

	if (cut->blocks_log2 == 0)
		return;
	apart = busiest(m, cut);
	cut->dealt = true;
	dealt = busiest(m, cut);
	cut->dealt = dealt < apart - apart / 4;
}

/* Of the queue's KV blocks from i on: 4, 2 or 1 that lie side by side in the pool. */
static uint32_t side_by_side(const struct make *m, const struct queue *queue, uint32_t i)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t step = make_kv_block_step(m);
	uint32_t n = 1, first = queue->kv_blocks[i], four = DEVICE_KV_TILE_BLOCKS - 1;

	/* they stand in their order */
	if (i + four < queue->n && queue->kv_blocks[i + four] == first + four &&
	    kv_blocks[first].beside_end > first + four)
		return DEVICE_KV_TILE_BLOCKS;
	while (n < DEVICE_KV_TILE_BLOCKS && i + n < queue->n &&
	       kv_blocks[queue->kv_blocks[i + n]].source == kv_blocks[first].source + n * step)
		n++;
	return n == 3 ? 2 : n;
}

/* KV blocks that lie side by side come by one copy if they share a KV tile, and copies have their
 * price: fours before pairs before what stands alone. */
static void order_queue(const struct make *m, struct queue *queue, struct queue *other)
{
	struct queue from = *queue;
	uint32_t n_of[DEVICE_KV_TILE_BLOCKS + 1] = {0}, at[DEVICE_KV_TILE_BLOCKS + 1] = {0};
	uint32_t before = DEVICE_KV_TILE_BLOCKS;
	bool ordered = true;

	for (uint32_t i = 0, n; i < from.n; i += n) {
		n = side_by_side(m, &from, i);
		n_of[n] += n;
		ordered = ordered && n <= before;
		before = n;
	}
	if (ordered)
		return;
	at[2] = n_of[4];
	at[1] = n_of[4] + n_of[2];
	for (uint32_t i = 0, n; i < from.n; i += n) {
		n = side_by_side(m, &from, i);
		memcpy(&other->kv_blocks[at[n]], &from.kv_blocks[i], n * sizeof(*from.kv_blocks));
		memcpy(&other->blocks[at[n]], &from.blocks[i], n * sizeof(*from.blocks));
		at[n] += n;
	}
	*queue = (struct queue){other->kv_blocks, other->blocks, from.n, 0, from.same};
	*other = (struct queue){.kv_blocks = from.kv_blocks, .blocks = from.blocks};
}

/* KV blocks [i, end), each seen by these blocks. */
static void queue_add(struct queue *queue, uint32_t i, uint32_t end, uint32_t blocks)
{
	uint32_t *to_kv_blocks = queue->kv_blocks + queue->n, *to_blocks = queue->blocks + queue->n;
	uint32_t n = end - i;

	queue->same = queue->n == 0 || queue->same == blocks ? blocks : 0;
	for (uint32_t k = 0; k < n; k++)
		to_kv_blocks[k] = i + k;
	for (uint32_t k = 0; k < n; k++)
		to_blocks[k] = blocks;
	queue->n += n;
}

int kv_tiles_make(struct make *m, struct cut *cut)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;
	uint32_t n = cut->end - cut->begin, stride = n + DEVICE_KV_TILE_BLOCKS;
	uint32_t *at = make_scratch(m, QUEUES, (size_t)stride * (N_QUEUES + 1) * 2, sizeof(*at));
	struct queue other;

	if (!at)
		return -ENOMEM;
	for (uint32_t q = 0; q < N_QUEUES; q++, at += (size_t)2 * stride)
		cut->queues[q] = (struct queue){.kv_blocks = at, .blocks = at + stride};
	for (uint32_t i = cut->begin, end; i < cut->end; i = end) {
		uint32_t blocks = work_tile_blocks(m, cut, &kv_blocks[i]);

		end = min_u32(kv_blocks[i].alike_end, cut->end);
		if (blocks)
			queue_add(&cut->queues[queue_of(m, cut, &kv_blocks[i], blocks)], i, end,
				  blocks);
	}
	other = (struct queue){.kv_blocks = at, .blocks = at + stride};
	for (uint32_t q = 0; q < N_QUEUES; q++)
		order_queue(m, &cut->queues[q], &other);
	spare_wide_tile(cut);
	return emit_queues(m, cut);
}
