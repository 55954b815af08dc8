/*
 * tall.cu - see tall.h. Weights and rows go from memory to shared memory, 64 inputs at a time, and
 * from there into wgmma: a are 64 outputs, b all rows, of which so none but 16 is padded to.
 *
 * A tile is of as many gates as values, by turns eight of each: a thread has a gate and the value
 * that it gates in its registers, and what comes of them is all that is written. All tiles read all
 * rows, from the second-level cache, so tiles are tall: as few as keep all multiprocessors busy.
 *
 * Two warps bring. One fills its ring with weights before the launch before this one has ended, the
 * other its own with rows behind that: rows are soon there, and need fewer bytes under way. Two
 * groups of four warps multiply, 128 outputs each. Grid: a block for each tile.
 */
#include "cluster.cuh"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "maps.h"
#include "tall.h"
#include "tall_cut.h"
#include "tile_product.cuh"
#include "values.cuh"

#define GROUP 128u /* threads */
#define MULTIPLIERS (2 * GROUP)
#define THREADS (MULTIPLIERS + GROUP) /* registers change hands by whole groups */
#define REGISTERS 232 /* of a thread that multiplies */
#define REGISTERS_LEFT 40
#define SLAB 64u /* outputs of one product */
#define SLABS 2u /* of a group */
#define SLAB_BYTES (SLAB * MAP_ROW_BYTES)
/* of a row of what comes of a tile, so far apart that no two lanes meet in a bank */
#define MADE_STRIDE (TALL_TILE + 16)

struct tall_job {
	CUtensorMap w, rows;
	char *out;
	uint32_t out_stride, n_rows, n_out; /* n_out: gates */
	uint32_t n_steps, height, weights_bytes; /* gates of a tile; of a step */
	uint32_t rows_stages, weights_stages;
};

#ifdef WGMMA
/* ---- rings ----------------------------------------------------------------------------------- */

struct tall_ring {
	uint32_t barriers, at, stage_bytes, n_stages;
	uint32_t slot, parity;

	__device__ inline uint32_t full() const
	{
		return barriers + slot * 8;
	}
	__device__ inline uint32_t empty() const
	{
		return barriers + (TALL_STAGES_MOST + slot) * 8;
	}
	__device__ inline uint32_t stage() const
	{
		return at + slot * stage_bytes;
	}
	__device__ inline void step()
	{
		slot = slot + 1 == n_stages ? 0 : slot + 1;
		parity ^= slot == 0;
	}
	__device__ inline void wait_full() const
	{
		barrier_wait(full(), parity);
	}
	/* By one lane: the stage is its own, and is to be filled. */
	__device__ inline void begin(uint32_t i) const
	{
		if (i >= n_stages)
			barrier_wait(empty(), parity ^ 1);
		barrier_expect(full(), stage_bytes);
	}
};

/* ROWS: as many as are multiplied. */
template <uint32_t ROWS>
__device__ inline struct tall_ring rows_ring(const struct tall_job &j, uint32_t base)
{
	return {base, base + RING_AT, ROWS * MAP_ROW_BYTES, j.rows_stages, 0, 0};
}

template <uint32_t ROWS>
__device__ inline struct tall_ring weights_ring(const struct tall_job &j, uint32_t base)
{
	return {base + 2 * TALL_STAGES_MOST * 8,
		base + RING_AT + j.rows_stages * ROWS * MAP_ROW_BYTES,
		j.weights_bytes,
		j.weights_stages,
		0,
		0};
}

static_assert(4 * TALL_STAGES_MOST * 8 <= RING_AT, "barriers of both");

__device__ inline void make_barriers(struct tall_ring ring)
{
	ring.slot = threadIdx.x;
	barrier_init(ring.full(), 1);
	barrier_init(ring.empty(), MULTIPLIERS / 32);
	fence_barriers();
}

/* ---- who brings ------------------------------------------------------------------------------ */

/* Of two matrices by turns, from that eight on. */
__device__ inline void tensor_copy_turns(uint32_t to, const CUtensorMap *map, uint32_t x,
					 uint32_t eight, uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::"
		     "bytes [%0], [%1, {%2, %3, %3, %4}], [%5];" ::"r"(to),
		     "l"(map), "r"(x), "r"(0), "r"(eight), "r"(barrier)
		     : "memory");
}

/* From the step that the ring is at, to that one. */
__device__ inline void bring_weights(const struct tall_job &j, struct tall_ring &at, uint32_t from,
				     uint32_t to)
{
#pragma unroll 1
	for (uint32_t i = from; i < to; i++, at.step()) {
		at.begin(i);
		tensor_copy_turns(at.stage(), &j.w, i * MAP_INPUTS, blockIdx.x * (j.height / 8),
				  at.full());
	}
}

