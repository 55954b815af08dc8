/*
 * chosen.cu - see chosen.h. Grid: a block for each unit; its threads write the unit's slots, 16
 * bytes at a time.
 */
#include "chosen.h"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/launch.cuh"

#include <stddef.h>

#define CHOOSE_THREADS 256u
#define SLOT_WORDS (sizeof(struct device_slot) / 16)
#define STAGES_MOST 255u /* of a run */

#if __CUDA_ARCH__ >= 800
static_assert(sizeof(struct device_slot) == 80 && sizeof(struct device_group) == 16,
	      "words of a slot");

struct chosen_unit {
	const struct device_choose &c;
	struct device_choice at;
	uint32_t n_stages;
};

__device__ inline uint32_t window_of(const struct chosen_unit &u, uint32_t slot)
{
	uint32_t block = u.c.blocks[u.at.block + slot / u.c.block_windows];

	return block * u.c.block_windows + slot % u.c.block_windows;
}

__device__ inline uint4 group_word(const struct chosen_unit &u, uint32_t pos)
{
	uint32_t left = pos < u.c.n_k ? u.c.n_k - pos : 0;

	return make_uint4(pos, u.at.n_rows << 16, min(left, DEVICE_GROUP_TOKENS) << 16, 0);
}

/* Row blocks of which some row sees something of what begins at pos; whose rows all see all of
 * it. */
__device__ inline uint2 masks_of(const struct chosen_unit &u, uint32_t pos)
{
	uint32_t some = 0, all = 0;

#pragma unroll
	for (uint32_t b = 0; b < DEVICE_WARPS; b++) {
		uint32_t first = b * u.c.block_tokens,
			 end = min(first + u.c.block_tokens, u.at.n_rows);

		if (first >= end)
			continue;
		some |= (uint32_t)(u.at.pos + end - 1 >= pos) << b;
		all |= (uint32_t)(u.at.pos + first >=
				  pos + DEVICE_SLOT_GROUPS * DEVICE_GROUP_TOKENS - 1)
		       << b;
	}
	return make_uint2(some, all);
}

/* What stands behind a slot's groups. */
__device__ inline uint4 note_word(const struct chosen_unit &u, uint32_t slot, uint32_t pos)
{
	uint32_t stage = slot / DEVICE_STAGE_SLOTS, plain = slot < u.at.n_plain;
	uint2 masks = masks_of(u, pos);

	if (stage < u.n_stages) {
		uint32_t warps = u.at.n_rows > u.c.block_tokens * (DEVICE_WARPS / 2) ? 0xff : 0x0f;
		uint32_t run = slot % DEVICE_STAGE_SLOTS ? 0 : min(u.n_stages - stage, STAGES_MOST);

		return make_uint4(warps | 0xff00 | 1u << 16, run | (run ? 0xff00 : 0), 0, 0);
	}
	return plain ? make_uint4(masks.x | masks.y << 8, 0, 0, 0) :
		     /* causal, and partial */
		       make_uint4(masks.x | masks.y << 8 | 1u << 24, 1u << 16, 0, 0);
}

__device__ inline uint4 source_word(const struct chosen_unit &u, uint32_t window)
{
	uint32_t from = u.c.windows[window], v[DEVICE_SLOT_GROUPS];

#pragma unroll
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++)
		v[j] = (window * DEVICE_SLOT_GROUPS + j) * DEVICE_GROUP_TOKENS < u.c.n_k
			       ? from + j * u.c.group_sources
			       : DEVICE_NONE;
	return make_uint4(v[0], v[1], v[2], v[3]);
}

__device__ inline void write_unit(const struct chosen_unit &u, uint32_t index)
{
	struct device_unit unit = {u.at.row,
				   u.at.n_rows,
				   u.at.slot,
				   u.at.n_slots,
				   0,
				   3,
				   u.n_stages ? DEVICE_UNIT_WIDE : 0u,
				   u.c.block_tokens};

	if (threadIdx.x == 0)
		u.c.units[index] = unit;
	if (threadIdx.x < DEVICE_FIRST_SLOTS)
		((uint4 *)u.c.firsts)[index * DEVICE_FIRST_SLOTS + threadIdx.x] =
			threadIdx.x < u.at.n_slots
				? source_word(u, window_of(u, threadIdx.x))
				: make_uint4(DEVICE_NONE, DEVICE_NONE, DEVICE_NONE, DEVICE_NONE);
	if (index == 0 && threadIdx.x < DEVICE_UNIT_ROWS)
		u.c.dests[threadIdx.x] = DEVICE_NONE;
}
#endif

__global__ void __launch_bounds__(CHOOSE_THREADS)
	choose_kernel(const __grid_constant__ struct device_choose c)
{
#if __CUDA_ARCH__ >= 800
	launch_wait();
	launch_next();
	const struct device_choice at = c.choices[blockIdx.x];
	const struct chosen_unit u = {c, at, c.wide ? at.n_plain / DEVICE_STAGE_SLOTS : 0};
	uint4 *slots = (uint4 *)(c.slots + at.slot), *sources = (uint4 *)(c.sources + at.slot);

	write_unit(u, blockIdx.x);
	for (uint32_t i = threadIdx.x; i < at.n_slots * SLOT_WORDS; i += CHOOSE_THREADS) {
		uint32_t slot = i / SLOT_WORDS, word = i % SLOT_WORDS;
		uint32_t pos = window_of(u, slot) * DEVICE_SLOT_GROUPS * DEVICE_GROUP_TOKENS;

		slots[i] = word < DEVICE_SLOT_GROUPS
				   ? group_word(u, pos + word * DEVICE_GROUP_TOKENS)
				   : note_word(u, slot, pos);
	}
	for (uint32_t i = threadIdx.x; i < at.n_slots; i += CHOOSE_THREADS)
		sources[i] = source_word(u, window_of(u, i));
#endif
}

extern "C" int device_choose(const struct device_choose *choose, struct launch_to to)
{
	return launch_early(choose_kernel, choose, {choose->n_units, CHOOSE_THREADS, 0}, to);
}
