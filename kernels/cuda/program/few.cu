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
 *
 * With a norm every block makes all its rows itself, in registers, and keeps them narrow: that
 * takes it less than a launch between two that read weights.
 */
#include "few.h"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "values.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define UNIT 16u /* outputs */
#define TILE 8u /* rows */
#define STEP 32u /* inputs */
#define TURN (STEP * WARPS) /* inputs that the warps take at a time */
#define NORM_STEPS 16u /* of a row whose norm is made: a lane keeps 8 inputs of each */

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
 * one. Behind it lie the rows, [step][warp][row][4] of 16 bytes, and a norm's weights as fp32,
 * [step][warp][4] of 8. */
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
	float *norm;
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

	__device__ inline float *norm_at(uint32_t step) const
	{
		return norm + ((step * WARPS + warp) * 4 + four) * 8;
	}

	/* A lane brings those of some steps to all of its warp. */
	__device__ inline void fetch_norm()
	{
		for (uint32_t step = quad; step < n_steps; step += 8) {
			uint32_t input = input_of(step);

#pragma unroll
			for (uint32_t i = 0; i < 8; i++)
				norm_at(step)[i] =
					input < a.n_in ? vector_at(a.norm, input + i) : 0;
		}
		__syncwarp();
	}

	/* What the lane's row is multiplied by, by its squares in all lanes and warps. */
	__device__ inline float norm_factor(float squares, float (*of_warps)[TILE]) const
	{
		float sum = 0;

		squares += __shfl_xor_sync(~0u, squares, 1);
		squares += __shfl_xor_sync(~0u, squares, 2);
		if (four == 0)
			of_warps[warp][quad] = squares;
		__syncthreads();
#pragma unroll
		for (uint32_t w = 0; w < WARPS; w++)
			sum += of_warps[w][quad];
		return 1 / sqrtf(sum / a.n_in + a.eps);
	}

	/* Behind the last input there are zeros. */
	__device__ inline void make_rows(float (*of_warps)[TILE])
	{
		const float *from = a.wide + (uint64_t)row_of(0) * a.wide_stride;
		float x[NORM_STEPS][8], squares = 0;

#pragma unroll
		for (uint32_t step = 0; step < NORM_STEPS; step++) {
			uint32_t input = input_of(step);
			bool known = step < n_steps && input < a.n_in;

#pragma unroll
			for (uint32_t i = 0; i < 8; i += 4)
				*(float4 *)&x[step][i] = known ? *(const float4 *)(from + input + i)
							       : make_float4(0, 0, 0, 0);
		}
#pragma unroll
		for (uint32_t step = 0; step < NORM_STEPS; step++) {
#pragma unroll
			for (uint32_t i = 0; i < 8; i++)
				squares += x[step][i] * x[step][i];
		}

		const float factor = norm_factor(squares, of_warps);

#pragma unroll
		for (uint32_t step = 0; step < NORM_STEPS; step++) {
			uint32_t pairs[4];

			if (step >= n_steps)
				break;
#pragma unroll
			for (uint32_t i = 0; i < 4; i++) {
				const float *weight = norm_at(step) + 2 * i;

				pairs[i] = DTYPE::pack(x[step][2 * i] * factor * weight[0],
						       x[step][2 * i + 1] * factor * weight[1]);
			}
			*row_at(step, row_of(0)) =
				make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
		}
	}

	__device__ inline void multiply_step(uint32_t step, uint32_t from,
					     float (&sums)[TILES][4]) const
	{
		const uint4 low = ring.low[from][lane], high = ring.high[from][lane];
		const uint32_t first[4] = {low.x, high.x, low.y, high.y};
		const uint32_t second[4] = {low.z, high.z, low.w, high.w};

#pragma unroll
		for (uint32_t t = 0; t < TILES; t++) {
			const uint4 row = *row_at(step, row_of(t));

			DTYPE::multiply(sums[t], first, row.x, row.y);
			DTYPE::multiply(sums[t], second, row.z, row.w);
		}
	}

	__device__ inline uint32_t behind(uint32_t at) const
	{
		return at + 1 == DEPTH ? 0 : at + 1;
	}

	/* Two steps at a time, which need not wait for each other. */
	__device__ inline void sum_unit(float (&sums)[TILES][4])
	{
		float others[TILES][4] = {};
		uint32_t step = 0;

		for (; step + 1 < n_steps; step += 2) {
			const uint32_t second = behind(slot);

			copy_wait_but<DEPTH - 2>();
			multiply_step(step, slot, sums);
			multiply_step(step + 1, second, others);
			fetch_next(slot);
			fetch_next(second);
			slot = behind(second);
		}
		if (step < n_steps) {
			copy_wait_but<DEPTH - 1>();
			multiply_step(step, slot, sums);
			fetch_next(slot);
			slot = behind(slot);
		}
#pragma unroll
		for (uint32_t t = 0; t < TILES; t++) {
#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
				sums[t][i] += others[t][i];
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

template <typename DTYPE, uint32_t TILES, uint32_t DEPTH, bool NORMED>
__global__ void __launch_bounds__(THREADS, 1)
	few_kernel(const __grid_constant__ struct device_few a)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(16) char memory[];
	auto &there = *(room<TILES, DEPTH> *)memory;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t n_units = units_of(a, 0) + units_of(a, 1) + units_of(a, 2);
	const uint32_t n_steps = ceil_div(a.n_in, TURN);
	uint4 *rows = (uint4 *)(&there + 1);
	struct block<DTYPE, TILES, DEPTH> block = {
		a, there.rings[warp], rows, (float *)(rows + n_steps * WARPS * a.n_rows * 4), warp,
			lane, lane / 4, lane % 4, n_units, n_steps,
	};
	uint32_t buffer = 0;

	launch_next();
	block.begin_unit(blockIdx.x);
	for (uint32_t i = 0; i < DEPTH; i++)
		block.fetch_next(i);
	if (NORMED)
		block.fetch_norm();
	launch_wait();
	if (NORMED)
		block.make_rows((float(*)[TILE])there.parts[1].of);
	else
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

template <uint32_t TILES, uint32_t DEPTH, bool NORMED> static struct few_kind make_kind()
{
	return {{few_kernel<dtype_half, TILES, DEPTH, NORMED>,
		 few_kernel<dtype_bf16, TILES, DEPTH, NORMED>},
		sizeof(room<TILES, DEPTH>)};
}

#define DEPTHS 3u

enum form { ONE_TILE, TWO_TILES, ONE_TILE_NORMED, FORMS };

static struct few_kind find_kind(uint32_t form, uint32_t depth)
{
	static const struct few_kind kinds[FORMS][DEPTHS] = {
		{make_kind<1, 16, false>(), make_kind<1, 12, false>(), make_kind<1, 8, false>()},
		{make_kind<2, 16, false>(), make_kind<2, 12, false>(), make_kind<2, 8, false>()},
		{make_kind<1, 16, true>(), make_kind<1, 12, true>(), make_kind<1, 8, true>()},
	};

	return kinds[form][depth];
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

static uint32_t form_of(const struct device_few *few)
{
	return few->n_rows > TILE ? TWO_TILES : few->norm.at ? ONE_TILE_NORMED : ONE_TILE;
}

/* Of an input in shared memory: rows, and a norm's weight. */
static uint32_t input_bytes(const struct device_few *few)
{
	return few->n_rows * 2 + (few->norm.at ? sizeof(float) : 0);
}

/* Inputs that find room beside the least of what else there is. */
static uint32_t most_inputs(const struct device_few *few)
{
	uint32_t left = SHARED_BYTES_MOST - find_kind(form_of(few), DEPTHS - 1).bytes;

	return left / input_bytes(few) / TURN * TURN;
}

/* The deepest that finds room. */
static int start(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	uint32_t rows_bytes = ceil_div(few->n_in, TURN) * TURN * input_bytes(few), depth = 0;
	struct few_kind kind = find_kind(form_of(few), depth);
	struct launch_shape shape = {min_u32(count_units(few), n_blocks), THREADS, 0};

	while (kind.bytes + rows_bytes > SHARED_BYTES_MOST)
		kind = find_kind(form_of(few), ++depth);
	shape.shared_bytes = max_u32(kind.bytes + rows_bytes, SHARED_BYTES_LEAST);
	return launch_early(kind.of[few->out.bf16], few, shape, to);
}

/* Sums that are added to something may come one after the other. */
static bool adds(const struct device_few *few)
{
	return few->out.add && !few->out.narrow && !few->gated;
}

static bool takes_norm(const struct device_few *few)
{
	return few->n_rows <= TILE && few->n_in <= NORM_STEPS * TURN &&
	       few->n_in <= most_inputs(few) && few->wide_stride % 4 == 0;
}

extern "C" bool device_few_holds(const struct device_few *few)
{
	return few->n_in <= most_inputs(few);
}

extern "C" bool device_few_takes(const struct device_few *few)
{
	return code_has_wgmma(device_code()) && few->n_rows <= FEW_ROWS &&
	       (few->norm.at ? takes_norm(few) : adds(few) || device_few_holds(few));
}

extern "C" int device_few_init(void)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; code_has_wgmma(device_code()) && i < 2 * FORMS * DEPTHS && !r; i++)
		r = cudaFuncSetAttribute(
			(const void *)find_kind(i / 2 % FORMS, i / 2 / FORMS).of[i % 2],
			cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES_MOST);
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
