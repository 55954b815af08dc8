/*
 * deft.c - the published policy, whole: groups led by KV, cut evenly, with the bit masks that its
 * own kernel reads. It is here to be compared with: our backends go by the intervals of pieces, and
 * no kernel reads the masks. See deft.h.
 */
#include "deft.h"
#include "proto/arith.h"

#include <errno.h>
#include <string.h>

static void plan_node(struct build *build, uint32_t node, uint32_t chunk_tokens)
{
	const struct order_node *at = &build->order->nodes[node];
	uint32_t pos = build->tree->nodes[node].pos, left = build_seen_tokens(build, node);

	while (left) {
		uint32_t n = min_u32(left, chunk_tokens);

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
	uint32_t n_words = ceil_div(item->row_end - item->row_begin, 64);
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

static int plan_flatten(struct build *build)
{
	uint32_t chunk = build->config->chunk_tokens, n, room = 0;
	uint64_t n_tokens = 0, n_chunks;
	const struct build_ranked *ranked;
	int r = build_depth_first(build, &ranked, &n);

	if (r)
		return r;
	for (uint32_t i = 0; i < n; i++)
		n_tokens += build_seen_tokens(build, ranked[i].node);
	n_chunks = ceil_div_u64(n_tokens, chunk);
	for (uint32_t i = 0; i < n && !r; i++) {
		const struct order_node *at = &build->order->nodes[ranked[i].node];
		uint32_t pos = build->tree->nodes[ranked[i].node].pos;

		while (pos < at->seen_end && !r) {
			uint32_t take = at->seen_end - pos;

			if (!room) {
				build_item(build);
				room = (uint32_t)ceil_div_u64(n_tokens, n_chunks);
			}
			take = min_u32(take, room);
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
