/*
 * pair.cu - see pair.h. Rows and weights go from memory to shared memory, 64 inputs at a time, and
 * from there into wgmma: a are the rows, b a tile's outputs.
 *
 * A cluster, two blocks, has a tile of outputs, so low that all tiles are under way at a time. Each
 * block takes half of the inputs: rows are read once for each tile, and a tile of twice the height
 * reads them half as often. Two groups of warps take steps in turns. So there are four parts of
 * each sum, which meet in the blocks' shared memory: a block adds up half of the rows, in one
 * order.
 *
 * Warp 8 brings: it fills the ring with weights before the launch before this one has ended, and
 * with rows behind that. Grid: a cluster for each tile.
 */
#include "cluster.cuh"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "maps.h"
#include "pair.h"
#include "tile_product.cuh"
#include "values.cuh"

#define GROUP 128u /* threads */
#define MULTIPLIERS (2 * GROUP)
#define THREADS (MULTIPLIERS + 32)
#define ROWS 64u
#define ROWS_BYTES (ROWS * MAP_ROW_BYTES)
#define MINE (ROWS / CLUSTER_BLOCKS) /* rows whose sums a block puts together */
#define STAGES_MOST 32u

struct pair_job {
	CUtensorMap w[3], rows;
	struct device_rows out;
	struct device_vector bias[3];
	uint32_t n_out[3], n_tiles[3];
	uint32_t n_rows, n_steps, part_steps;
};

/* TILE: outputs. */
template <uint32_t TILE>
struct pair_ring : tile_ring<ROWS_BYTES + TILE * MAP_ROW_BYTES, STAGES_MOST> {
	/* what a group has of all rows lies there in the end, so far apart that no two lanes of
	 * half a warp meet in a bank */
	static constexpr uint32_t PART_STRIDE = (TILE + 8) * sizeof(float);
	static constexpr uint32_t PART_BYTES = ROWS * PART_STRIDE;
	static_assert(TILE % 32 == 0, "whole atoms");
	static_assert(RING_AT + 2 * PART_BYTES <= pair_ring::BYTES, "room for both");
};

#ifdef WGMMA
/* ---- tiles ----------------------------------------------------------------------------------- */

/* The block's: a matrix, the first of its outputs there and among those of all, and steps. */
struct pair_tile {
	uint32_t matrix, first, before, step, n_steps;
};

template <uint32_t TILE> __device__ inline struct pair_tile find_tile(const struct pair_job &j)
{
	struct pair_tile t = {};
	uint32_t tile = blockIdx.x / CLUSTER_BLOCKS;

#pragma unroll
	for (uint32_t m = 0; m < 2; m++) {
		if (t.matrix == m && tile >= j.n_tiles[m]) {
			tile -= j.n_tiles[m];
			t.before += j.n_out[m];
			t.matrix++;
		}
	}
	t.first = tile * TILE;
	t.step = min_u32(cluster_rank() * j.part_steps, j.n_steps);
	t.n_steps = min_u32(j.part_steps, j.n_steps - t.step);
	return t;
}

/* ---- who brings ------------------------------------------------------------------------------ */

template <uint32_t TILE>
__device__ inline void bring_weights(const struct pair_job &j, const struct pair_tile &t,
				     const struct pair_ring<TILE> &at, uint32_t i)
{
	barrier_expect(at.full(), at.STAGE_BYTES);
	tensor_copy_2(at.stage() + ROWS_BYTES, &j.w[t.matrix], (t.step + i) * MAP_INPUTS, t.first,
		      at.full());
}

template <uint32_t TILE>
__device__ inline void bring_rows(const struct pair_job &j, const struct pair_tile &t,
				  const struct pair_ring<TILE> &at, uint32_t i)
{
	tensor_copy_2(at.stage(), &j.rows, (t.step + i) * MAP_INPUTS, 0, at.full());
}

template <uint32_t TILE>
__device__ inline void bring(const struct pair_job &j, const struct pair_tile &t, uint32_t base)
{
	struct pair_ring<TILE> weights = {base, 0, 0}, rows = weights;
	uint32_t n = min_u32(t.n_steps, weights.STAGES);

	for (uint32_t i = 0; i < n; i++, weights.step())
		bring_weights(j, t, weights, i);
	launch_wait();
	for (uint32_t i = 0; i < n; i++, rows.step())
		bring_rows(j, t, rows, i);
#pragma unroll 1
	for (uint32_t i = n; i < t.n_steps; i++, rows.step()) {
		barrier_wait(rows.empty(), rows.parity ^ 1);
		bring_weights(j, t, rows, i);
		bring_rows(j, t, rows, i);
	}
}

/* ---- who multiplies -------------------------------------------------------------------------- */

/* A thread's sums: of rows q and q + 8 of its warp's 16, outputs two by two. */
template <uint32_t TILE> struct pair_sums {
	float of[TILE / 8][4];
};

