/*
 * some_cut.c - see some_cut.h. Every block reads all rows for each of its tiles, from the
 * second-level cache: so tiles are to be tall. There are to be as many units as blocks, or a few
 * times as many, so that all are done at the same time. A matrix with few outputs has both only
 * where its inputs are cut into parts, whose sums then have to be put together. Of these there is
 * room for so many: one part has always room.
 */
#include "some_cut.h"

#include "few.h"
#include "proto/arith.h"

#define ROUNDS_MOST 8u /* units of a block */
#define PARTS_MOST 8u
#define STEP_BYTES_LEAST 6144.0 /* what a step takes whatever it brings */
#define PARTS_BYTES 60000.0 /* what putting parts together takes */
#define CACHED 0.5 /* of the time that as much takes to come from memory */

uint32_t some_cut_rows(uint32_t n_rows)
{
	return n_rows <= 8 ? 8 : n_rows <= 16 ? 16 : n_rows <= 32 ? 32 : 64;
}

uint32_t some_cut_tiles(const struct device_few *few, uint32_t height, uint32_t ret_n[3])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < 3; i++) {
		ret_n[i] = few->gated && i > 0 ? 0 : ceil_div(few->n_out[i], height);
		n += ret_n[i];
	}
	return n;
}

uint32_t some_cut_slabs(const struct device_few *few, uint32_t height)
{
	return few->gated || height > 2 * SOME_SLAB ? 2 : 1;
}

uint64_t some_cut_parts_bytes(const struct device_few *few, const struct some_cut *cut)
{
	uint64_t sums = some_cut_slabs(few, cut->height) * UINT64_C(2) * SOME_SLAB;
	uint32_t tiles[3];

	if (cut->n_parts == 1)
		return 0;
	return some_cut_tiles(few, cut->height, tiles) * cut->n_parts * sums *
	       some_cut_rows(few->n_rows) * sizeof(float);
}

static bool has_room(const struct device_few *few, const struct some_cut *cut)
{
	uint32_t tiles[3];

	return cut->n_parts == 1 || (some_cut_tiles(few, cut->height, tiles) <= SOME_COUNTERS &&
				     some_cut_parts_bytes(few, cut) <= SOME_PARTS_BYTES);
}

static void weigh(const struct device_few *few, uint32_t n_blocks, struct some_cut *cut)
{
	uint32_t rows = some_cut_rows(few->n_rows), tiles[3];
	uint32_t tall = cut->height * (few->gated ? 2 : 1);
	uint32_t n_units = some_cut_tiles(few, cut->height, tiles) * cut->n_parts;
	double step = (tall + rows * CACHED) * SOME_ROW_BYTES;

	if (step < STEP_BYTES_LEAST)
		step = STEP_BYTES_LEAST;
	cut->cost = ceil_div(n_units, n_blocks) * (double)cut->part_steps * step;
	if (cut->n_parts > 1)
		cut->cost +=
			PARTS_BYTES + (double)cut->n_parts * rows * tall * sizeof(float) * CACHED;
}

/* Lower than the most: no more tiles than that. */
static uint32_t height_for(const struct device_few *few, uint32_t n_tiles)
{
	uint32_t n_out = few->gated ? few->n_out[0] : few->n_out[0] + few->n_out[1] + few->n_out[2];
	uint32_t most = few->gated ? SOME_HEIGHT_MOST / 2 : SOME_HEIGHT_MOST, tiles[3];
	uint32_t height = ceil_div(ceil_div(n_out, n_tiles), 8) * 8;

	while (height < most && some_cut_tiles(few, height, tiles) > n_tiles)
		height += 8;
	return min_u32(height, most);
}

struct some_cut some_cut_find(const struct device_few *few, uint32_t n_blocks)
{
	uint32_t n_steps = ceil_div(few->n_in, SOME_INPUTS);
	struct some_cut best = {0};

	for (uint32_t parts = 1; parts <= PARTS_MOST; parts *= 2)
		for (uint32_t rounds = 1; rounds <= ROUNDS_MOST; rounds++) {
			struct some_cut cut = {.part_steps = ceil_div(n_steps, parts)};

			if (n_blocks * rounds < parts)
				continue;
			cut.n_parts = ceil_div(n_steps, cut.part_steps);
			cut.height = height_for(few, n_blocks * rounds / parts);
			weigh(few, n_blocks, &cut);
			if ((!best.height || cut.cost < best.cost) && has_room(few, &cut))
				best = cut;
		}
	return best;
}
