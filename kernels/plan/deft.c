#include "deft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum memory { DEPTH_FIRST };

static uint32_t seen_tokens(const struct build *build, uint32_t node)
{
	uint32_t pos = build->tree->nodes[node].pos, end = build->order->nodes[node].seen_end;

	return end > pos ? end - pos : 0;
}

static void plan_node(struct build *build, uint32_t node, uint32_t chunk_tokens)
{
	const struct order_node *at = &build->order->nodes[node];
	uint32_t pos = build->tree->nodes[node].pos, left = seen_tokens(build, node);

	while (left) {
		uint32_t n = left < chunk_tokens ? left : chunk_tokens;

		build_item(build);
		build_tokens(build, node, pos, pos + n,
			     (struct order_rows){at->row_begin, at->row_end});
		build_item_end(build);
		pos += n;
		left -= n;
	}
}

static void set_bits(uint64_t *words, uint32_t begin, uint32_t end)
{
	for (; begin < end && begin % 64; begin++)
		words[begin / 64] |= UINT64_C(1) << begin % 64;
	for (; end - begin >= 64; begin += 64)
		words[begin / 64] = UINT64_MAX;
	for (; begin < end; begin++)
		words[begin / 64] |= UINT64_C(1) << begin % 64;
}

/* Bits of all pieces of the item that was closed last. */
static int write_masks(struct build *build)
{
	struct work_list *list = build->list;
	struct work_item *item = &list->items[list->n_items - 1];
	const struct work_tile *tile = &list->tiles[item->tile];
	uint32_t n_words = (item->row_end - item->row_begin + 63) / 64;
	uint32_t n_pieces = list->n_pieces - tile->piece;
	size_t n_masks = list->n_masks + (size_t)n_words * n_pieces;
	struct array *memory = &build->scratch->memory[PLAN_MASKS];

	list->masks = array_room(memory, n_masks, sizeof(*list->masks));
	if (!list->masks || n_masks >= WORK_NONE)
		return -ENOMEM;
	item->mask = list->n_masks;
	memset(&list->masks[item->mask], 0, (n_masks - item->mask) * sizeof(*list->masks));
	for (uint32_t i = 0; i < n_pieces; i++) {
		const struct work_piece *piece = &list->pieces[tile->piece + i];

		set_bits(&list->masks[item->mask + (size_t)i * n_words],
			 piece->row_begin - item->row_begin, piece->row_end - item->row_begin);
	}
	list->n_masks = (uint32_t)n_masks;
	return 0;
}

static int close_item(struct build *build)
{
	uint32_t n_items = build->list->n_items;

	build_item_end(build);
	if (build->error)
		return build->error;
	return n_items == build->list->n_items ? write_masks(build) : 0;
}

struct ranked {
	uint32_t row_begin, node;
};

/* Parents have lower indices and begin no later. */
static int compare_ranked(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;

	if (a->row_begin != b->row_begin)
		return a->row_begin < b->row_begin ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

static struct ranked *sort_nodes(struct build *build, uint32_t *ret_n, uint64_t *ret_n_tokens)
{
	uint32_t n_nodes = build->tree->n_nodes, n = 0;
	struct ranked *ranked = build_room(build, DEPTH_FIRST, n_nodes, sizeof(*ranked));
	uint64_t n_tokens = 0;

	if (!ranked)
		return NULL;
	for (uint32_t i = 0; i < n_nodes; i++) {
		if (!seen_tokens(build, i))
			continue;
		ranked[n++] = (struct ranked){build->order->nodes[i].row_begin, i};
		n_tokens += seen_tokens(build, i);
	}
	qsort(ranked, n, sizeof(*ranked), compare_ranked);
	*ret_n = n;
	*ret_n_tokens = n_tokens;
	return ranked;
}

static int plan_flatten(struct build *build)
{
	uint32_t chunk = build->config->chunk_tokens, n, room = 0;
	uint64_t n_tokens, n_chunks;
	const struct ranked *ranked = sort_nodes(build, &n, &n_tokens);
	int r = 0;

	if (!ranked)
		return -ENOMEM;
	n_chunks = (n_tokens + chunk - 1) / chunk;
	for (uint32_t i = 0; i < n && !r; i++) {
		const struct order_node *at = &build->order->nodes[ranked[i].node];
		uint32_t pos = build->tree->nodes[ranked[i].node].pos;

		while (pos < at->seen_end && !r) {
			uint32_t take = at->seen_end - pos;

			if (!room) {
				build_item(build);
				room = (uint32_t)((n_tokens + n_chunks - 1) / n_chunks);
			}
			take = take < room ? take : room;
			build_tokens(build, ranked[i].node, pos, pos + take,
				     (struct order_rows){at->row_begin, at->row_end});
			pos += take;
			room -= take;
			if (!room)
				r = close_item(build);
		}
	}
	return room && !r ? close_item(build) : r;
}

int deft_plan(struct build *build)
{
	const struct plan_config *config = build->config;
	bool chunks = config->deft == PLAN_DEFT_NODE_CHUNK;

	if (!config->chunk_tokens)
		return -EINVAL;
	if (config->deft == PLAN_DEFT_FLATTEN)
		return plan_flatten(build);
	for (uint32_t i = 0; i < build->tree->n_nodes; i++)
		plan_node(build, i, chunks ? config->chunk_tokens : UINT32_MAX);
	return 0;
}
