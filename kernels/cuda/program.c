/*
 * program.c - see program.h.
 *
 * A *strip* is a run of an item's rows that units take together; its groups stand in the list's order, so that a cut
 * anywhere gives two units whose rows are those that see something on their side. In a unit, groups that most row blocks of
 * a warp group see are packed into stages; of the others those that one row block alone sees are dealt to its warps in
 * turn. Stages and slots alternate: the ones wait for the tensor cores, the others for memory.
 */
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nanoseconds of one multiprocessor of an H200, for 1 KB of groups from memory and for the arithmetic of one row block
 * on it, in a slot and in a stage; what a unit costs beyond that; a partial's KB, written and read. They steer cuts,
 * they promise nothing. */
#define READ_NS 28.0
#define SLOT_NS 6.0
#define STAGE_NS 2.6
#define UNIT_NS 700.0
#define PART_NS 30.0
#define MERGE_NS 4000.0
#define N_ROWS_TRIED 4u
#define N_CUTS_TRIED 4u
#define WARP_GROUP 4u /* row blocks that wgmma takes at a time */
#define STAGE_GROUPS (DEVICE_STAGE_SLOTS * DEVICE_SLOT_GROUPS)
#define PATCHES_OF_GROUP 6u

enum scratch { GROUPS, STRIPS, SEEN, COUNTS, BASES, QUEUES, TAILS, UNIT_OF_SLOT };

/* A group of a strip; rows are tokens from the strip's first. */
struct piece_group {
	struct device_group group;
	uint32_t source;
	bool causal; /* some of its rows see some of its tokens by position */
	bool tail; /* ends with its only row's own token, and grows */
};

struct strip {
	uint32_t item;
	uint32_t row_begin, row_end; /* of the list */
	double cost;
};

struct make {
	struct program *p;
	const struct program_want *want;
	uint32_t heads; /* query heads of a KV head */
	uint32_t block_tokens; /* of a row block, at most */
	double read_ns, slot_ns, stage_ns, part_ns; /* of a group, of a group and block, of a row */
	uint32_t n_groups; /* of the strip at hand */
	uint32_t n_strips;
	uint32_t n_seen;
};

/* A row that a unit has something for, in the order of units. */
struct seen {
	uint32_t row, dest;
};

size_t program_entry_bytes(enum program_array array)
{
	static const size_t bytes[] = {
		[PROGRAM_UNITS] = sizeof(struct device_unit),
		[PROGRAM_FIRSTS] = DEVICE_FIRST_SLOTS * sizeof(struct device_source),
		[PROGRAM_SLOTS] = sizeof(struct device_slot),
		[PROGRAM_SOURCES] = sizeof(struct device_source),
		[PROGRAM_DESTS] = sizeof(uint32_t),
		[PROGRAM_MERGES] = sizeof(struct device_merge),
	};

	return bytes[array];
}

static void *room(struct program_memory *memory, size_t n, size_t size)
{
	size_t bytes = n * size;
	void *at;

	if (memory->at && bytes <= memory->bytes)
		return memory->at;
	bytes += bytes / 2 + 4096;
	at = realloc(memory->at, bytes);
	if (!at)
		return NULL;
	memory->at = at;
	memory->bytes = bytes;
	return at;
}

static void *scratch_room(struct make *m, enum scratch which, size_t n, size_t size)
{
	return room(&m->p->scratch[which], n, size);
}

/* The next n entries of an array. */
static void *append(struct make *m, enum program_array array, uint32_t n)
{
	size_t size = program_entry_bytes(array);
	char *at = room(&m->p->arrays[array], (size_t)m->p->n[array] + n, size);

	if (!at)
		return NULL;
	at += m->p->n[array] * size;
	m->p->n[array] += n;
	return at;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t page_source(const struct program_want *want, uint32_t page)
{
	const struct program_pages *pages = &want->pages;

	return (uint32_t)(page / pages->per_extent * pages->extent_sources +
			  page % pages->per_extent * pages->page_sources);
}

/* ---- groups of a strip ------------------------------------------------------------------------------------------- */

/* Does some row of [begin, end) see only some of the tokens up to last? Is there one that sees none from first on? */
static bool is_causal(const struct make *m, uint32_t begin, uint32_t end, uint32_t last)
{
	for (uint32_t row = begin; row < end; row++) {
		if (m->want->list->rows[row].pos < last)
			return true;
	}
	return false;
}

static bool some_row_sees(const struct make *m, const struct strip *strip,
			  const struct device_group *g)
{
	for (uint32_t t = g->row_begin; t < g->row_end; t++) {
		if ((int64_t)m->want->list->rows[strip->row_begin + t].pos >=
		    (int64_t)g->pos + g->first)
			return true;
	}
	return false;
}

/* The group's last token is that of its only row: what follows in the group will be its next ones. */
static bool is_tail(const struct make *m, const struct strip *strip, const struct device_group *g)
{
	return m->want->tails && g->row_end - g->row_begin == 1 &&
	       m->want->list->rows[strip->row_begin + g->row_begin].pos ==
		       (uint32_t)(g->pos + g->end - 1);
}

/* Those tokens of a piece that lie in one group. */
static int add_group(struct make *m, const struct strip *strip, const struct device_group *group,
		     uint32_t source, bool causal)
{
	struct piece_group *at;

	if (causal && !some_row_sees(m, strip, group))
		return 0;
	at = scratch_room(m, GROUPS, (size_t)m->n_groups + 1, sizeof(*at));
	if (!at)
		return -ENOMEM;
	if (causal)
		causal = is_causal(m, strip->row_begin + group->row_begin,
				   strip->row_begin + group->row_end,
				   (uint32_t)(group->pos + group->end - 1));
	at += m->n_groups++;
	*at = (struct piece_group){*group, source, causal, is_tail(m, strip, group)};
	if (at->tail) {
		at->group.end = DEVICE_GROUP_TOKENS;
		at->causal = true;
	}
	return 0;
}

static int add_piece(struct make *m, const struct strip *strip, const struct work_piece *piece)
{
	uint32_t begin = max_u32(piece->row_begin, strip->row_begin);
	uint32_t end = min_u32(piece->row_end, strip->row_end);
	uint32_t step = DEVICE_GROUP_TOKENS * 4 * m->want->shape->head_dim / DEVICE_SOURCE_BYTES;
	uint32_t row = piece->first, last = (uint32_t)piece->first + piece->count, page;
	bool causal;
	int r = 0;

	if (begin >= end)
		return 0;
	causal = is_causal(m, begin, end, piece->pos + piece->count - 1);
	page = page_source(m->want, piece->page);
	while (row < last && !r) {
		uint32_t index = row / DEVICE_GROUP_TOKENS, base = index * DEVICE_GROUP_TOKENS;
		uint32_t stop = min_u32(last, base + DEVICE_GROUP_TOKENS);
		struct device_group group = {
			.pos = (int32_t)((int64_t)piece->pos + base - piece->first),
			.row_begin = (uint16_t)(begin - strip->row_begin),
			.row_end = (uint16_t)(end - strip->row_begin),
			.first = (uint16_t)(row - base),
			.end = (uint16_t)(stop - base),
		};

		r = add_group(m, strip, &group, page + index * step, causal);
		row = stop;
	}
	return r;
}

static int read_strip(struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	int r = 0;

	m->n_groups = 0;
	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		if (tile->row_begin >= strip->row_end || tile->row_end <= strip->row_begin)
			continue;
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces && !r; i++)
			r = add_piece(m, strip, &list->pieces[i]);
	}
	return r;
}

