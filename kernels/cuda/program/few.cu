/*
 * few.cu - see few.h. Weights go from memory to shared memory and from there into mma.
 *
 * A unit is 16 of the outputs; gated, 8 gates and the 8 values that they gate. Blocks, one to a
 * multiprocessor, take units in turns. A block's warps share a unit's inputs: a step is 32 inputs
 * of all 16 outputs, and warp i takes steps i, i + WARPS and so on, so that together they read what
 * lies side by side. A warp has DEPTH steps under way, each of which makes room for the one that
 * comes DEPTH later, of the next unit if need be: the memory is never idle, not even where warps
 * sum up what they have. The first ones are asked for before the launch before this one has ended.
 *
 * mma's a is 16 outputs x 16 inputs, b 16 inputs x 8 rows. A lane has 16 bytes of an output in one
 * copy: eight inputs that stand side by side, and takes them for four pairs of two mma. Which input
 * is called which does not matter, as the lane takes the rows' in the same order. So what a lane
 * reads from shared memory it has copied itself, rows' inputs too, and waits for no other.
 *
 * Sums are fp32: of a warp by mma, then over the warps from the first on.
 */
#include "few.h"
#include "kernels/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "values.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define UNIT 16u /* outputs */
#define TILE 8u /* rows */
#define STEP 32u /* inputs */
#define TURN (STEP * WARPS) /* inputs that the warps take at a time */

/* ---- shared memory --------------------------------------------------------------------------- */

/* A warp's steps under way: eight inputs of two outputs a lane. */
template <uint32_t DEPTH> struct ring {
	uint4 low[DEPTH][32], high[DEPTH][32];
};

/* A unit's sums of all warps, as lanes have them. */
template <uint32_t TILES> struct parts {
	float of[WARPS][TILES][4][32];
};

/* Two sets of parts: while some threads tell what came of a unit, others may be done with the next
 * one. Behind it lie the rows, [step][warp][row][4] of 16 bytes. */
template <uint32_t TILES, uint32_t DEPTH> struct room {
	struct ring<DEPTH> rings[WARPS];
	struct parts<TILES> parts[2];
};

/* So much that a block has its multiprocessor for itself: where two find room, some have two and
 * others none, and all wait for those. */
#define SHARED_BYTES_LEAST (UINT32_C(116) << 10)
#define SHARED_BYTES_MOST (UINT32_C(227) << 10)

/* ---- units ----------------------------------------------------------------------------------- */

#if __CUDA_ARCH__ >= 900
template <typename T> __device__ inline T of_three(const T (&all)[3], uint32_t i)
{
	return i == 0 ? all[0] : i == 1 ? all[1] : all[2];
}

__device__ inline uint32_t units_of(const struct device_few &a, uint32_t i)
{
	return a.gated ? (i ? 0 : ceil_div(a.n_out[0], UNIT / 2)) : ceil_div(a.n_out[i], UNIT);
}

/* Outputs of a unit: of which matrix, and the first. */
struct unit {
	uint32_t matrix, first;
	uint32_t before; /* outputs of matrices before it */
};

__device__ inline struct unit find_unit(const struct device_few &a, uint32_t i)
{
	struct unit unit = {0, 0, 0};

#pragma unroll
	for (uint32_t m = 0; m < 2; m++) {
		uint32_t units = units_of(a, m);

		if (unit.matrix == m && i >= units) {
			i -= units;
			unit.before += a.n_out[m];
			unit.matrix++;
		}
	}
	unit.first = i * (a.gated ? UNIT / 2 : UNIT);
	return unit;
}

/* ---- a block's work -------------------------------------------------------------------------- */

