/*
 * chosen.h - prefill of some blocks of a path, other ones for each KV head: the program (format.h)
 * is made on the device, from lists of blocks. A head has units of its own, each a tile of the
 * query's rows with all that these see:
 *
 *      blocks of 4 windows   | 0 1 2 3 | - - - - | 8 9 10 11 | 12 ...   a window is 32 tokens
 *      the unit's slots        0 1 2 3   8 9 10 11 | 12 |               a slot is one, too: stages
 *                                                                       first, then those that
 *                                                                       some rows see in part
 *
 * so that nothing is merged, and the processor has next to nothing to do.
 */
#ifndef COPPICE_CUDA_CHOSEN_H
#define COPPICE_CUDA_CHOSEN_H

#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/launch.h"

/* A unit as the processor knows it. */
struct device_choice {
	uint32_t row, n_rows; /* of the query's */
	uint32_t pos; /* the first row's */
	uint32_t slot; /* its first */
	uint32_t n_plain; /* slots that all rows see whole: the first ones */
	uint32_t n_slots;
	uint32_t block; /* the first of its blocks in the lists */
	uint32_t pad;
};

struct device_choose {
	const struct device_choice *choices; /* [n_units] */
	const uint32_t *blocks; /* lists, each in ascending order */
	const uint32_t *windows; /* of the path: sources of the first groups */
	struct device_unit *units;
	struct device_source *firsts, *sources;
	struct device_slot *slots;
	uint32_t *dests; /* [DEVICE_UNIT_ROWS] */
	uint32_t n_units;
	uint32_t n_k; /* tokens of the path */
	uint32_t block_windows;
	uint32_t block_tokens; /* of a row block */
	uint32_t group_sources; /* from a group to the next */
	uint32_t wide; /* there are stages */
};

#ifdef __cplusplus
extern "C" {
#endif

int device_choose(const struct device_choose *choose, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