template <typename DTYPE, uint32_t TILE>
__device__ inline void multiply(uint32_t n_steps, uint32_t base, struct pair_sums<TILE> &sums)
{
	struct pair_ring<TILE> at = {
		base, 0, 0
	};
	uint32_t last = 0, group = threadIdx.x / GROUP;

#pragma unroll
	for (uint32_t i = 0; i < TILE / 8; i++) {
#pragma unroll
		for (uint32_t e = 0; e < 4; e++)
			sums.of[i][e] = 0;
	}
	if (group)
		at.step();
#pragma unroll 1
	for (uint32_t n = group; n < n_steps; n += 2) {
		uint32_t stage = uniform(at.stage());
		uint64_t rows = wgmma_matrix<64>(stage, 16, 1024);
		uint64_t w = wgmma_matrix<64>(stage + ROWS_BYTES, 16, 1024);

		barrier_wait(at.full(), at.parity);
		wgmma_begin();
#pragma unroll
		for (uint32_t i = 0; i < MAP_INPUTS / 16; i++)
			tile_product<DTYPE, TILE>::add(sums.of, rows + 2 * i, w + 2 * i);
		wgmma_commit();
		wgmma_wait<1>();
		if (last && elected())
			barrier_arrive(last);
		last = at.empty();
		at.step();
		at.step();
	}
	wgmma_wait<0>();
	registers_fence(sums.of);
}

/* ---- what comes of a tile -------------------------------------------------------------------- */

template <uint32_t TILE> __device__ inline uint32_t part_at(uint32_t base, uint32_t group)
{
	return base + RING_AT + group * pair_ring<TILE>::PART_BYTES;
}

/* Where all warps have read the last of the ring. */
template <uint32_t TILE>
__device__ inline void put_part(uint32_t base, const struct pair_sums<TILE> &sums)
{
	const uint32_t lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane / 4;
	const uint32_t at = part_at<TILE>(base, threadIdx.x / GROUP) +
			    row * pair_ring<TILE>::PART_STRIDE + lane % 4 * 8;

	named_barrier(1, MULTIPLIERS);
#pragma unroll
	for (uint32_t i = 0; i < TILE / 8; i++) {
#pragma unroll
		for (uint32_t half = 0; half < 2; half++)
			asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
					     at + half * 8 * pair_ring<TILE>::PART_STRIDE + i * 32),
				     "f"(sums.of[i][half * 2]), "f"(sums.of[i][half * 2 + 1])
				     : "memory");
	}
}

/* Four outputs of a row that a thread tells each time. */
template <uint32_t TILE> struct pair_four {
	uint32_t row, column;

	__device__ inline pair_four(uint32_t time)
	{
		uint32_t i = time * MULTIPLIERS + threadIdx.x;

		row = cluster_rank() * MINE + i / (TILE / 4);
		column = i % (TILE / 4) * 4;
	}
	__device__ inline bool is_there(const struct pair_job &j, const struct pair_tile &t) const
	{
		return row < j.n_rows && t.first + column < j.n_out[t.matrix];
	}
	/* Of all groups and blocks. */
	__device__ inline float4 sum(uint32_t base) const
	{
		const uint32_t at = row * pair_ring<TILE>::PART_STRIDE + column * 4;
		float4 of[CLUSTER_BLOCKS];

#pragma unroll
		for (uint32_t rank = 0; rank < CLUSTER_BLOCKS; rank++)
			of[rank] = plus(shared_of(rank, part_at<TILE>(base, 0) + at),
					shared_of(rank, part_at<TILE>(base, 1) + at));
		return plus(of[0], of[1]);
	}
};

/* What is added to is read before the other block's sums are there. */
template <uint32_t TILE>
__device__ inline void tell(const struct pair_job &j, const struct pair_tile &t, uint32_t base)
{
	constexpr uint32_t TIMES = MINE * TILE / 4 / MULTIPLIERS;
	float4 before[TIMES];

#pragma unroll
	for (uint32_t i = 0; i < TIMES; i++) {
		const struct pair_four<TILE> four(i);
		const uint64_t at =
			(uint64_t)four.row * j.out.wide_stride + t.before + t.first + four.column;

		before[i] = j.out.wide && j.out.add && four.is_there(j, t)
				    ? *(const float4 *)(j.out.wide + at)
				    : make_float4(0, 0, 0, 0);
	}
	cluster_sync();
#pragma unroll
	for (uint32_t i = 0; i < TIMES; i++) {
		const struct pair_four<TILE> four(i);
		const uint32_t at = t.before + t.first + four.column;
		const struct device_vector &bias = j.bias[t.matrix];
		struct device_rows out = j.out;
		float4 sum = four.sum(base);

		if (!four.is_there(j, t))
			continue;
		if (bias.at)
			sum = plus(sum, make_float4(vector_at(bias, t.first + four.column),
						    vector_at(bias, t.first + four.column + 1),
						    vector_at(bias, t.first + four.column + 2),
						    vector_at(bias, t.first + four.column + 3)));
		const float4 all = plus(before[i], sum);
		const float wide[4] = {all.x, all.y, all.z, all.w};

		out.add = 0;
		put_four(out, four.row, at, wide);
	}
}
#endif

