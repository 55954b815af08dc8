/*
 * kv_layout.h - how KV lies in the pool, for the processor and for kernels: nobody else knows.
 *
 *   page      [layer][KV head] of head blocks; a head block is page_tokens / 8 KV blocks
 *   KV block  8 tokens: their K, then their V, so that any run of KV blocks is one bulk copy
 *   atom      8 rows x 128 bytes, of dims that are multiples of 64, else 8 rows x 64 bytes: K and V
 *             are a row of them each. The 16-byte chunk c of row r lies at c ^ r of its atom (the
 *             128-byte swizzle), or at c ^ r / 2 (the 64-byte one): what tensor instructions read
 *             without conflicts, and no byte is there for padding
 *   source    where a KV block lies: its address in units of KV_SOURCE_BYTES
 *
 * K and V may be of different dims. Values have 2 bytes.
 */
#ifndef COPPICE_CUDA_KV_LAYOUT_H
#define COPPICE_CUDA_KV_LAYOUT_H

#include "kernels/work.h"

#include <assert.h>

#ifdef __CUDACC__
#define KV_INLINE __host__ __device__ constexpr
#else
#define KV_INLINE static inline
#endif

#define KV_BLOCK_TOKENS 8u
#define KV_VALUE_BYTES 2u
#define KV_CHUNK_BYTES 16u
#define KV_CHUNK_VALUES (KV_CHUNK_BYTES / KV_VALUE_BYTES)
#define KV_SOURCE_BYTES 1024u /* every KV block is a multiple of it */

/* Dims that kernels are compiled for; tests/ and kernels/README.md say what another one takes. */
#define KV_HEAD_DIMS(DO) DO(64) DO(96) DO(128) DO(192) DO(256)
#define KV_HEAD_DIM_MOST 256u
#define KV_DIM_FITS(of) static_assert((of) <= KV_HEAD_DIM_MOST, "what tables are made for");
KV_HEAD_DIMS(KV_DIM_FITS)
#undef KV_DIM_FITS

static inline bool kv_takes_dim(uint32_t dim)
{
#define KV_IS_DIM(of) dim == (of) ||
	return KV_HEAD_DIMS(KV_IS_DIM) false;
#undef KV_IS_DIM
}

/* Do a row block's Q and O leave registers for a wide tile? */
KV_INLINE bool kv_wide_tiles_fit(uint32_t dim)
{
	return dim <= 128;
}

/* Values of a row in an atom. */
KV_INLINE uint32_t kv_atom_values(uint32_t dim)
{
	return dim % 64 ? 32 : 64;
}

/* Chunks of a row in an atom. */
KV_INLINE uint32_t kv_atom_chunks_log2(uint32_t dim)
{
	return dim % 64 ? 2 : 3;
}

KV_INLINE uint32_t kv_atom_bytes(uint32_t dim)
{
	return KV_BLOCK_TOKENS * kv_atom_values(dim) * KV_VALUE_BYTES;
}

/* What the chunks of a row, of which only the last bits count, change places by. */
KV_INLINE uint32_t kv_swizzle(uint32_t dim, uint32_t row)
{
	return dim % 64 ? row >> 1 & 3 : row & 7;
}

/* K or V of a KV block. */
KV_INLINE uint32_t kv_part_bytes(uint32_t dim)
{
	return KV_BLOCK_TOKENS * dim * KV_VALUE_BYTES;
}

KV_INLINE uint32_t kv_block_bytes(uint32_t qk_dim, uint32_t v_dim)
{
	return kv_part_bytes(qk_dim) + kv_part_bytes(v_dim);
}

/* Where chunk c of a row of the KV block's K lies in it, or of its V in that. */
KV_INLINE uint32_t kv_chunk_offset(uint32_t dim, uint32_t row, uint32_t chunk)
{
	uint32_t log2 = kv_atom_chunks_log2(dim), in_atom = chunk & ((1u << log2) - 1);

	return (chunk >> log2) * kv_atom_bytes(dim) + (row << log2) * KV_CHUNK_BYTES +
	       (in_atom ^ kv_swizzle(dim, row)) * KV_CHUNK_BYTES;
}

/* The other way round: which row and chunk lies at the i-th 16 bytes. */
KV_INLINE uint32_t kv_row_at(uint32_t dim, uint32_t i)
{
	return i >> kv_atom_chunks_log2(dim) & (KV_BLOCK_TOKENS - 1);
}

KV_INLINE uint32_t kv_chunk_at(uint32_t dim, uint32_t i)
{
	uint32_t log2 = kv_atom_chunks_log2(dim), in_atom = i & ((1u << log2) - 1);

	return ((i >> log2) / KV_BLOCK_TOKENS << log2) +
	       (in_atom ^ kv_swizzle(dim, kv_row_at(dim, i)));
}

/* Values of a row that a lane of a warp has: the last lanes have none where dims are no power of
 * two. */
KV_INLINE uint32_t kv_lane_values(uint32_t dim)
{
	return dim <= 64 ? 2 : dim <= 128 ? 4 : 8;
}

/* Chunks of a token's K and V that a lane of a warp has. */
KV_INLINE uint32_t kv_lane_chunks(uint32_t dim)
{
	return dim <= 128 ? 1 : 2;
}

/* ---- of a shape ----------------------------------------------------------------------------- */

/* A token's K and V of one KV head. */
static inline uint64_t kv_token_bytes(const struct work_shape *shape)
{
	return 2 * (uint64_t)shape->head_dim * KV_VALUE_BYTES;
}

/* From a KV head of a page to the next. */
static inline uint64_t kv_head_bytes(const struct work_shape *shape)
{
	return shape->page_tokens * kv_token_bytes(shape);
}

/* From a KV block to the next, in sources. */
static inline uint32_t kv_block_sources(const struct work_shape *shape)
{
	return kv_block_bytes(shape->head_dim, shape->head_dim) / KV_SOURCE_BYTES;
}

#endif