/* ---- rows of a strip, and cuts ----------------------------------------------------------------------------------- */

/* Modelled time of a group that so many row blocks see. */
static double fold_cost(const struct make *m, uint32_t blocks)
{
	double ns = blocks * (m->want->wide && blocks >= WARP_GROUP - 1 ? m->stage_ns : m->slot_ns);

	return ns > m->read_ns ? ns : m->read_ns;
}

/* Modelled time of a piece's groups for some of its rows, without making them. */
static double piece_cost(const struct make *m, const struct strip *strip,
			 const struct work_piece *piece)
{
	uint32_t begin = max_u32(piece->row_begin, strip->row_begin);
	uint32_t end = min_u32(piece->row_end, strip->row_end), blocks;
	double groups =
		(piece->first + piece->count + DEVICE_GROUP_TOKENS - 1) / DEVICE_GROUP_TOKENS -
		piece->first / DEVICE_GROUP_TOKENS;

	if (begin >= end || m->want->list->rows[end - 1].pos < piece->pos)
		return 0;
	blocks = (end - begin + m->block_tokens - 1) / m->block_tokens;
	return groups * fold_cost(m, blocks);
}

static double strip_cost(const struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	double cost = UNIT_NS;

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		if (tile->row_begin >= strip->row_end || tile->row_end <= strip->row_begin)
			continue;
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++)
			cost += piece_cost(m, strip, &list->pieces[i]);
	}
	return cost;
}

static bool wanted(const struct make *m, uint32_t begin, uint32_t end)
{
	for (uint32_t row = begin; row < end; row++) {
		if (!m->want->wanted || m->want->wanted[m->want->list->rows[row].query])
			return true;
	}
	return false;
}

/* All items' rows in strips of so many tokens. */
static int make_strips(struct make *m, uint32_t tokens)
{
	const struct work_list *list = m->want->list;

	m->n_strips = 0;
	for (uint32_t i = 0; i < list->n_items; i++) {
		const struct work_item *item = &list->items[i];

		for (uint32_t row = item->row_begin; row < item->row_end; row += tokens) {
			struct strip *strips =
				scratch_room(m, STRIPS, (size_t)m->n_strips + 1, sizeof(*strips));
			struct strip *strip;

			if (!strips)
				return -ENOMEM;
			strip = &strips[m->n_strips];
			*strip = (struct strip){i, row, min_u32(item->row_end, row + tokens), 0};
			if (!wanted(m, strip->row_begin, strip->row_end))
				continue;
			strip->cost = strip_cost(m, strip);
			m->n_strips++;
		}
	}
	return 0;
}

static const struct strip *strips_of(const struct make *m)
{
	return m->p->scratch[STRIPS].at;
}

static uint32_t cuts_of(const struct strip *strip, double limit_ns)
{
	double n = strip->cost / limit_ns;

	return n <= 1.15 ? 1 : (uint32_t)(n + 0.85);
}

/* Time of all units if none is to take longer than limit_ns, cuts' partials and the merge included. */
static double time_of(const struct make *m, double limit_ns)
{
	const struct strip *strips = strips_of(m);
	double total = 0, longest = 0, n_units = 0, time, waves;
	bool cut = false;

	for (uint32_t i = 0; i < m->n_strips; i++) {
		uint32_t n = cuts_of(&strips[i], limit_ns);
		double unit = strips[i].cost / n;

		if (n > 1)
			unit += UNIT_NS + (strips[i].row_end - strips[i].row_begin) * m->part_ns;
		cut = cut || n > 1;
		total += unit * n;
		n_units += n;
		longest = unit > longest ? unit : longest;
	}
	total *= m->want->shape->n_kv_heads;
	n_units *= m->want->shape->n_kv_heads;
	time = total / m->want->n_blocks;
	waves = n_units / m->want->n_blocks;
	if (waves <= 4)
		time *= (double)(uint64_t)(waves + 0.999) / (waves > 0 ? waves : 1);
	else
		time += 0.4 * longest;
	return (time > longest ? time : longest) + (cut ? MERGE_NS : 0);
}

