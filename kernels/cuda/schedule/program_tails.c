/*
 * program_tails.c - where the next tokens go: groups set aside behind a unit's slots when it is
 * made, and what is to be patched as they come into use. See program.h and program_impl.h.
 */
#include "program_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATCHES_OF_GROUP 6u

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
		block = cut_block_of(cut, token);
		ret->groups[block][ret->n[block]] =
			groups[i].grows ? (uint32_t)groups[i].group.pos / DEVICE_GROUP_TOKENS
					: PROGRAM_NO_GROUP;
		ret->tokens[block][ret->n[block]++] = token;
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
	for (uint32_t row = 0; row < m->want->list->n_rows; row++) {
		if (tails[row].unit != PROGRAM_NO_TAIL)
			tails[row].unit = unit_of[tails[row].unit_slot];
	}
	m->p->tails = tails;
	return 0;
}

/* Pieces that one row alone sees, and of these what it sees. */
static void find_last(const struct work_list *list, const struct work_item *item, uint32_t *last)
{
	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++) {
			const struct work_piece *piece = &list->pieces[i];
			uint32_t row = piece->row_begin;

			if (piece->row_end - row == 1 && row >= item->row_begin &&
			    row < item->row_end && list->rows[row].pos >= piece->pos)
				last[row] = max_u32(last[row], min_u32(piece->pos + piece->count,
								       list->rows[row].pos + 1));
		}
	}
}

int tails_clear(struct make *m)
{
	const struct work_list *list = m->want->list;
	uint32_t n = list->n_rows;
	struct program_tail *tails = make_scratch(m, TAILS, (size_t)n + 1, sizeof(*tails));
	uint32_t *last = make_scratch(m, LAST_OWN, (size_t)n + 1, sizeof(*last));

	if (!tails || !last)
		return -ENOMEM;
	memset(last, 0, n * sizeof(*last));
	for (uint32_t row = 0; row < n; row++)
		tails[row] = (struct program_tail){.unit = PROGRAM_NO_TAIL};
	for (uint32_t i = 0; i < list->n_items; i++)
		find_last(list, &list->items[i], last);
	return 0;
}

/* ---- the next tokens ------------------------------------------------------------------------ */

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

/* Patches are written side by side: rows of one unit that make it longer, each by another slot,
 * share a patch. */
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
	if (pos % DEVICE_GROUP_TOKENS || tail->used == PROGRAM_TAIL_GROUPS)
		return -ESTALE;
	if (room_for_patches(growth, PATCHES_OF_GROUP + 1) != 0)
		return -ENOMEM;
	patch_group(tail, tail->used, group * DEVICE_GROUP_TOKENS, source, growth);
	patch_unit(growth, tail->unit, tail->slots[tail->used] - tail->unit_slot + 1);
	tail->used++;
	tail->group = group;
	return 0;
}
