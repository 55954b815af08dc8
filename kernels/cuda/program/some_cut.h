/*
 * some_cut.h - how products of some rows (some.h) are cut into units for multiprocessors: tiles of
 * outputs, and parts of the inputs. On the host, by arithmetic alone.
 */
#ifndef COPPICE_CUDA_SOME_CUT_H
#define COPPICE_CUDA_SOME_CUT_H

#include <stdint.h>

#define SOME_INPUTS 64u /* of a step */
#define SOME_ROW_BYTES 128u /* of an output or a row in a step */
#define SOME_HEIGHT_MOST 256u /* of a tile, both halves of what is gated together */
#define SOME_SLAB 64u /* outputs of one product; a tile is multiplied two at a time */
/* What tiles of several parts share, at most. */
#define SOME_COUNTERS 1024u
#define SOME_PARTS_BYTES (UINT64_C(32) << 20) /* of all their parts' sums */

#ifdef __cplusplus
extern "C" {
#endif

struct device_few;

struct some_cut {
	uint32_t height; /* outputs of a tile, a multiple of 8; gated: of each half */
	uint32_t n_parts, part_steps; /* none of them empty */
	double cost; /* of the busiest block, in bytes of weights that it could have read */
};

/* 8, 16, 32 or 64. */
uint32_t some_cut_rows(uint32_t n_rows);
/* Tiles of each matrix; returns how many there are. Gated: both halves are one. */
uint32_t some_cut_tiles(const struct device_few *few, uint32_t height, uint32_t ret_n[3]);
/* How many times two slabs a tile is: 1 or 2. */
uint32_t some_cut_slabs(const struct device_few *few, uint32_t height);
/* Of the sums of all parts, where there are several. */
uint64_t some_cut_parts_bytes(const struct device_few *few, const struct some_cut *cut);
/* One for which there is room. */
struct some_cut some_cut_find(const struct device_few *few, uint32_t n_blocks);

#ifdef __cplusplus
}
#endif

#endif