template <typename DTYPE, uint32_t TILES, uint32_t DEPTH> struct block {
	const struct device_few &a;
	struct ring<DEPTH> &ring; /* the warp's */
	uint4 *rows;
	uint32_t warp, lane, quad, four; /* mma's rows of a and columns of b, and where in them */
	uint32_t n_units, n_steps; /* steps of a warp and unit */
	uint32_t slot; /* of the ring, of the oldest step */
	struct {
		uint32_t unit, step;
		const char *low, *high; /* the lane's outputs */
	} next; /* to be fetched */

	/* Behind the last output the last one is read once more. */
	__device__ inline const char *output_at(uint32_t matrix, uint32_t i) const
	{
		uint64_t output = min_u32(i, of_three(a.n_out, matrix) - 1);

		return (const char *)of_three(a.w, matrix) + output * a.w_stride * 2;
	}

	__device__ inline void begin_unit(uint32_t i)
	{
		struct unit unit = find_unit(a, min_u32(i, n_units - 1));
		uint32_t low = unit.first + quad;

		next.unit = i;
		next.step = 0;
		next.low = output_at(unit.matrix, low);
		next.high =
			output_at(unit.matrix + (a.gated ? 1 : 0), a.gated ? low : low + UNIT / 2);
	}

	/* The lane's first of a step. */
	__device__ inline uint32_t input_of(uint32_t step) const
	{
		return step * TURN + warp * STEP + four * 8;
	}

	/* Where a lane's inputs of a row are; behind the last row the last one, whose sums nobody
	 * asks for. */
	__device__ inline uint4 *row_at(uint32_t step, uint32_t row) const
	{
		return &rows[((step * WARPS + warp) * a.n_rows + row) * 4 + four];
	}

	__device__ inline uint32_t row_of(uint32_t tile) const
	{
		return min_u32(tile * TILE + quad, a.n_rows - 1);
	}

	/* Behind the last input there are zeros. */
	__device__ inline void fetch_next(uint32_t to)
	{
		uint32_t input = input_of(next.step), bytes = input < a.n_in ? 16 : 0;
		uint64_t behind = bytes ? input * 2 : 0;

		if (next.unit < n_units) {
			copy_once(shared_address(&ring.low[to][lane]), next.low + behind, bytes);
			copy_once(shared_address(&ring.high[to][lane]), next.high + behind, bytes);
			if (++next.step == n_steps)
				begin_unit(next.unit + gridDim.x);
		}
		copy_commit();
	}

	__device__ inline void fetch_rows()
	{
		for (uint32_t step = 0; step < n_steps; step++) {
			uint32_t input = input_of(step), bytes = input < a.n_in ? 16 : 0;

#pragma unroll
			for (uint32_t t = 0; t < TILES; t++) {
				uint32_t row = row_of(t);
				uint64_t at = (uint64_t)row * a.in_stride + (bytes ? input : 0);

				copy_some_16(shared_address(row_at(step, row)),
					     (const char *)a.in + at * 2, bytes);
			}
		}
		copy_commit();
		copy_wait_but<0>();
	}

	__device__ inline void multiply_step(uint32_t step, float (&sums)[TILES][4]) const
	{
		const uint4 low = ring.low[slot][lane], high = ring.high[slot][lane];
		const uint32_t first[4] = {low.x, high.x, low.y, high.y};
		const uint32_t second[4] = {low.z, high.z, low.w, high.w};

#pragma unroll
		for (uint32_t t = 0; t < TILES; t++) {
			const uint4 row = *row_at(step, row_of(t));

			DTYPE::multiply(sums[t], first, row.x, row.y);
			DTYPE::multiply(sums[t], second, row.z, row.w);
		}
	}

	__device__ inline void sum_unit(float (&sums)[TILES][4])
	{
		for (uint32_t step = 0; step < n_steps; step++) {
			copy_wait_but<DEPTH - 1>();
			multiply_step(step, sums);
			fetch_next(slot);
			slot = slot + 1 == DEPTH ? 0 : slot + 1;
		}
	}

	__device__ inline void leave(struct parts<TILES> &parts,
				     const float (&sums)[TILES][4]) const
	{
#pragma unroll
		for (uint32_t t = 0; t < TILES; t++) {
#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
				parts.of[warp][t][i][lane] = sums[t][i];
		}
	}
};

/* ---- what comes of a unit -------------------------------------------------------------------- */

template <uint32_t TILES>
__device__ inline float sum_up(const struct parts<TILES> &parts, uint32_t tile, uint32_t which,
			       uint32_t lane)
{
	float sum = 0;

#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		sum += parts.of[w][tile][which][lane];
	return sum;
}

__device__ inline float with_bias(const struct device_few &a, uint32_t matrix, uint32_t i, float x)
{
	const struct device_vector bias = of_three(a.bias, matrix);

	return bias.at ? x + vector_at(bias, i) : x;
}

template <uint32_t TILES>
__device__ inline void tell_gated(const struct device_few &a, const struct parts<TILES> &parts,
				  const struct unit &unit)
{
	for (uint32_t e = threadIdx.x; e < TILES * 64; e += THREADS) {
		uint32_t lane = e % 32, which = e / 32 % 2, tile = e / 64;
		uint32_t i = unit.first + lane / 4, row = tile * TILE + lane % 4 * 2 + which;

		if (row >= a.n_rows || i >= a.n_out[0])
			continue;

		float gate = with_bias(a, 0, i, sum_up(parts, tile, which, lane));

		put(a.out, row, i,
		    act(a.act, gate) * with_bias(a, 1, i, sum_up(parts, tile, which + 2, lane)));
	}
}