__device__ inline void bring_rows(const struct tall_job &j, struct tall_ring at)
{
#pragma unroll 1
	for (uint32_t i = 0; i < j.n_steps; i++, at.step()) {
		at.begin(i);
		tensor_copy_2(at.stage(), &j.rows, i * MAP_INPUTS, 0, at.full());
	}
}

/* ---- who multiplies -------------------------------------------------------------------------- */

/* A thread's sums: of a slab, gates (0, 1) and values (2, 3), of rows two by two. */
template <uint32_t ROWS> struct tall_sums {
	float of[SLABS][ROWS / 8][4];
};

template <uint32_t ROWS> __device__ inline void clear(struct tall_sums<ROWS> &sums)
{
#pragma unroll
	for (uint32_t s = 0; s < SLABS; s++) {
#pragma unroll
		for (uint32_t i = 0; i < ROWS / 2; i++)
			sums.of[s][i / 4][i % 4] = 0;
	}
}

/* A group has nothing under way while it lets go of a stage: the other has. */
template <typename DTYPE, uint32_t ROWS>
__device__ inline void multiply(const struct tall_job &j, uint32_t base,
				struct tall_sums<ROWS> &sums)
{
	struct tall_ring rows = rows_ring<ROWS>(j, base), weights = weights_ring<ROWS>(j, base);
	const uint32_t first = uniform(threadIdx.x / GROUP) * SLABS * SLAB_BYTES;

	clear(sums);
#pragma unroll 1
	for (uint32_t n = j.n_steps; n > 0; n--, rows.step(), weights.step()) {
		uint64_t a = wgmma_matrix<64>(uniform(weights.stage()) + first, 16, 1024);
		uint64_t b = wgmma_matrix<64>(uniform(rows.stage()), 16, 1024);

		weights.wait_full();
		rows.wait_full();
		wgmma_begin();
#pragma unroll
		for (uint32_t i = 0; i < SLABS * 4; i++)
			tile_product<DTYPE, ROWS>::add(sums.of[i / 4],
						       a + i / 4 * (SLAB_BYTES / 16) + i % 4 * 2,
						       b + i % 4 * 2);
		wgmma_commit();
		wgmma_wait<0>();
		if (elected()) {
			barrier_arrive(rows.empty());
			barrier_arrive(weights.empty());
		}
	}
#pragma unroll
	for (uint32_t s = 0; s < SLABS; s++)
		registers_fence(sums.of[s]);
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Two matrices of 8 x 8 as wgmma's sums lie, turned round; lanes 0 to 15 say where rows go. */
__device__ inline void put_turned(uint32_t at, uint32_t a, uint32_t b)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at),
		     "r"(a), "r"(b)
		     : "memory");
}

template <typename DTYPE> __device__ inline uint32_t pack_gated(const float (&d)[4])
{
	return DTYPE::pack(silu_gated(d[0], d[2]), silu_gated(d[1], d[3]));
}

/* Eight outputs of a warp and slab. */
template <typename DTYPE, uint32_t ROWS>
__device__ inline void put_gated(uint32_t base, const struct tall_sums<ROWS> &sums)
{
	const uint32_t warp = threadIdx.x % GROUP / 32, group = threadIdx.x / GROUP;
	const uint32_t to = base + RING_AT + threadIdx.x % 16 * MADE_STRIDE;

#pragma unroll
	for (uint32_t s = 0; s < SLABS; s++) {
		const uint32_t eight = (group * SLABS + s) * 4 + warp;

#pragma unroll
		for (uint32_t e = 0; e < ROWS / 8; e += 2)
			put_turned(to + e * 8 * MADE_STRIDE + eight * 16,
				   pack_gated<DTYPE>(sums.of[s][e]),
				   pack_gated<DTYPE>(sums.of[s][e + 1]));
	}
}