static double total_of(const struct make *m)
{
	double total = 0;

	for (uint32_t i = 0; i < m->n_strips; i++)
		total += strips_of(m)[i].cost;
	return total * m->want->shape->n_kv_heads;
}

/* The best limit for strips of these rows, and its time. */
static double best_limit(const struct make *m, double *ret_limit_ns)
{
	static const double shares[N_CUTS_TRIED] = {1e9, 1.05, 0.55, 0.36};
	double best = 0;

	for (uint32_t i = 0; i < N_CUTS_TRIED; i++) {
		double limit = total_of(m) / m->want->n_blocks * shares[i], time;

		limit = limit > 2 * UNIT_NS ? limit : 2 * UNIT_NS;
		time = time_of(m, limit);
		if (i == 0 || time < best) {
			best = time;
			*ret_limit_ns = limit;
		}
	}
	return best;
}

static int choose(struct make *m, double *ret_limit_ns)
{
	uint32_t best_tokens = 0;
	double best = 0, limit;
	int r;

	for (uint32_t i = 0; i < N_ROWS_TRIED; i++) {
		uint32_t tokens = (DEVICE_WARPS >> i) * m->block_tokens;
		double time;

		if (tokens == 0)
			break;
		r = make_strips(m, tokens);
		if (r)
			return r;
		time = best_limit(m, &limit);
		if (i == 0 || time < best) {
			best = time;
			best_tokens = tokens;
			*ret_limit_ns = limit;
		}
	}
	return make_strips(m, best_tokens);
}

/* ---- slots of a unit --------------------------------------------------------------------------------------------- */

/* Groups that go into slots of one kind, in the order in which they came. */
struct queue {
	uint32_t *groups; /* indices of the strip's */
	uint32_t *blocks; /* of the unit, of each */
	uint32_t n, used;
};

enum queue_kind { QUEUE_COMMON = DEVICE_WARPS, QUEUE_STAGES, N_QUEUES };

/* A unit under way: groups [begin, end) of the strip, rows (tokens) [row_begin, row_end) of it. */
struct cut {
	const struct strip *strip;
	uint32_t begin, end;
	uint32_t row_begin, row_end;
	uint32_t blocks_log2;
	uint32_t block_tokens;
	bool dealt; /* tokens to blocks in turn */
	bool old; /* without tails, where others have some */
	uint32_t slot; /* the unit's first */
	uint32_t turns[N_QUEUES]; /* slots or stages dealt so far */
	struct queue queues[N_QUEUES];
};

static bool row_sees(const struct make *m, const struct strip *strip, const struct piece_group *at,
		     uint32_t token)
{
	const struct device_group *g = &at->group;

	if (token < g->row_begin || token >= g->row_end)
		return false;
	return !at->causal || (int64_t)m->want->list->rows[strip->row_begin + token].pos >=
				      (int64_t)g->pos + g->first;
}

/* Tokens of the group's rows in the unit. */
static void unit_interval(const struct cut *cut, const struct device_group *g, uint32_t *ret_begin,
			  uint32_t *ret_end)
{
	*ret_begin = max_u32(g->row_begin, cut->row_begin) - cut->row_begin;
	*ret_end = min_u32(g->row_end, cut->row_end);
	*ret_end = *ret_end > cut->row_begin ? *ret_end - cut->row_begin : 0;
}

static uint32_t block_of(const struct cut *cut, uint32_t token)
{
	return cut->dealt ? token & ((1u << cut->blocks_log2) - 1) : token / cut->block_tokens;
}

/* Row blocks of the unit with a row that sees something of the group. */
static uint32_t unit_blocks(const struct make *m, const struct cut *cut,
			    const struct piece_group *at)
{
	uint32_t begin, end, blocks = 0;

	unit_interval(cut, &at->group, &begin, &end);
	if (begin >= end)
		return 0;
	if (cut->dealt && end - begin >= 1u << cut->blocks_log2 && !at->causal)
		return (1u << (1u << cut->blocks_log2)) - 1;
	if (!cut->dealt && !at->causal) {
		uint32_t first = begin / cut->block_tokens, last = (end - 1) / cut->block_tokens;

		return (2u << last) - (1u << first);
	}
	for (uint32_t t = begin; t < end; t++) {
		if (row_sees(m, cut->strip, at, cut->row_begin + t))
			blocks |= 1u << block_of(cut, t);
	}
	return blocks;
}

/* Whether all tokens of the block (those that exist) lie in [begin, end) and see the whole group. */
static bool block_plain(const struct make *m, const struct cut *cut, const struct piece_group *at,
			uint32_t block, uint32_t begin, uint32_t end)
{
	const struct work_row *rows = &m->want->list->rows[cut->strip->row_begin + cut->row_begin];
	uint32_t n = cut->row_end - cut->row_begin, step = cut->dealt ? 1u << cut->blocks_log2 : 1;
	uint32_t t = cut->dealt ? block : block * cut->block_tokens;

	if (t >= n)
		return false;
	for (uint32_t i = 0; i < cut->block_tokens && t < n; i++, t += step) {
		if (t < begin || t >= end)
			return false;
		if (at->causal &&
		    (int64_t)rows[t].pos < (int64_t)at->group.pos + DEVICE_GROUP_TOKENS - 1)
			return false;
	}
	return true;
}

