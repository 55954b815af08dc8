/*
 * schedule_growth.c - what is to be patched as tokens come into KV blocks that were set aside for
 * them (schedule_tails.c). A patch is a word of the schedule; no two are of the same word with
 * another value, so that their order is nobody's concern. See schedule.h.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATCHES_OF_KV_BLOCK 6u

int schedule_growth_init(struct schedule_growth *growth, const struct schedule *schedule)
{
	const struct device_work_tile *work_tiles = schedule->arrays[SCHEDULE_WORK_TILES].at;
	uint32_t n = schedule->n[SCHEDULE_WORK_TILES];

	*growth = (struct schedule_growth){.n_kv_tiles = calloc(n + 1, sizeof(uint32_t)),
					   .work_tile_patches = calloc(n + 1, sizeof(uint32_t)),
					   .n_work_tiles = n};
	if (!growth->n_kv_tiles || !growth->work_tile_patches) {
		schedule_growth_done(growth);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		growth->n_kv_tiles[i] = work_tiles[i].n_kv_tiles;
	return 0;
}

void schedule_growth_written(struct schedule_growth *growth)
{
	for (uint32_t i = 0; i < growth->n_patches; i++) {
		const struct schedule_patch *patch = &growth->patches[i];

		if (patch->array == SCHEDULE_WORK_TILES)
			growth->work_tile_patches[patch->offset / sizeof(struct device_work_tile)] =
				0;
	}
	growth->n_patches = 0;
}

void schedule_growth_done(struct schedule_growth *growth)
{
	free(growth->n_kv_tiles);
	free(growth->work_tile_patches);
	free(growth->patches);
	*growth = (struct schedule_growth){0};
}

static int room_for_patches(struct schedule_growth *growth, uint32_t n)
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

static void add_patch(struct schedule_growth *growth, enum schedule_array array, uint32_t offset,
		      uint32_t value)
{
	growth->patches[growth->n_patches++] = (struct schedule_patch){array, offset, value};
}

/* Words of the k-th KV block set aside, as it comes into use. */
static void patch_kv_block(const struct schedule_tail *tail, uint32_t k, uint32_t pos,
			   uint32_t source, struct schedule_growth *to)
{
	uint32_t kv_tile = tail->kv_tiles[k], j = tail->kv_blocks[k];
	uint32_t in_kv_tiles = kv_tile * (uint32_t)sizeof(struct device_kv_tile);
	uint32_t in_kv_block = in_kv_tiles + j * (uint32_t)sizeof(struct device_kv_block);
	uint32_t rows = tail->token | (tail->token + 1) << 16;
	uint32_t flags = in_kv_tiles + (uint32_t)offsetof(struct device_kv_tile, warps);

	add_patch(to, SCHEDULE_KV_TILES, in_kv_block, pos);
	add_patch(to, SCHEDULE_KV_TILES, in_kv_block + 4, rows);
	add_patch(to, SCHEDULE_KV_TILES, in_kv_block + 8, KV_BLOCK_TOKENS << 16);
	add_patch(to, SCHEDULE_KV_TILES, flags, tail->warps[k] | 1u << 24);
	add_patch(to, SCHEDULE_SOURCES, kv_tile * 16 + j * 4, source);
	if (kv_tile - tail->first_kv_tile < DEVICE_FIRST_KV_TILES)
		add_patch(to, SCHEDULE_FIRSTS,
			  (tail->work_tile * DEVICE_FIRST_KV_TILES + kv_tile -
			   tail->first_kv_tile) *
					  16 +
				  j * 4,
			  source);
}

/* Patches are written side by side: rows of one work tile that make it longer, each by another KV
 * tile, share a patch. */
static void patch_work_tile(struct schedule_growth *growth, uint32_t work_tile, uint32_t n_kv_tiles)
{
	uint32_t *patch = &growth->work_tile_patches[work_tile];

	if (n_kv_tiles <= growth->n_kv_tiles[work_tile])
		return;
	growth->n_kv_tiles[work_tile] = n_kv_tiles;
	if (*patch == 0) {
		add_patch(growth, SCHEDULE_WORK_TILES,
			  work_tile * (uint32_t)sizeof(struct device_work_tile) +
				  (uint32_t)offsetof(struct device_work_tile, n_kv_tiles),
			  n_kv_tiles);
		*patch = growth->n_patches;
	}
	growth->patches[*patch - 1].value = n_kv_tiles;
}

int schedule_advance(struct schedule_tail *tail, uint32_t pos, uint32_t source,
		     struct schedule_growth *growth)
{
	uint32_t kv_block = pos / KV_BLOCK_TOKENS;

	if (tail->work_tile == SCHEDULE_NO_TAIL)
		return -ESTALE;
	if (kv_block == tail->kv_block && source != tail->source)
		return -ESTALE;
	tail->pos = pos;
	if (kv_block == tail->kv_block)
		return 0;
	if (pos % KV_BLOCK_TOKENS || tail->used == SCHEDULE_TAIL_KV_BLOCKS)
		return -ESTALE;
	if (room_for_patches(growth, PATCHES_OF_KV_BLOCK + 1) != 0)
		return -ENOMEM;
	patch_kv_block(tail, tail->used, kv_block * KV_BLOCK_TOKENS, source, growth);
	patch_work_tile(growth, tail->work_tile,
			tail->kv_tiles[tail->used] - tail->first_kv_tile + 1);
	tail->used++;
	tail->kv_block = kv_block;
	tail->source = source;
	return 0;
}

int schedule_pass(const struct schedule_tail *tail, uint32_t pos)
{
	return pos / KV_BLOCK_TOKENS == tail->kv_block && pos > tail->pos ? -ESTALE : 0;
}
