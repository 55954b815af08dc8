/*
 * some_units.cuh - what the parts of some.cu share: the job, its units, the ring in shared memory,
 * and the warp that fills it.
 */
#ifndef COPPICE_CUDA_SOME_UNITS_CUH
#define COPPICE_CUDA_SOME_UNITS_CUH

#include "cluster.cuh"
#include "proto/arith.h"
#include "kernels/cuda/device/ptx.cuh"
#include "some.h"

#define GROUP 128u /* threads */
#define MULTIPLIERS (2 * GROUP)
#define THREADS (MULTIPLIERS + 32)
#define SLAB SOME_SLAB
#define STAGES_MOST 40u
#define SHARED_BYTES_MOST (UINT32_C(226) << 10) /* what is not of the ring has a part of its own */

struct some_job {
	CUtensorMap w[3], rows;
	struct device_rows out;
	struct device_vector bias[3];
	uint32_t n_out[3], n_tiles[3];
	uint32_t n_rows, n_parts, part_steps, n_steps;
	uint32_t height; /* outputs of a tile; gated: of each half */
	uint32_t n_stages, stage_bytes, rows_at;
	uint32_t gated, act;
	float4 *parts; /* [tile][part][slab][8 rows][MULTIPLIERS]: some_cut_parts_bytes */
	uint32_t *counters; /* [tile] */
};

#ifdef WGMMA
/* ---- units ----------------------------------------------------------------------------------- */

struct some_unit {
	uint32_t tile, part;
	uint32_t matrix, first; /* output of the matrix */
	uint32_t before; /* outputs of matrices before it */
	uint32_t step, end;
};

__device__ inline uint32_t count_units(const struct some_job &j)
{
	return (j.n_tiles[0] + j.n_tiles[1] + j.n_tiles[2]) * j.n_parts;
}

__device__ inline struct some_unit find_unit(const struct some_job &j, uint32_t i)
{
	struct some_unit unit = {};
	uint32_t tile;

	unit.tile = tile = i / j.n_parts;
	unit.part = i % j.n_parts;
#pragma unroll
	for (uint32_t m = 0; m < 2; m++) {
		if (unit.matrix == m && tile >= j.n_tiles[m]) {
			tile -= j.n_tiles[m];
			unit.before += j.n_out[m];
			unit.matrix++;
		}
	}
	unit.first = tile * j.height;
	unit.step = unit.part * j.part_steps;
	unit.end = min_u32(unit.step + j.part_steps, j.n_steps);
	return unit;
}

struct some_ring {
	uint32_t base, slot, parity;
	__device__ inline uint32_t full() const
	{
		return base + slot * 8;
	}
	__device__ inline uint32_t empty() const
	{
		return base + (STAGES_MOST + slot) * 8;
	}
	__device__ inline uint32_t stage(const struct some_job &j) const
	{
		return base + RING_AT + slot * j.stage_bytes;
	}
	__device__ inline void step(const struct some_job &j)
	{
		slot = slot + 1 == j.n_stages ? 0 : slot + 1;
		parity ^= slot == 0;
	}
};

/* ---- who brings ------------------------------------------------------------------------------ */

struct some_bringer {
	const struct some_job &j;
	struct some_ring at;
	struct some_unit unit;
	uint32_t next, n_units; /* units */

	__device__ inline bool more() const
	{
		return next < n_units;
	}

	__device__ inline void begin(uint32_t i)
	{
		next = i;
		if (more())
			unit = find_unit(j, i);
	}

	__device__ inline void step()
	{
		at.step(j);
		if (++unit.step == unit.end)
			begin(next + gridDim.x);
	}

	__device__ inline void bring_weights() const
	{
		uint32_t to = at.stage(j), x = unit.step * SOME_INPUTS;

		barrier_expect(at.full(), j.stage_bytes);
		tensor_copy_2(to, &j.w[unit.matrix], x, unit.first, at.full());
		if (j.gated)
			tensor_copy_2(to + j.height * SOME_ROW_BYTES, &j.w[1], x, unit.first,
				      at.full());
	}

	__device__ inline void bring_rows() const
	{
		tensor_copy_2(at.stage(j) + j.rows_at, &j.rows, unit.step * SOME_INPUTS, 0,
			      at.full());
	}
};

__device__ inline void bring(const struct some_job &j, uint32_t base)
{
	struct some_bringer weights = {j, {base, 0, 0}, {}, 0, count_units(j)}, rows = weights;

	asm volatile("prefetch.tensormap [%0];" ::"l"(&j.rows) : "memory");
	weights.begin(blockIdx.x);
	rows.begin(blockIdx.x);
	bring_all(weights, rows, j.n_stages);
}
#endif

#endif
