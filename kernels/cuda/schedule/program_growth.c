/*
 * program_growth.c - what is to be patched as tokens come into groups that were set aside for them
 * (program_tails.c). A patch is a word of the program; no two are of the same word with another
 * value, so that their order is nobody's concern. See program.h.
 */
#include "program_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATCHES_OF_GROUP 6u

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
