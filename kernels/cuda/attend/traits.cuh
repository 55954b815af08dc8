/*
 * traits.cuh - all that follows from types and head dims when a kernel is compiled, and the one way
 * from a model's to the kernel that was compiled for them.
 *
 * Shared memory (227 KB on sm_90, 163 KB on sm_80) has Q of 8 row blocks, and KV tiles in what is
 * left, whole wide tiles of them where there are wide tiles. Registers of those who compute (216 a
 * thread on sm_90, 168 on sm_80) have a row block's O, and Q and a wide tile's scores where there
 * is room:
 *
 *      dim   KV block   KV tiles: sm_90, sm_80   O, Q registers   Q stays in   wide tiles on sm_90
 *      64    2 KB       20       16              32       16      registers    yes
 *      96    3 KB       16       10              48       24      registers    yes
 *      128   4 KB       12        8              64       32      registers    yes
 *      192   6 KB        7        4              96       48      shared       no
 *      256   8 KB        5        3              128      64      shared       no
 *
 * A wide tile is folded by halves: it needs 32 registers for one's scores and 32 for two's weights
 * beside O and Q.
 */
#ifndef COPPICE_CUDA_TRAITS_CUH
#define COPPICE_CUDA_TRAITS_CUH

#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/kv_layout.h"

#define SHARED_BYTES_LARGE 232448u /* sm_90 */
#define SHARED_BYTES_SMALL 166912u /* sm_80 */
#define WORK_SLOTS 4u
/* What a block has beside KV tiles and rows: sums, entries of work, barriers. */
#define LAYOUT_BYTES (DEVICE_WARPS * DEVICE_BLOCK_ROWS * 8 + WORK_SLOTS * (64 + 16) + 16)

#if __CUDA_ARCH__ >= 900
#define LARGE true
#else
#define LARGE false
#endif

struct device_attend;

/* Attention as it is in the books. Another one is a struct with the same names; what it does not
 * do costs nothing. */
struct variant_none {
	static constexpr bool bounded = false; /* rows have a first position that they see */
	static constexpr bool scores_change = false; /* score() makes another of a scaled score */
	static constexpr bool has_sink = false; /* rows see a key without value, of score sink() */

	/* In powers of 2, as it is returned: times log2 e. */
	__device__ static float score(float scaled)
	{
		return scaled;
	}

	/* q_head: from the first that the launch has. Of attention whose parts are merged later
	 * (legs, devices that split paths) the last merge has the sink. */
	__device__ static float sink(const struct device_attend &a, uint32_t q_head)
	{
		(void)a;
		(void)q_head;
		return -INFINITY;
	}
};

struct variant_bounded : variant_none {
	static constexpr bool bounded = true;
};

/* Of the schedule's row, the first query head of those of its KV head's that it has (row_map.h). */
__device__ inline uint32_t first_head_of(const struct device_shape &shape, uint32_t row)
{
	return row % (shape.group / shape.row_heads) * shape.row_heads;
}

template <typename DTYPE, uint32_t QK_DIM, uint32_t V_DIM = QK_DIM, typename VARIANT = variant_none>
struct kernel_traits {
	typedef DTYPE dtype;
	typedef VARIANT variant;
	static constexpr uint32_t qk = QK_DIM, v = V_DIM, widest = qk > v ? qk : v;

	static constexpr uint32_t key_bytes = kv_part_bytes(qk), value_bytes = kv_part_bytes(v);
	static constexpr uint32_t kv_block_bytes = key_bytes + value_bytes;
	static constexpr uint32_t kv_tile_bytes = DEVICE_KV_TILE_BLOCKS * kv_block_bytes;

	/* Else it stays in shared memory until the work tile ends: no registers are left for it. */
	static constexpr bool keeps_q = widest <= 128;
	static constexpr bool takes_wide = kv_wide_tiles_fit(widest); /* on sm_90 */

	/* Q of a row block, and later 64 columns of its sums */
	static constexpr uint32_t q_bytes = DEVICE_BLOCK_ROWS * qk * KV_VALUE_BYTES;
	static constexpr uint32_t rows_stride = q_bytes < 4096 ? 4096 : q_bytes;

	__host__ __device__ static constexpr uint32_t ring_slots(bool large)
	{
		uint32_t bytes = (large ? SHARED_BYTES_LARGE : SHARED_BYTES_SMALL) - LAYOUT_BYTES -
				 DEVICE_WARPS * rows_stride;
		uint32_t n = bytes / (kv_tile_bytes + (uint32_t)sizeof(struct device_kv_tile) + 16);

		return large && takes_wide ? n / DEVICE_WIDE_KV_TILES * DEVICE_WIDE_KV_TILES : n;
	}

	static constexpr uint32_t slots = ring_slots(LARGE);
};

/* ---- from a model's shape ------------------------------------------------------------------- */

template <uint32_t VALUE> struct constant {
	static constexpr uint32_t value = VALUE;
};

template <typename TYPE> struct type_tag {
	typedef TYPE type;
};

/* call(type_tag<DTYPE>, constant<DIM>), whose kernel for that is asked for; of a dim that
 * kv_takes_dim. */
template <typename CALL> static auto for_shape(uint32_t dim, bool bf16, CALL call)
{
	switch (dim) {
#define FOR_DIM(of) \
	case of: \
		return bf16 ? call(type_tag<dtype_bf16>(), constant<of>()) \
			    : call(type_tag<dtype_half>(), constant<of>());
		KV_HEAD_DIMS(FOR_DIM)
#undef FOR_DIM
	default:
		return decltype(call(type_tag<dtype_half>(), constant<64>())){};
	}
}

#endif
