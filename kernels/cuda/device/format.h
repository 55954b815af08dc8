/*
 * format.h - what host and kernels of the CUDA backend both know: the schedule of a launch.
 * (kv_layout.h says where KV lies in a page.)
 *
 *   KV tile    what shared memory takes at a time: up to 4 KV blocks, one step of a warp's softmax
 *   wide tile  4 KV tiles one after the other that warp groups (4 warps, 64 rows) take in one go
 *   work tile  rows x KV tiles that one block computes for one KV head; an entry of the ticket
 *              counter is (work tile, head), or a work tile where every head has its own
 *
 * A work tile's rows (tokens x query heads of the KV head) stand in blocks of 16, whole tokens and
 * as many in each block as in the others. With 2^blocks_log2 blocks, warp w takes block w mod
 * 2^blocks_log2; the warps of one block share its KV tiles out and merge in shared memory.
 *
 * Values in the pool are finite, all of them: append stores a token whose V has an infinity or a
 * NaN as V = 0, K = NaN, so that rows that see it become NaN and rows that do not, in the same
 * tile, are spared (0 x NaN is NaN).
 */
#ifndef COPPICE_CUDA_FORMAT_H
#define COPPICE_CUDA_FORMAT_H

#include "kv_layout.h"
#include "proto/arith.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct CUstream_st *device_stream;

#define DEVICE_KV_TILE_BLOCKS 4u
#define DEVICE_WIDE_KV_TILES 4u
#define DEVICE_FIRST_KV_TILES 16u /* of a work tile, whose sources stand apart */
#define DEVICE_WARPS 8u /* that compute */
#define DEVICE_BLOCK_ROWS 16u
#define DEVICE_WORK_TILE_ROWS 128u
#define DEVICE_NONE UINT32_MAX

/* Tokens [first, end) of a KV block; token j is at pos + j; seen by the work tile's tokens
 * [row_begin, row_end). */
struct device_kv_block {
	int32_t pos;
	uint16_t row_begin, row_end;
	uint16_t first, end;
	uint32_t pad;
};

struct device_kv_tile {
	struct device_kv_block kv_blocks[DEVICE_KV_TILE_BLOCKS];
	uint8_t warps; /* bit w: warp w computes it; in a wide tile all 4 KV tiles have the same */
	uint8_t plain; /* bit w: all rows of the warp see all keys */
	uint8_t wide; /* of a wide tile, which begins at a multiple of 4 in its work tile */
	/* some row sees some of a KV block's tokens by position; not in wide tiles, whose KV blocks
	 * are whole */
	uint8_t causal;
	/* of a wide tile: wide tiles from here on that the same warps take (device_run_at) */
	uint8_t run;
	uint8_t plain_wide; /* of a wide tile: bit w: plain in all 4 KV tiles */
	/* some KV block has, or may come to have, tokens that not all of its rows see */
	uint8_t partial;
	uint8_t pad[9];
};

/* Where the KV blocks of a KV tile lie in the pool, for layer and head 0; DEVICE_NONE: no KV
 * block. */
struct device_source {
	uint32_t kv_blocks[DEVICE_KV_TILE_BLOCKS];
};

/* Its KV tiles are n_shared from shared on, which other work tiles have as well, and behind these
 * its own from kv_tile on. Shared are whole wide tiles that all warps take, none or at least
 * DEVICE_FIRST_KV_TILES. */
struct device_work_tile {
	uint32_t row; /* first of n_rows in the list */
	uint32_t n_rows;
	uint32_t kv_tile;
	uint32_t n_kv_tiles; /* in all */
	/* first of n_rows in dests: DEVICE_NONE: the output itself; else a partial's index */
	uint32_t dest;
	uint32_t blocks_log2;
	uint32_t flags;
	uint32_t block_tokens; /* of a row block */
	uint32_t shared, n_shared;
	/* wide tiles of the run that begins with the shared: these, and those of its own that the
	 * same warps take; 0: there are none */
	uint32_t shared_run;
	uint32_t pad;
};

/* Where the i-th of its KV tiles stands. */
ARITH_INLINE uint32_t device_kv_tile_at(const struct device_work_tile *work_tile, uint32_t i)
{
	return i < work_tile->n_shared ? work_tile->shared + i
				       : work_tile->kv_tile + (i - work_tile->n_shared);
}

/* Wide tiles of the run that begins with its KV tile i, which says that they are n: a shared one
 * does not know where it ends. */
ARITH_INLINE uint32_t device_run_at(const struct device_work_tile *work_tile, uint32_t i,
				    uint32_t n)
{
	return i == 0 && work_tile->shared_run ? work_tile->shared_run : n;
}

enum device_work_tile_flags {
	DEVICE_WORK_TILE_WIDE = 1, /* has wide tiles */
	/* token t is in block t mod 2^blocks_log2, not t / block_tokens */
	DEVICE_WORK_TILE_DEALT = 2,
	DEVICE_WORK_TILE_OLD = 4, /* nothing of its KV is new, and nothing of it is ever patched */
};

#define DEVICE_DEST_NOTHING (DEVICE_NONE - 1) /* the row sees nothing of the work tile */

/* A row that has no partial or several: [first, first + n_parts). */
struct device_merge {
	uint32_t row;
	uint32_t first;
	uint32_t n_parts;
	uint32_t pad;
};

/* A row of the schedule (row_map.h): addresses of head 0, of q and o multiples of 16. o == 0: not
 * wanted, q is 0 then; lse == 0: not wanted. */
struct device_row {
	uint64_t q, o, lse;
	uint32_t pos, low; /* the last position that it sees, and the first */
};

/* A token to append: its K and V of head 0, and the row of the KV block at source. */
struct device_token {
	uint64_t k, v;
	uint32_t source;
	uint32_t row;
};

/* The same of a row whose K and V their maker puts there; source DEVICE_NONE: it has none. */
struct device_place {
	uint32_t source, row;
};

struct device_shape {
	uint32_t head_dim;
	uint32_t bf16;
	uint32_t n_kv_heads;
	uint32_t group; /* query heads of a KV head */
	uint64_t head_bytes; /* from a KV head to the next */
	float scale_log2; /* softmax scale x log2 e */
	/* query heads of a row, of which a token may have several (row_map.h) */
	uint32_t row_heads;
};

/* Rows of bytes from anywhere to anywhere. */
struct device_copy {
	uint64_t from, to;
};

/* A word of a schedule that changes as tokens come. */
struct device_patch {
	uint64_t to;
	uint32_t value;
	uint32_t pad;
};

#endif