/* Eight outputs of a row each time. */
__device__ inline void tell(const struct tall_job &j, uint32_t base)
{
	const uint32_t first = blockIdx.x * j.height;
	const uint32_t n_eights = min_u32(j.height, j.n_out - first) / 8;

	for (uint32_t i = threadIdx.x; i < j.n_rows * n_eights; i += MULTIPLIERS) {
		const uint32_t row = i / n_eights, eight = i % n_eights;
		const uint64_t at = (uint64_t)row * j.out_stride + first + eight * 8;

		*(uint4 *)(j.out + at * 2) =
			shared_four(base + RING_AT + row * MADE_STRIDE + eight * 16);
	}
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename DTYPE, uint32_t ROWS>
__device__ inline void multiply_tile(const struct tall_job &j, uint32_t base)
{
	struct tall_sums<ROWS> sums;

	registers_more<REGISTERS>();
	launch_wait();
	multiply<DTYPE>(j, base, sums);
	named_barrier(1, MULTIPLIERS); /* all have read the last of the rings */
	put_gated<DTYPE>(base, sums);
	named_barrier(1, MULTIPLIERS);
	tell(j, base);
}

template <uint32_t ROWS> __device__ inline void bring(const struct tall_job &j, uint32_t base)
{
	struct tall_ring weights = weights_ring<ROWS>(j, base);

	registers_less<REGISTERS_LEFT>();
	if (threadIdx.x == MULTIPLIERS)
		bring_weights(j, weights, 0, j.n_steps);
	if (threadIdx.x == MULTIPLIERS + 32) {
		launch_wait();
		bring_rows(j, rows_ring<ROWS>(j, base));
	}
}
#endif

template <typename DTYPE, uint32_t ROWS>
__global__ void __launch_bounds__(THREADS, 1) tall_kernel(const __grid_constant__ struct tall_job j)
{
#ifdef WGMMA
	extern __shared__ __align__(1024) char shared[];
	const uint32_t base = shared_address(shared);

	launch_next();
	if (threadIdx.x < TALL_STAGES_MOST) {
		make_barriers(rows_ring<ROWS>(j, base));
		make_barriers(weights_ring<ROWS>(j, base));
	}
	__syncthreads();
	if (threadIdx.x < MULTIPLIERS)
		multiply_tile<DTYPE, ROWS>(j, base);
	else
		bring<ROWS>(j, base);
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

typedef void (*tall_function)(struct tall_job);

template <typename DTYPE> static tall_function kernel_for(uint32_t rows)
{
	return rows == 96    ? tall_kernel<DTYPE, 96>
	       : rows == 128 ? tall_kernel<DTYPE, 128>
	       : rows == 144 ? tall_kernel<DTYPE, 144>
			     : tall_kernel<DTYPE, 160>;
}

static tall_function kernel_of(bool bf16, uint32_t rows)
{
	return bf16 ? kernel_for<dtype_bf16>(rows) : kernel_for<dtype_half>(rows);
}

extern "C" int device_tall_init(void)
{
	int r = cudaSuccess;

	for (uint32_t n = TALL_ROWS_LEAST;
	     code_has_wgmma(device_code()) && n <= TALL_ROWS_MOST && !r; n = tall_cut_rows(n) + 1)
		for (uint32_t bf16 = 0; bf16 < 2 && !r; bf16++)
			r = cudaFuncSetAttribute((const void *)kernel_of(bf16, tall_cut_rows(n)),
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 RING_END);
	return r;
}

static bool is_whole(const void *at, uint64_t stride)
{
	return (uintptr_t)at % 16 == 0 && stride % 8 == 0;
}

extern "C" bool device_tall_takes(const struct device_few *few)
{
	bool are_whole = is_whole(few->in, few->in_stride) && is_whole(few->w[0], few->w_stride) &&
			 is_whole(few->w[1], few->w_stride) &&
			 is_whole(few->out.narrow, few->out.narrow_stride);

	return code_has_wgmma(device_code()) && few->n_rows >= TALL_ROWS_LEAST &&
	       few->n_rows <= TALL_ROWS_MOST && few->gated && few->act == PROGRAM_SILU &&
	       !few->norm.at && !few->bias[0].at && !few->bias[1].at && few->out.narrow &&
	       !few->out.wide && few->n_out[0] % 8 == 0 && are_whole &&
	       (const char *)few->w[1] > (const char *)few->w[0] &&
	       tall_cut_pays(few->n_out[0], few->n_in);
}

static bool encode_all(const struct device_few *few, uint32_t height, uint32_t rows,
		       struct tall_job *job)
{
	const bool bf16 = few->out.bf16;
	const struct map_rows in = {few->in, few->n_rows, few->n_in, few->in_stride, rows, bf16};
	const struct map_rows w = {few->w[0],	  few->n_out[0], few->n_in,
				   few->w_stride, height,	 bf16};

	return maps_encode(&job->rows, &in) && maps_encode_turns(&job->w, &w, few->w[1]);
}

extern "C" int device_tall(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	uint32_t rows = tall_cut_rows(few->n_rows), n_out = few->n_out[0];
	uint32_t height = tall_cut_height(n_out, n_blocks), over;
	struct tall_job job = {};

	job.out = (char *)few->out.narrow;
	job.out_stride = few->out.narrow_stride;
	job.n_rows = few->n_rows;
	job.n_out = n_out;
	job.n_steps = ceil_div(few->n_in, MAP_INPUTS);
	job.height = height;
	job.weights_bytes = 2 * height * MAP_ROW_BYTES;
	/* products read slabs that are whole, of which nobody takes what is behind the tile */
	over = TALL_TILE * MAP_ROW_BYTES - job.weights_bytes;
	tall_cut_stages(RING_END - RING_AT - over, rows * MAP_ROW_BYTES, job.weights_bytes,
			&job.rows_stages, &job.weights_stages);
	if (!encode_all(few, height, rows, &job))
		return cudaErrorNotSupported;
	return launch_early(kernel_of(few->out.bf16, rows), &job,
			    {ceil_div(n_out, height), THREADS, RING_END}, to);
}