/* Row blocks whose rows (those that exist) all see all 8 tokens. */
static uint32_t plain_blocks(const struct make *m, const struct cut *cut,
			     const struct piece_group *at)
{
	const struct device_group *g = &at->group;
	uint32_t begin, end, blocks = 0;

	unit_interval(cut, g, &begin, &end);
	if (g->first != 0 || g->end != DEVICE_GROUP_TOKENS)
		return 0;
	for (uint32_t b = 0; b < 1u << cut->blocks_log2; b++)
		blocks |= (uint32_t)block_plain(m, cut, at, b, begin, end) << b;
	return blocks;
}

/* A mask of row blocks as one of the warps that take them in this turn. */
static uint32_t warps_in_turn(struct cut *cut, enum queue_kind kind, uint32_t blocks)
{
	uint32_t n_blocks = 1u << cut->blocks_log2, n_splits = DEVICE_WARPS / n_blocks;

	return blocks << (cut->turns[kind]++ % n_splits * n_blocks);
}

/* Takes up to 4 of the queue's groups into a slot. */
static int emit_slot(struct make *m, struct cut *cut, struct queue *queue, uint32_t n,
		     uint32_t warps, bool wide)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	struct device_slot *slot = append(m, PROGRAM_SLOTS, 1);
	struct device_source *source = append(m, PROGRAM_SOURCES, 1);
	uint32_t plain = n == DEVICE_SLOT_GROUPS ? ~0u : 0;

	if (!slot || !source)
		return -ENOMEM;
	memset(slot, 0, sizeof(*slot));
	memset(source, 0xff, sizeof(*source));
	for (uint32_t i = 0; i < n; i++) {
		const struct piece_group *at = &groups[queue->groups[queue->used++]];
		struct device_group *g = &slot->groups[i];
		uint32_t begin, end;

		unit_interval(cut, &at->group, &begin, &end);
		*g = at->group;
		g->row_begin = (uint16_t)begin;
		g->row_end = (uint16_t)end;
		source->groups[i] = at->source;
		slot->causal |= at->causal;
		if (plain)
			plain &= plain_blocks(m, cut, at);
	}
	slot->warps = (uint8_t)warps;
	for (uint32_t w = 0; w < DEVICE_WARPS; w++) {
		if (warps >> w & 1 && plain >> (w & ((1u << cut->blocks_log2) - 1)) & 1)
			slot->plain |= (uint8_t)(1u << w);
	}
	slot->wide = wide;
	m->p->n_groups += n;
	return 0;
}

/* The next slot of a queue of slots. */
static int emit_next(struct make *m, struct cut *cut, uint32_t kind)
{
	struct queue *queue = &cut->queues[kind];
	uint32_t n = min_u32(queue->n - queue->used, DEVICE_SLOT_GROUPS), blocks = 0;

	for (uint32_t i = 0; i < n; i++)
		blocks |= queue->blocks[queue->used + i];
	return emit_slot(m, cut, queue, n, warps_in_turn(cut, kind, blocks), false);
}

/* The warps of the queue's stage i. */
static uint32_t stage_warps(const struct queue *queue, uint32_t i)
{
	uint32_t warps = 0;

	for (uint32_t g = i * STAGE_GROUPS; g < (i + 1) * STAGE_GROUPS && g < queue->n; g++)
		warps |=
			(queue->blocks[g] & 0x0f ? 0x0f : 0) | (queue->blocks[g] & 0xf0 ? 0xf0 : 0);
	return warps;
}

/* Stage i, of those up to end that follow each other. */
static int emit_stage(struct make *m, struct cut *cut, uint32_t i, uint32_t end)
{
	struct queue *queue = &cut->queues[QUEUE_STAGES];
	uint32_t n = min_u32(queue->n - queue->used, STAGE_GROUPS), run = 0;
	uint32_t warps = warps_in_turn(cut, QUEUE_STAGES, stage_warps(queue, i));
	uint32_t first = m->p->n[PROGRAM_SLOTS], n_splits = DEVICE_WARPS >> cut->blocks_log2;
	struct device_slot *slots;
	int r = 0;

	while (i + run < end &&
	       (run == 0 || (n_splits == 1 && stage_warps(queue, i + run) == warps)))
		run++;
	for (uint32_t g = 0; g < STAGE_GROUPS && !r; g += DEVICE_SLOT_GROUPS)
		r = emit_slot(m, cut, queue, n > g ? min_u32(n - g, DEVICE_SLOT_GROUPS) : 0, warps,
			      true);
	if (r)
		return r;
	slots = (struct device_slot *)m->p->arrays[PROGRAM_SLOTS].at + first;
	slots[0].run = (uint8_t)run;
	slots[0].plain_stage = slots[0].plain & slots[1].plain & slots[2].plain & slots[3].plain;
	return 0;
}

/* Slots that are no stages: block after block in turn, and of the common ones as many as keep pace. */
static int emit_narrow(struct make *m, struct cut *cut, uint32_t *block)
{
	const struct queue *common = &cut->queues[QUEUE_COMMON];
	uint32_t left = 0, left_common = (common->n - common->used + DEVICE_SLOT_GROUPS - 1) /
					 DEVICE_SLOT_GROUPS;

	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		left += (cut->queues[b].n - cut->queues[b].used + DEVICE_SLOT_GROUPS - 1) /
			DEVICE_SLOT_GROUPS;
	if (left == 0 || (left_common && *block % (1 + left / left_common) == 0)) {
		(*block)++;
		return left_common ? emit_next(m, cut, QUEUE_COMMON) : 0;
	}
	while (cut->queues[*block % DEVICE_WARPS].used == cut->queues[*block % DEVICE_WARPS].n)
		(*block)++;
	return emit_next(m, cut, (*block)++ % DEVICE_WARPS);
}

