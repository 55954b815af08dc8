/*
 * program_tails.c - where the next tokens go: groups set aside behind a unit's slots when it is
 * made. See program.h and program_impl.h.
 */
#include "program_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
		const struct device_group *g = &groups[i].group;

		for (uint32_t row = g->row_begin; groups[i].tail && row < g->row_end; row++) {
			uint32_t token = row - cut->row_begin, block = cut_block_of(cut, token);

			ret->groups[block][ret->n[block]] =
				groups[i].grows ? (uint32_t)g->pos / DEVICE_GROUP_TOKENS
						: PROGRAM_NO_GROUP;
			ret->tokens[block][ret->n[block]++] = token;
		}
	}
}

/* Sets the k-th group aside for up to 4 of the block's tails, from i on. */
static int reserve_slot(struct make *m, struct cut *cut, const struct tails *tails, uint32_t block,
			uint32_t i, uint32_t k)
{
	struct program_tail *all = m->p->scratch[TAILS].at;
	uint32_t index = m->p->n[PROGRAM_SLOTS];
	struct device_slot *slot = make_append(m, PROGRAM_SLOTS, 1);
	struct device_source *source = make_append(m, PROGRAM_SOURCES, 1);
	uint32_t warps = cut_warps_in_turn(cut, block, 1u << block);

	if (!slot || !source)
		return -ENOMEM;
	memset(slot, 0, sizeof(*slot));
	memset(source, 0xff, sizeof(*source));
	slot->partial = true;
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS && i + j < tails->n[block]; j++) {
		uint32_t token = tails->tokens[block][i + j];
		struct program_tail *tail = &all[cut->strip->row_begin + cut->row_begin + token];

		/* another unit has the row's last token */
		if (tails->groups[block][i + j] == PROGRAM_NO_GROUP &&
		    tail->unit != PROGRAM_NO_TAIL && tail->unit_slot != cut->slot)
			continue;
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
int tails_reserve(struct make *m, struct cut *cut)
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

/* Tails know their unit by its first slot until units are sorted. */
int tails_place(struct make *m)
{
	const struct device_unit *units = m->p->arrays[PROGRAM_UNITS].at;
	struct program_tail *tails = m->p->scratch[TAILS].at;
	uint32_t *unit_of =
		make_scratch(m, UNIT_OF_SLOT, (size_t)m->p->n[PROGRAM_SLOTS] + 1, sizeof(*unit_of));

	if (!unit_of)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->p->n[PROGRAM_UNITS]; i++)
		unit_of[units[i].slot] = i;
	for (uint32_t row = 0; row < m->list->n_rows; row++) {
		if (tails[row].unit != PROGRAM_NO_TAIL)
			tails[row].unit = unit_of[tails[row].unit_slot];
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
	struct program_tail *tails = make_scratch(m, TAILS, (size_t)n + 1, sizeof(*tails));
	uint32_t *last = make_scratch(m, LAST_OWN, (size_t)n + 1, sizeof(*last));

	if (!tails || !last)
		return -ENOMEM;
	memset(last, 0, n * sizeof(*last));
	for (uint32_t row = 0; row < n; row++)
		tails[row] = (struct program_tail){.unit = PROGRAM_NO_TAIL};
	for (uint32_t i = 0; i < list->n_items; i++)
		find_last(m, &list->items[i], last);
	return 0;
}