template <uint32_t TILES>
__device__ inline void tell_plain(const struct device_few &a, const struct parts<TILES> &parts,
				  const struct unit &unit)
{
	for (uint32_t e = threadIdx.x; e < TILES * 128; e += THREADS) {
		uint32_t lane = e % 32, which = e / 32 % 4, tile = e / 128;
		uint32_t i = unit.first + lane / 4 + which / 2 * 8;
		uint32_t row = tile * TILE + lane % 4 * 2 + which % 2;

		if (row < a.n_rows && i < of_three(a.n_out, unit.matrix))
			put(a.out, row, unit.before + i,
			    with_bias(a, unit.matrix, i, sum_up(parts, tile, which, lane)));
	}
}
#endif

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename DTYPE, uint32_t TILES, uint32_t DEPTH>
__global__ void __launch_bounds__(THREADS, 1)
	few_kernel(const __grid_constant__ struct device_few a)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(16) char memory[];
	auto &there = *(room<TILES, DEPTH> *)memory;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t n_units = units_of(a, 0) + units_of(a, 1) + units_of(a, 2);
	struct block<DTYPE, TILES, DEPTH> block = {
		a, there.rings[warp], (uint4 *)(&there + 1), warp, lane, lane / 4, lane % 4, n_units
			,
			ceil_div(a.n_in, TURN)
	};
	uint32_t buffer = 0;

	launch_next();
	block.begin_unit(blockIdx.x);
	for (uint32_t i = 0; i < DEPTH; i++)
		block.fetch_next(i);
	launch_wait();
	block.fetch_rows();
	for (uint32_t u = blockIdx.x; u < n_units; u += gridDim.x, buffer ^= 1) {
		float sums[TILES][4] = {};

		block.sum_unit(sums);
		block.leave(there.parts[buffer], sums);
		__syncthreads();
		if (a.gated)
			tell_gated(a, there.parts[buffer], find_unit(a, u));
		else
			tell_plain(a, there.parts[buffer], find_unit(a, u));
	}
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

typedef void (*few_function)(struct device_few);

/* One that is deep keeps more under way, and leaves the rows less room. */
struct few_kind {
	few_function of[2]; /* by type: fp16, bf16 */
	uint32_t bytes;
};

template <uint32_t TILES, uint32_t DEPTH> static struct few_kind make_kind()
{
	return {{few_kernel<dtype_half, TILES, DEPTH>, few_kernel<dtype_bf16, TILES, DEPTH>},
		sizeof(room<TILES, DEPTH>)};
}

#define DEPTHS 3u

static struct few_kind find_kind(uint32_t tiles, uint32_t depth)
{
	static const struct few_kind kinds[2][DEPTHS] = {
		{make_kind<1, 16>(), make_kind<1, 12>(), make_kind<1, 8>()},
		{make_kind<2, 16>(), make_kind<2, 12>(), make_kind<2, 8>()},
	};

	return kinds[tiles - 1][depth];
}

static uint32_t count_units(const struct device_few *few)
{
	uint32_t n = 0;

	if (few->gated)
		return ceil_div(few->n_out[0], UNIT / 2);
	for (uint32_t i = 0; i < 3; i++)
		n += ceil_div(few->n_out[i], UNIT);
	return n;
}

static uint32_t count_tiles(const struct device_few *few)
{
	return ceil_div(few->n_rows, TILE);
}

/* Inputs that find room beside the least of what else there is. */
static uint32_t most_inputs(const struct device_few *few)
{
	uint32_t left = SHARED_BYTES_MOST - find_kind(count_tiles(few), DEPTHS - 1).bytes;

	return left / (few->n_rows * 2) / TURN * TURN;
}

/* The deepest that finds room. */
static int start(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	uint32_t rows_bytes = ceil_div(few->n_in, TURN) * TURN * few->n_rows * 2, depth = 0;
	struct few_kind kind = find_kind(count_tiles(few), depth);
	struct launch_shape shape = {min_u32(count_units(few), n_blocks), THREADS, 0};

	while (kind.bytes + rows_bytes > SHARED_BYTES_MOST)
		kind = find_kind(count_tiles(few), ++depth);
	shape.shared_bytes = max_u32(kind.bytes + rows_bytes, SHARED_BYTES_LEAST);
	return launch_early(kind.of[few->out.bf16], few, shape, to);
}

/* Sums that are added to something may come one after the other. */
static bool adds(const struct device_few *few)
{
	return few->out.add && !few->out.narrow && !few->gated;
}

extern "C" bool device_few_takes(const struct device_few *few)
{
	return code_overlaps(device_code()) && few->n_rows <= FEW_ROWS &&
	       (adds(few) || few->n_in <= most_inputs(few));
}

extern "C" int device_few_init(void)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; code_overlaps(device_code()) && i < 4 * DEPTHS && !r; i++)
		r = cudaFuncSetAttribute((const void *)find_kind(1 + i / 2 % 2, i / 4).of[i % 2],
					 cudaFuncAttributeMaxDynamicSharedMemorySize,
					 SHARED_BYTES_MOST);
	return r;
}

extern "C" int device_few(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	uint32_t n_parts = ceil_div(few->n_in, most_inputs(few));
	uint32_t most = ceil_div(ceil_div(few->n_in, n_parts), TURN) * TURN;
	struct device_few part = *few;
	int r = 0;

	for (uint32_t at = 0; at < few->n_in && !r; at += most) {
		part.n_in = min_u32(most, few->n_in - at);
		r = start(&part, n_blocks, to);
		part.in = (const char *)part.in + (uint64_t)most * 2;
		for (uint32_t i = 0; i < 3; i++) {
			part.w[i] = (const char *)part.w[i] + (uint64_t)most * 2;
			part.bias[i].at = NULL;
		}
	}
	return r;
}