static uint32_t slots_of(const struct queue *queue)
{
	return (queue->n + DEVICE_SLOT_GROUPS - 1) / DEVICE_SLOT_GROUPS;
}

/* Between stages as many slots as keep pace, in fours, as stages begin at multiples of four. */
static int emit_queues(struct make *m, struct cut *cut)
{
	struct queue *stages = &cut->queues[QUEUE_STAGES];
	uint32_t n_narrow = slots_of(&cut->queues[QUEUE_COMMON]), block = 0, done = 0;
	uint32_t n_stages = (stages->n + STAGE_GROUPS - 1) / STAGE_GROUPS, run;
	int r = 0;

	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		n_narrow += slots_of(&cut->queues[b]);
	run = n_narrow < DEVICE_STAGE_SLOTS ? n_stages
					    : 1 + n_stages * DEVICE_STAGE_SLOTS / (n_narrow + 1);
	run = min_u32(run, UINT8_MAX);
	for (uint32_t i = 0; i < n_stages && !r; i++) {
		uint32_t end = min_u32(n_stages, (i / run + 1) * run);
		uint32_t due = end == i + 1 ? n_narrow * end / (n_stages + 1) : 0;

		r = emit_stage(m, cut, i, end);
		for (due -= due % DEVICE_STAGE_SLOTS; done < due && !r; done++)
			r = emit_narrow(m, cut, &block);
	}
	for (; done < n_narrow && !r; done++)
		r = emit_narrow(m, cut, &block);
	return r;
}

/* Tokens of the unit's row blocks that have tails. */
struct tails {
	uint32_t tokens[DEVICE_WARPS][DEVICE_BLOCK_ROWS];
	uint32_t groups[DEVICE_WARPS][DEVICE_BLOCK_ROWS];
	uint32_t n[DEVICE_WARPS];
};

static void find_tails(const struct make *m, const struct cut *cut, struct tails *ret)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;

	memset(ret->n, 0, sizeof(ret->n));
	for (uint32_t i = cut->begin; i < cut->end; i++) {
		uint32_t token, block;

		if (!groups[i].tail)
			continue;
		token = groups[i].group.row_begin - cut->row_begin;
		block = block_of(cut, token);
		ret->groups[block][ret->n[block]] =
			(uint32_t)groups[i].group.pos / DEVICE_GROUP_TOKENS;
		ret->tokens[block][ret->n[block]++] = token;
	}
}

/* Sets the k-th group aside for up to 4 of the block's tails, from i on. */
static int reserve_slot(struct make *m, struct cut *cut, const struct tails *tails, uint32_t block,
			uint32_t i, uint32_t k)
{
	struct program_tail *all = m->p->scratch[TAILS].at;
	uint32_t index = m->p->n[PROGRAM_SLOTS];
	struct device_slot *slot = append(m, PROGRAM_SLOTS, 1);
	struct device_source *source = append(m, PROGRAM_SOURCES, 1);
	uint32_t warps = warps_in_turn(cut, block, 1u << block);

	if (!slot || !source)
		return -ENOMEM;
	memset(slot, 0, sizeof(*slot));
	memset(source, 0xff, sizeof(*source));
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS && i + j < tails->n[block]; j++) {
		uint32_t token = tails->tokens[block][i + j];
		struct program_tail *tail = &all[cut->strip->row_begin + cut->row_begin + token];

		tail->slots[k] = index;
		tail->groups[k] = (uint8_t)j;
		tail->warps[k] = (uint8_t)warps;
		tail->unit_slot = cut->slot;
		tail->token = token;
		tail->group = tails->groups[block][i + j];
		tail->unit = 0;
	}
	return 0;
}

/* Groups that come at the same time share slots. */
static int reserve_tails(struct make *m, struct cut *cut)
{
	struct tails tails;
	int r = 0;

	find_tails(m, cut, &tails);
	cut->old = true;
	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		cut->old = cut->old && tails.n[b] == 0;
	for (uint32_t k = 0; k < PROGRAM_TAIL_GROUPS; k++) {
		for (uint32_t b = 0; b < DEVICE_WARPS; b++) {
			for (uint32_t i = 0; i < tails.n[b] && !r; i += DEVICE_SLOT_GROUPS)
				r = reserve_slot(m, cut, &tails, b, i, k);
		}
	}
	return r;
}

/* Which queue a group that these blocks see goes to. */
static uint32_t queue_of(const struct make *m, const struct cut *cut, const struct piece_group *at,
			 uint32_t blocks)
{
	bool whole = !at->causal && at->group.first == 0 && at->group.end == DEVICE_GROUP_TOKENS;

	bool wide = __builtin_popcount(blocks & 0x0f) >= (int)WARP_GROUP - 1 ||
		    __builtin_popcount(blocks & 0xf0) >= (int)WARP_GROUP - 1;

	if (m->want->wide && wide && whole && cut->blocks_log2 >= 2)
		return QUEUE_STAGES;
	return blocks & (blocks - 1) ? QUEUE_COMMON : (uint32_t)__builtin_ctz(blocks);
}

/* A last stage of little is left to slots. */
static void spare_stage(struct cut *cut)
{
	struct queue *stages = &cut->queues[QUEUE_STAGES], *common = &cut->queues[QUEUE_COMMON];
	uint32_t rest = stages->n % STAGE_GROUPS;

	if (rest == 0 || rest > DEVICE_SLOT_GROUPS)
		return;
	stages->n -= rest;
	for (uint32_t i = 0; i < rest; i++, common->n++) {
		common->groups[common->n] = stages->groups[stages->n + i];
		common->blocks[common->n] = stages->blocks[stages->n + i];
	}
}

