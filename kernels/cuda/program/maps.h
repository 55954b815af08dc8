/* maps.h - tensor maps: matrices as the device's copies of tiles know them. */
#ifndef COPPICE_CUDA_MAPS_H
#define COPPICE_CUDA_MAPS_H

#include "proto/must_check.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define MAP_INPUTS 64u /* of a row that are brought at a time */
#define MAP_ROW_BYTES (MAP_INPUTS * 2)

/* n rows, of which some are brought at a time. Behind the last there are zeros. */
struct map_rows {
	const void *at;
	uint32_t n, n_in, stride, n_brought; /* 256 brought at most */
	bool bf16;
};

#ifdef __cplusplus
extern "C" {
#endif

/* What is brought lies in atoms of 8 rows x 128 bytes, swizzled as wgmma reads it. False: the
 * driver has no such maps, or refuses this one. */
MUST_CHECK bool maps_encode(CUtensorMap *ret, const struct map_rows *rows);
/* The same of two matrices alike, by turns eight rows of each: n of either, and n_brought, both
 * multiples of eight. The other one lies behind this. Coordinates: input, 0, 0, eight. */
MUST_CHECK bool maps_encode_turns(CUtensorMap *ret, const struct map_rows *rows, const void *other);

#ifdef __cplusplus
}
#endif

#endif
