/*
 * some.cu - see some.h. Weights and rows go from memory to shared memory, 64 inputs at a time, and
 * from there into wgmma: a are up to 256 outputs, b all rows.
 *
 * A unit is a tile of outputs and a part of the inputs. Where a matrix has too few outputs to give
 * every multiprocessor a tall tile, its inputs are cut into parts: rows are read once for each
 * tile, and tall ones read them seldom. Sums of parts go to memory, and the block that comes last
 * adds them up, in the order of the parts: so bits repeat, whoever was the last.
 *
 * Warp 8 brings: it fills the ring with weights before the launch before this one has ended, and
 * with rows behind that. Warps 0 to 7, two groups, multiply; gated, a thread has a gate and the
 * value that it gates. Grid: a block a multiprocessor, which takes units in turns.
 */
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "maps.h"
#include "some.h"
#include "some_cut.h"
#include "some_sums.cuh"
#include "some_units.cuh"

/* ---- the kernel ------------------------------------------------------------------------------ */

#ifdef WGMMA
template <typename DTYPE, uint32_t ROWS, uint32_t SLABS>
__device__ inline void multiply_all(const struct some_job &j, uint32_t base)
{
	struct some_ring at = {base, 0, 0};

#pragma unroll 1
	for (uint32_t i = blockIdx.x; i < count_units(j); i += gridDim.x) {
		const struct some_unit unit = find_unit(j, i);
		struct sums<ROWS, SLABS> sums;

		multiply_unit<DTYPE>(j, unit.end - unit.step, at, sums);
		if (j.n_parts > 1 && !put_together(j, unit, sums))
			continue;
		if constexpr (SLABS == 2) {
			if (j.gated) {
				tell_gated(j, unit, sums);
				continue;
			}
		}
		tell_plain(j, unit, sums);
	}
}
#endif

template <typename DTYPE, uint32_t ROWS, uint32_t SLABS>
__global__ void __launch_bounds__(THREADS, 1) some_kernel(const __grid_constant__ struct some_job j)
{
#ifdef WGMMA
	extern __shared__ __align__(1024) char shared[];
	const uint32_t base = shared_address(shared);

	launch_next();
	if (threadIdx.x < j.n_stages) {
		barrier_init(base + threadIdx.x * 8, 1);
		barrier_init(base + (STAGES_MOST + threadIdx.x) * 8, MULTIPLIERS / 32);
		fence_barriers();
	}
	__syncthreads();
	if (threadIdx.x < MULTIPLIERS) {
		launch_wait();
		multiply_all<DTYPE, ROWS, SLABS>(j, base);
	} else {
		if (threadIdx.x % 32 == 0)
			bring(j, base);
	}
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

typedef void (*some_function)(struct some_job);

static bool encode_all(const struct device_few *few, struct some_job *job)
{
	const bool bf16 = few->out.bf16;
	const struct map_rows rows = {
		few->in, few->n_rows, few->n_in, few->in_stride, some_cut_rows(few->n_rows), bf16};

	for (uint32_t i = 0; i < 3 && few->n_out[i]; i++) {
		const struct map_rows w = {few->w[i],	  few->n_out[i], few->n_in,
					   few->w_stride, job->height,	 bf16};

		if (!maps_encode(&job->w[i], &w))
			return false;
	}
	return maps_encode(&job->rows, &rows);
}

template <typename DTYPE, uint32_t SLABS> static some_function find_kernel(uint32_t rows)
{
	return rows == 8    ? some_kernel<DTYPE, 8, SLABS>
	       : rows == 16 ? some_kernel<DTYPE, 16, SLABS>
	       : rows == 32 ? some_kernel<DTYPE, 32, SLABS>
			    : some_kernel<DTYPE, 64, SLABS>;
}

static some_function kernel_of(bool bf16, uint32_t rows, uint32_t slabs)
{
	if (slabs == 1)
		return bf16 ? find_kernel<dtype_bf16, 1>(rows) : find_kernel<dtype_half, 1>(rows);
	return bf16 ? find_kernel<dtype_bf16, 2>(rows) : find_kernel<dtype_half, 2>(rows);
}

extern "C" int device_some_init(void)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; code_has_wgmma(device_code()) && i < 16 && !r; i++)
		r = cudaFuncSetAttribute((const void *)kernel_of(i % 2, 8u << i / 2 % 4, i / 8 + 1),
					 cudaFuncAttributeMaxDynamicSharedMemorySize,
					 SHARED_BYTES_MOST);
	return r;
}

static bool is_whole(const void *at, uint64_t stride)
{
	return (uintptr_t)at % 16 == 0 && stride % 8 == 0;
}

extern "C" bool device_some_takes(const struct device_few *few)
{
	bool is_long = few->n_rows <= SOME_LONG_ROWS && !device_few_holds(few);

	for (uint32_t i = 0; i < 3 && few->n_out[i]; i++)
		if (!is_whole(few->w[i], few->w_stride))
			return false;
	return code_has_wgmma(device_code()) && few->n_rows > 1 && few->n_rows <= SOME_ROWS &&
	       !few->norm.at && (few->gated || is_long) && is_whole(few->in, few->in_stride);
}

static void set_stages(struct some_job *job, uint32_t rows, uint32_t reach, uint32_t *ret_bytes)
{
	uint32_t most = SHARED_BYTES_MOST - RING_AT, over;

	job->rows_at = job->height * (job->gated ? 2 : 1) * SOME_ROW_BYTES;
	job->stage_bytes = job->rows_at + rows * SOME_ROW_BYTES;
	/* products read slabs that are whole, of which nobody takes what is behind the tile */
	over = reach > job->stage_bytes ? reach - job->stage_bytes : 0;
	job->n_stages = min_u32((most - over) / job->stage_bytes, STAGES_MOST);
	*ret_bytes = RING_AT + job->n_stages * job->stage_bytes + over;
}

static struct some_job make_job(const struct device_few *few, const struct device_some_room *room,
				const struct some_cut *cut)
{
	struct some_job job = {};

	job.out = few->out;
	for (uint32_t i = 0; i < 3; i++) {
		job.bias[i] = few->bias[i];
		job.n_out[i] = few->n_out[i];
	}
	some_cut_tiles(few, cut->height, job.n_tiles);
	job.n_rows = few->n_rows;
	job.n_parts = cut->n_parts;
	job.part_steps = cut->part_steps;
	job.n_steps = ceil_div(few->n_in, SOME_INPUTS);
	job.height = cut->height;
	job.gated = few->gated;
	job.act = few->act;
	job.parts = (float4 *)room->parts;
	job.counters = room->counters;
	return job;
}

extern "C" int device_some(const struct device_few *few, const struct device_some_room *room,
			   uint32_t n_blocks, struct launch_to to)
{
	struct some_cut cut = some_cut_find(few, n_blocks);
	uint32_t rows = some_cut_rows(few->n_rows), slabs = some_cut_slabs(few, cut.height);
	struct some_job job = make_job(few, room, &cut);
	uint32_t n_tiles = job.n_tiles[0] + job.n_tiles[1] + job.n_tiles[2];
	uint32_t reach = (job.gated ? job.height + 2 * SLAB : 2 * slabs * SLAB) * SOME_ROW_BYTES;
	struct launch_shape shape = {min_u32(n_tiles * cut.n_parts, n_blocks), THREADS, 0};

	if (!encode_all(few, &job))
		return cudaErrorNotSupported;
	set_stages(&job, rows, reach, &shape.shared_bytes);
	return launch_early(kernel_of(few->out.bf16, rows, slabs), &job, shape, to);
}
