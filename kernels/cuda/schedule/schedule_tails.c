/*
 * schedule_tails.c - where the next tokens go: KV blocks set aside behind a work tile's KV tiles
 * when it is made. See schedule.h and schedule_impl.h.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of the work tile's row blocks that have tails. */
struct tails {
	struct cut *cut; /* the work tile */
	uint32_t tokens[DEVICE_WARPS][DEVICE_BLOCK_ROWS];
	uint32_t kv_blocks[DEVICE_WARPS][DEVICE_BLOCK_ROWS];
	uint32_t sources[DEVICE_WARPS][DEVICE_BLOCK_ROWS];
	uint32_t n[DEVICE_WARPS];
};

static void find_tails(const struct make *m, struct cut *cut, struct tails *ret)
{
	const struct piece_kv_block *kv_blocks = m->p->scratch[KV_BLOCKS].at;

	ret->cut = cut;
	memset(ret->n, 0, sizeof(ret->n));
	for (uint32_t i = cut->begin; i < cut->end; i++) {
		const struct device_kv_block *g = &kv_blocks[i].kv_block;

		for (uint32_t row = g->row_begin; kv_blocks[i].tail && row < g->row_end; row++) {
			uint32_t token = row - cut->row_begin, block = cut_block_of(cut, token);

			ret->kv_blocks[block][ret->n[block]] =
				kv_blocks[i].grows ? (uint32_t)g->pos / KV_BLOCK_TOKENS
						   : SCHEDULE_NO_KV_BLOCK;
			ret->sources[block][ret->n[block]] = kv_blocks[i].source;
			ret->tokens[block][ret->n[block]++] = token;
		}
	}
}

/* Sets the k-th KV block aside for up to 4 of the block's tails, from i on. */
static int reserve_kv_tile(struct make *m, const struct tails *tails, uint32_t block, uint32_t i,
			   uint32_t k)
{
	struct schedule_tail *all = m->p->scratch[TAILS].at;
	struct cut *cut = tails->cut;
	uint32_t index = m->p->n[SCHEDULE_KV_TILES];
	uint32_t warps = cut_warps_in_turn(cut, block, 1u << block);
	struct kv_tile to;
	int r = make_kv_tiles(m, 1, &to);

	if (r)
		return r;
	to.meta->partial = true;
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS && i + j < tails->n[block]; j++) {
		uint32_t token = tails->tokens[block][i + j];
		struct schedule_tail *tail = &all[cut->strip->row_begin + cut->row_begin + token];

		/* another work tile has the row's last token */
		if (tails->kv_blocks[block][i + j] == SCHEDULE_NO_KV_BLOCK &&
		    tail->work_tile != SCHEDULE_NO_TAIL && tail->first_kv_tile != cut->kv_tile)
			continue;
		tail->kv_tiles[k] = index;
		tail->kv_blocks[k] = (uint8_t)j;
		tail->warps[k] = (uint8_t)warps;
		tail->first_kv_tile = cut->kv_tile;
		tail->token = token;
		tail->kv_block = tails->kv_blocks[block][i + j];
		tail->source = tails->sources[block][i + j];
		tail->pos = m->list->rows[cut->strip->row_begin + cut->row_begin + token].pos;
		tail->work_tile = 0;
	}
	return 0;
}

/* KV blocks that come at the same time share KV tiles. */
int tails_reserve(struct make *m, struct cut *cut)
{
	struct tails tails;
	int r = 0;

	find_tails(m, cut, &tails);
	cut->old = true;
	for (uint32_t b = 0; b < DEVICE_WARPS; b++)
		cut->old = cut->old && tails.n[b] == 0;
	for (uint32_t k = 0; k < SCHEDULE_TAIL_KV_BLOCKS; k++) {
		for (uint32_t b = 0; b < DEVICE_WARPS; b++) {
			for (uint32_t i = 0; i < tails.n[b] && !r; i += DEVICE_KV_TILE_BLOCKS)
				r = reserve_kv_tile(m, &tails, b, i, k);
		}
	}
	return r;
}

/* Tails know their work tile by its first KV tile until work tiles are sorted. */
int tails_place(struct make *m)
{
	const struct device_work_tile *work_tiles = m->p->arrays[SCHEDULE_WORK_TILES].at;
	struct schedule_tail *tails = m->p->scratch[TAILS].at;
	uint32_t *work_tile_of =
		make_scratch(m, WORK_TILE_OF_KV_TILE, (size_t)m->p->n[SCHEDULE_KV_TILES] + 1,
			     sizeof(*work_tile_of));

	if (!work_tile_of)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->p->n[SCHEDULE_WORK_TILES]; i++)
		work_tile_of[work_tiles[i].kv_tile] = i;
	for (uint32_t row = 0; row < m->list->n_rows; row++) {
		if (tails[row].work_tile != SCHEDULE_NO_TAIL)
			tails[row].work_tile = work_tile_of[tails[row].first_kv_tile];
	}
	m->p->tails = tails;
	return 0;
}

/* Pieces that one token alone sees, and of these what it sees. */
static void find_last(const struct make *m, const struct work_item *item, uint32_t *last)
{
	const struct work_list *list = m->list;

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++) {
			const struct work_piece *piece = &list->pieces[i];
			uint32_t row = piece->row_begin,
				 end = min_u32(piece->row_end, item->row_end);

			if (row < item->row_begin || !make_one_token(m, row, piece->row_end))
				continue;
			for (; row < end && list->rows[row].pos >= piece->pos; row++)
				last[row] = max_u32(last[row], min_u32(piece->pos + piece->count,
								       list->rows[row].pos + 1));
		}
	}
}

int tails_clear(struct make *m)
{
	const struct work_list *list = m->list;
	uint32_t n = list->n_rows;
	struct schedule_tail *tails = make_scratch(m, TAILS, (size_t)n + 1, sizeof(*tails));
	uint32_t *last = make_scratch(m, LAST_OWN, (size_t)n + 1, sizeof(*last));

	if (!tails || !last)
		return -ENOMEM;
	memset(last, 0, n * sizeof(*last));
	for (uint32_t row = 0; row < n; row++)
		tails[row] = (struct schedule_tail){.work_tile = SCHEDULE_NO_TAIL};
	for (uint32_t i = 0; i < list->n_items; i++)
		find_last(m, &list->items[i], last);
	return 0;
}