/* Twice the groups that the busiest warp folds in slots, and those that all fold in stages, which take half as long. */
static uint32_t busiest(const struct make *m, const struct cut *cut)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	uint32_t counts[N_QUEUES] = {0}, most = 0;

	for (uint32_t i = cut->begin; i < cut->end; i++) {
		uint32_t blocks = unit_blocks(m, cut, &groups[i]);

		if (blocks)
			counts[queue_of(m, cut, &groups[i], blocks)]++;
	}
	for (uint32_t b = 0; b < 1u << cut->blocks_log2; b++)
		most = max_u32(most, counts[b]);
	return 2 * (most + counts[QUEUE_COMMON]) + counts[QUEUE_STAGES];
}

/* Deals tokens to row blocks in turn where neighbours have so unlike amounts to read that some warps would have little to do. */
static void choose_dealt(const struct make *m, struct cut *cut)
{
	uint32_t apart, dealt;

	if (cut->blocks_log2 == 0)
		return;
	apart = busiest(m, cut);
	cut->dealt = true;
	dealt = busiest(m, cut);
	cut->dealt = dealt < apart - apart / 4;
}

static int make_slots(struct make *m, struct cut *cut)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	uint32_t n = cut->end - cut->begin, stride = n + DEVICE_SLOT_GROUPS;
	uint32_t *at = scratch_room(m, QUEUES, (size_t)stride * N_QUEUES * 2, sizeof(*at));

	if (!at)
		return -ENOMEM;
	for (uint32_t q = 0; q < N_QUEUES; q++, at += (size_t)2 * stride)
		cut->queues[q] = (struct queue){.groups = at, .blocks = at + stride};
	for (uint32_t i = cut->begin; i < cut->end; i++) {
		uint32_t blocks = unit_blocks(m, cut, &groups[i]);
		struct queue *queue;

		if (!blocks)
			continue;
		queue = &cut->queues[queue_of(m, cut, &groups[i], blocks)];
		queue->groups[queue->n] = i;
		queue->blocks[queue->n++] = blocks;
	}
	spare_stage(cut);
	return emit_queues(m, cut);
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

/* Rows that see something of the cut's groups: marks them, and narrows the cut to them. */
static void find_rows(const struct make *m, struct cut *cut, bool *sees)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	uint32_t n_rows = cut->strip->row_end - cut->strip->row_begin;

	memset(sees, 0, n_rows * sizeof(*sees));
	for (uint32_t i = cut->begin; i < cut->end; i++) {
		const struct device_group *g = &groups[i].group;

		if (i > cut->begin && !groups[i].causal && !groups[i - 1].causal &&
		    g->row_begin == groups[i - 1].group.row_begin &&
		    g->row_end == groups[i - 1].group.row_end)
			continue;
		for (uint32_t t = g->row_begin; t < g->row_end; t++)
			sees[t] = sees[t] || row_sees(m, cut->strip, &groups[i], t);
	}
	cut->row_begin = 0;
	cut->row_end = n_rows;
	while (cut->row_begin < n_rows && !sees[cut->row_begin])
		cut->row_begin++;
	while (cut->row_end > cut->row_begin && !sees[cut->row_end - 1])
		cut->row_end--;
}