template <typename DTYPE, uint32_t TILE>
__global__ void IN_PAIRS __launch_bounds__(THREADS, 1)
	pair_kernel(const __grid_constant__ struct pair_job j)
{
#ifdef WGMMA
	extern __shared__ __align__(1024) char shared[];
	const uint32_t base = shared_address(shared);
	const struct pair_tile t = find_tile<TILE>(j);

	launch_next();
	if (threadIdx.x < pair_ring<TILE>::STAGES) {
		barrier_init(base + threadIdx.x * 8, 1);
		barrier_init(base + (STAGES_MOST + threadIdx.x) * 8, GROUP / 32);
		fence_barriers();
	}
	__syncthreads();
	if (threadIdx.x < MULTIPLIERS) {
		struct pair_sums<TILE> sums;

		launch_wait();
		multiply<DTYPE>(t.n_steps, base, sums);
		put_part(base, sums);
		tell<TILE>(j, t, base);
	} else {
		if (threadIdx.x % 32 == 0)
			bring<TILE>(j, t, base);
		__syncwarp();
		cluster_sync();
	}
	cluster_sync(); /* what the other block reads is here until then */
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

typedef void (*pair_function)(struct pair_job);

struct pair_way {
	uint32_t tile, bytes;
	pair_function of[2]; /* bf16 */
};

template <uint32_t TILE> static struct pair_way way_of(void)
{
	return {TILE,
		pair_ring<TILE>::BYTES,
		{pair_kernel<dtype_half, TILE>, pair_kernel<dtype_bf16, TILE>}};
}

#define WAYS 4u
#define TILE_MOST (WAYS * 32u)

static struct pair_way way_at(uint32_t i)
{
	return i == 0	? way_of<32>()
	       : i == 1 ? way_of<64>()
	       : i == 2 ? way_of<96>()
			: way_of<128>();
}

extern "C" int device_pair_init(void)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; code_has_wgmma(device_code()) && i < 2 * WAYS && !r; i++) {
		struct pair_way way = way_at(i / 2);

		r = cudaFuncSetAttribute((const void *)way.of[i % 2],
					 cudaFuncAttributeMaxDynamicSharedMemorySize, way.bytes);
	}
	return r;
}

static uint32_t count_tiles(const struct device_few *few, uint32_t tile, uint32_t ret[3])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < 3; i++) {
		ret[i] = ceil_div(few->n_out[i], tile);
		n += ret[i];
	}
	return n;
}

static bool is_whole(const void *at, uint64_t stride)
{
	return (uintptr_t)at % 16 == 0 && stride % 8 == 0;
}

#define CLUSTERS 64u /* where all tiles are under way at a time */

extern "C" bool device_pair_takes(const struct device_few *few)
{
	const struct device_rows *out = &few->out;
	uint32_t tiles[3];

	for (uint32_t i = 0; i < 3 && few->n_out[i]; i++)
		if (!is_whole(few->w[i], few->w_stride) || few->n_out[i] % 8)
			return false;
	return code_has_wgmma(device_code()) && few->n_rows >= PAIR_ROWS_LEAST &&
	       few->n_rows <= PAIR_ROWS_MOST && !few->gated && !few->norm.at &&
	       is_whole(few->in, few->in_stride) && out->wide_stride % 4 == 0 &&
	       out->narrow_stride % 4 == 0 && !(out->add && out->narrow) &&
	       count_tiles(few, TILE_MOST, tiles) <= CLUSTERS;
}

static struct pair_way find_way(const struct device_few *few, uint32_t n_clusters)
{
	uint32_t i = 0, tiles[3];

	while (i + 1 < WAYS && count_tiles(few, way_at(i).tile, tiles) > n_clusters)
		i++;
	return way_at(i);
}

static bool encode_all(const struct device_few *few, uint32_t tile, struct pair_job *job)
{
	const bool bf16 = few->out.bf16;
	const struct map_rows rows = {few->in, few->n_rows, few->n_in, few->in_stride, ROWS, bf16};

	for (uint32_t i = 0; i < 3 && few->n_out[i]; i++) {
		const struct map_rows w = {few->w[i],	  few->n_out[i], few->n_in,
					   few->w_stride, tile,		 bf16};

		if (!maps_encode(&job->w[i], &w))
			return false;
	}
	return maps_encode(&job->rows, &rows);
}

extern "C" int device_pair(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	struct pair_way way = find_way(few, n_blocks / CLUSTER_BLOCKS);
	struct pair_job job = {};
	uint32_t n_tiles = count_tiles(few, way.tile, job.n_tiles);

	job.out = few->out;
	for (uint32_t i = 0; i < 3; i++) {
		job.bias[i] = few->bias[i];
		job.n_out[i] = few->n_out[i];
	}
	job.n_rows = few->n_rows;
	job.n_steps = ceil_div(few->n_in, MAP_INPUTS);
	job.part_steps = ceil_div(job.n_steps, CLUSTER_BLOCKS);
	if (!encode_all(few, way.tile, &job))
		return cudaErrorNotSupported;
	return launch_early(way.of[few->out.bf16 != 0], &job,
			    {CLUSTER_BLOCKS * n_tiles, THREADS, way.bytes}, to);
}