/* Each row's place in the unit; which of them are partials is known only when all units are made. */
static int make_dests(struct make *m, const struct cut *cut, const bool *sees)
{
	uint32_t n = cut->row_end - cut->row_begin, at = m->p->n[PROGRAM_DESTS];
	uint32_t *dests = append(m, PROGRAM_DESTS, n);
	uint32_t *counts = m->p->scratch[COUNTS].at;
	struct seen *seen = scratch_room(m, SEEN, (size_t)m->n_seen + n, sizeof(*seen));

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

static int make_unit(struct make *m, struct cut *cut)
{
	bool sees[DEVICE_UNIT_ROWS];
	struct device_unit *unit;
	uint32_t n_rows, n_slots = 0, dest = m->p->n[PROGRAM_DESTS];
	int r;

	find_rows(m, cut, sees);
	if (cut->row_begin == cut->row_end)
		return 0;
	n_rows = cut->row_end - cut->row_begin;
	while (m->block_tokens << cut->blocks_log2 < n_rows)
		cut->blocks_log2++;
	cut->block_tokens = (n_rows + (1u << cut->blocks_log2) - 1) >> cut->blocks_log2;
	choose_dealt(m, cut);
	cut->slot = m->p->n[PROGRAM_SLOTS];
	r = make_dests(m, cut, sees);
	if (!r)
		r = make_slots(m, cut);
	n_slots = m->p->n[PROGRAM_SLOTS] - cut->slot;
	if (!r && m->want->tails)
		r = reserve_tails(m, cut);
	unit = r ? NULL : append(m, PROGRAM_UNITS, 1);
	if (!unit)
		return -ENOMEM;
	*unit = (struct device_unit){
		.row = cut->strip->row_begin + cut->row_begin,
		.n_rows = cut->row_end - cut->row_begin,
		.slot = cut->slot,
		.n_slots = n_slots,
		.dest = dest,
		.blocks_log2 = cut->blocks_log2,
		.flags = (cut->queues[QUEUE_STAGES].n > 0 ? DEVICE_UNIT_WIDE : 0) |
			 (cut->dealt ? DEVICE_UNIT_DEALT : 0) | (cut->old ? DEVICE_UNIT_OLD : 0),
		.block_tokens = cut->block_tokens,
	};
	return 0;
}

static double group_cost(const struct make *m, const struct piece_group *at)
{
	return fold_cost(m, (at->group.row_end - at->group.row_begin + m->block_tokens - 1) /
				    m->block_tokens);
}

/* Cuts the strip at equal cost, in whole slots. */
static int make_units(struct make *m, const struct strip *strip, double limit_ns)
{
	const struct piece_group *groups;
	double total = 0, sum = 0;
	uint32_t n = cuts_of(strip, limit_ns), begin = 0, end = 0;
	int r = read_strip(m, strip);

	groups = m->p->scratch[GROUPS].at;
	for (uint32_t i = 0; i < m->n_groups; i++)
		total += group_cost(m, &groups[i]);
	for (uint32_t k = 1; k <= n && !r; k++, begin = end) {
		struct cut cut = {.strip = strip, .begin = begin};

		while (end < m->n_groups &&
		       (sum < total * k / n || (end - begin) % DEVICE_SLOT_GROUPS || k == n))
			sum += group_cost(m, &groups[end++]);
		cut.end = end;
		if (begin < end)
			r = make_unit(m, &cut);
	}
	return r;
}

/* Rows of one unit alone go to the output; the others get partials side by side, in the order of units. */
static int place_rows(struct make *m)
{
	const struct work_list *list = m->want->list;
	uint32_t *counts = m->p->scratch[COUNTS].at, *dests = m->p->arrays[PROGRAM_DESTS].at;
	uint32_t *bases = scratch_room(m, BASES, list->n_rows + 1, sizeof(*bases));
	const struct seen *seen = m->p->scratch[SEEN].at;

	if (!bases)
		return -ENOMEM;
	for (uint32_t row = 0; row < list->n_rows; row++) {
		struct device_merge *merge;

		bases[row] = m->p->n_parts;
		if (counts[row] == 1 || !wanted(m, row, row + 1))
			continue;
		merge = append(m, PROGRAM_MERGES, 1);
		if (!merge)
			return -ENOMEM;
		*merge = (struct device_merge){row, m->p->n_parts, counts[row], 0};
		m->p->n_parts += counts[row];
		m->p->most_parts = max_u32(m->p->most_parts, counts[row]);
	}
	for (uint32_t i = 0; i < m->n_seen; i++) {
		uint32_t row = seen[i].row;

		if (counts[row] == 1)
			dests[seen[i].dest] = DEVICE_NONE;
		else if (wanted(m, row, row + 1))
			dests[seen[i].dest] = bases[row]++;
	}
	return 0;
}

/* Longest first; equals in their order. */
static int compare_units(const void *left, const void *right)
{
	const struct device_unit *a = left, *b = right;

	if (a->n_slots != b->n_slots)
		return a->n_slots < b->n_slots ? 1 : -1;
	return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int make_firsts(struct make *m)
{
	uint32_t n = m->p->n[PROGRAM_UNITS];
	struct device_source *firsts = append(m, PROGRAM_FIRSTS, n);
	const struct device_unit *units = m->p->arrays[PROGRAM_UNITS].at;
	const struct device_source *sources = m->p->arrays[PROGRAM_SOURCES].at;

	if (!firsts)
		return n ? -ENOMEM : 0;
	memset(firsts, 0xff, n * program_entry_bytes(PROGRAM_FIRSTS));
	for (uint32_t i = 0; i < n; i++, firsts += DEVICE_FIRST_SLOTS)
		memcpy(firsts, &sources[units[i].slot],
		       min_u32(units[i].n_slots, DEVICE_FIRST_SLOTS) * sizeof(*firsts));
	return 0;
}

/* Tails know their unit by its first slot until units are sorted. */
static int place_tails(struct make *m)
{
	const struct device_unit *units = m->p->arrays[PROGRAM_UNITS].at;
	struct program_tail *tails = m->p->scratch[TAILS].at;
	uint32_t *unit_of =
		scratch_room(m, UNIT_OF_SLOT, (size_t)m->p->n[PROGRAM_SLOTS] + 1, sizeof(*unit_of));

	if (!unit_of)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->p->n[PROGRAM_UNITS]; i++)
		unit_of[units[i].slot] = i;
	for (uint32_t row = 0; row < m->want->list->n_rows; row++) {
		if (tails[row].unit != PROGRAM_NO_TAIL)
			tails[row].unit = unit_of[tails[row].unit_slot];
	}
	m->p->tails = tails;
	return 0;
}

static int clear_tails(struct make *m)
{
	uint32_t n = m->want->list->n_rows;
	struct program_tail *tails = scratch_room(m, TAILS, (size_t)n + 1, sizeof(*tails));

	if (!tails)
		return -ENOMEM;
	for (uint32_t row = 0; row < n; row++)
		tails[row] = (struct program_tail){.unit = PROGRAM_NO_TAIL};
	return 0;
}

static int make_all(struct make *m, double limit_ns)
{
	uint32_t *counts =
		scratch_room(m, COUNTS, (size_t)m->want->list->n_rows + 1, sizeof(*counts));
	int r = 0;

	if (!counts)
		return -ENOMEM;
	memset(counts, 0, m->want->list->n_rows * sizeof(*counts));
	if (m->want->tails)
		r = clear_tails(m);
	for (uint32_t i = 0; i < m->n_strips && !r; i++)
		r = make_units(m, &strips_of(m)[i], limit_ns);
	if (!r)
		r = place_rows(m);
	if (!r && m->p->n[PROGRAM_UNITS] > 1)
		qsort(m->p->arrays[PROGRAM_UNITS].at, m->p->n[PROGRAM_UNITS],
		      sizeof(struct device_unit), compare_units);
	if (!r)
		r = make_firsts(m);
	return r || !m->want->tails ? r : place_tails(m);
}

int program_make(struct program *program, const struct program_want *want)
{
	double group_kb = DEVICE_GROUP_TOKENS * 4.0 * want->shape->head_dim / 1024, limit_ns = 0;
	uint32_t heads = want->shape->n_q_heads / want->shape->n_kv_heads;
	struct make m = {
		.p = program,
		.want = want,
		.heads = heads,
		.read_ns = READ_NS * group_kb,
		.block_tokens = DEVICE_BLOCK_ROWS / heads,
		.slot_ns = SLOT_NS * group_kb,
		.stage_ns = STAGE_NS * group_kb,
		.part_ns = PART_NS * heads * want->shape->head_dim * 8 / 1024,
	};
	int r;

	memset(program->n, 0, sizeof(program->n));
	program->n_parts = 0;
	program->most_parts = 0;
	program->tails = NULL;
	program->n_groups = 0;
	r = choose(&m, &limit_ns);
	return r ? r : make_all(&m, limit_ns);
}

/* ---- the next tokens ------------------------------------------------------------------------------------------------ */

int program_growth_init(struct program_growth *growth, const struct program *program)
{
	const struct device_unit *units = program->arrays[PROGRAM_UNITS].at;
	uint32_t n = program->n[PROGRAM_UNITS];

	*growth = (struct program_growth){.unit_slots = calloc(n + 1, sizeof(uint32_t)),
					  .unit_patches = calloc(n + 1, sizeof(uint32_t)),
					  .n_units = n};
	if (!growth->unit_slots || !growth->unit_patches) {
		program_growth_done(growth);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		growth->unit_slots[i] = units[i].n_slots;
	return 0;
}

void program_growth_written(struct program_growth *growth)
{
	for (uint32_t i = 0; i < growth->n_patches; i++) {
		const struct program_patch *patch = &growth->patches[i];

		if (patch->array == PROGRAM_UNITS)
			growth->unit_patches[patch->offset / sizeof(struct device_unit)] = 0;
	}
	growth->n_patches = 0;
}

void program_growth_done(struct program_growth *growth)
{
	free(growth->unit_slots);
	free(growth->unit_patches);
	free(growth->patches);
	*growth = (struct program_growth){0};
}

static int room_for_patches(struct program_growth *growth, uint32_t n)
{
	uint32_t want = 2 * growth->patches_room + 256;
	void *at;

	if (growth->n_patches + n <= growth->patches_room)
		return 0;
	at = realloc(growth->patches, want * sizeof(*growth->patches));
	if (!at)
		return -ENOMEM;
	growth->patches = at;
	growth->patches_room = want;
	return 0;
}

static void add_patch(struct program_growth *growth, enum program_array array, uint32_t offset,
		      uint32_t value)
{
	growth->patches[growth->n_patches++] = (struct program_patch){array, offset, value};
}

/* Words of the k-th group set aside, as it comes into use. */
static void patch_group(const struct program_tail *tail, uint32_t k, uint32_t pos, uint32_t source,
			struct program_growth *to)
{
	uint32_t slot = tail->slots[k], j = tail->groups[k];
	uint32_t in_slots = slot * (uint32_t)sizeof(struct device_slot);
	uint32_t in_group = in_slots + j * (uint32_t)sizeof(struct device_group);
	uint32_t rows = tail->token | (tail->token + 1) << 16;
	uint32_t flags = in_slots + (uint32_t)offsetof(struct device_slot, warps);

	add_patch(to, PROGRAM_SLOTS, in_group, pos);
	add_patch(to, PROGRAM_SLOTS, in_group + 4, rows);
	add_patch(to, PROGRAM_SLOTS, in_group + 8, DEVICE_GROUP_TOKENS << 16);
	add_patch(to, PROGRAM_SLOTS, flags, tail->warps[k] | 1u << 24);
	add_patch(to, PROGRAM_SOURCES, slot * 16 + j * 4, source);
	if (slot - tail->unit_slot < DEVICE_FIRST_SLOTS)
		add_patch(to, PROGRAM_FIRSTS,
			  (tail->unit * DEVICE_FIRST_SLOTS + slot - tail->unit_slot) * 16 + j * 4,
			  source);
}

/* Patches are written side by side: rows of one unit that make it longer, each by another slot, share a patch. */
static void patch_unit(struct program_growth *growth, uint32_t unit, uint32_t n_slots)
{
	uint32_t *patch = &growth->unit_patches[unit];

	if (n_slots <= growth->unit_slots[unit])
		return;
	growth->unit_slots[unit] = n_slots;
	if (*patch == 0) {
		add_patch(growth, PROGRAM_UNITS,
			  unit * (uint32_t)sizeof(struct device_unit) +
				  (uint32_t)offsetof(struct device_unit, n_slots),
			  n_slots);
		*patch = growth->n_patches;
	}
	growth->patches[*patch - 1].value = n_slots;
}

int program_advance(struct program_tail *tail, uint32_t pos, uint32_t source,
		    struct program_growth *growth)
{
	uint32_t group = pos / DEVICE_GROUP_TOKENS;

	if (tail->unit == PROGRAM_NO_TAIL)
		return -ESTALE;
	if (group == tail->group)
		return 0;
	if (group != tail->group + 1 || tail->used == PROGRAM_TAIL_GROUPS)
		return -ESTALE;
	if (room_for_patches(growth, PATCHES_OF_GROUP + 1) != 0)
		return -ENOMEM;
	patch_group(tail, tail->used, group * DEVICE_GROUP_TOKENS, source, growth);
	patch_unit(growth, tail->unit, tail->slots[tail->used] - tail->unit_slot + 1);
	tail->used++;
	tail->group = group;
	return 0;
}

void program_done(struct program *program)
{
	for (uint32_t i = 0; i < PROGRAM_N_ARRAYS; i++)
		free(program->arrays[i].at);
	for (uint32_t i = 0; i < PROGRAM_N_SCRATCH; i++)
		free(program->scratch[i].at);
	*program = (struct program){0};
}
