/*
 * some_sums.cuh - the sums of a unit: how they are made, put together with those of other parts of
 * the inputs, and told.
 */
#ifndef COPPICE_CUDA_SOME_SUMS_CUH
#define COPPICE_CUDA_SOME_SUMS_CUH

#include "some_units.cuh"
#include "values.cuh"

#ifdef WGMMA
/* ---- who multiplies -------------------------------------------------------------------------- */

/* d (64 x ROWS) = or += a (64 x 16) x b (16 x ROWS), both in shared memory. */
template <typename DTYPE, uint32_t ROWS> struct some_product;

#define SOME_D2(i) WGMMA_D4(i), WGMMA_D4(i + 1)
#define SOME_REGISTERS_4 "%0,%1,%2,%3"
#define SOME_REGISTERS_8 SOME_REGISTERS_4 ",%4,%5,%6,%7"
#define SOME_REGISTERS_16 SOME_REGISTERS_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define SOME_PRODUCT(DTYPE, TYPE, ROWS, D, A, B, ADD, ...) \
	template <> struct some_product<DTYPE, ROWS> { \
		__device__ static void multiply(float (&d)[ROWS / 8][4], uint64_t a, uint64_t b, \
						bool add) \
		{ \
			asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0; " \
				     "wgmma.mma_async.sync.aligned.m64n" #ROWS "k16.f32." TYPE \
				     "." TYPE " {" D "}, " A ", " B ", p, 1, 1, 0, 0; }" \
				     : __VA_ARGS__ \
				     : "l"(a), "l"(b), "r"((uint32_t)add)); \
		} \
	};
#define SOME_PRODUCTS(DTYPE, TYPE) \
	SOME_PRODUCT(DTYPE, TYPE, 8, SOME_REGISTERS_4, "%4", "%5", "%6", WGMMA_D4(0)) \
	SOME_PRODUCT(DTYPE, TYPE, 16, SOME_REGISTERS_8, "%8", "%9", "%10", SOME_D2(0)) \
	SOME_PRODUCT(DTYPE, TYPE, 32, SOME_REGISTERS_16, "%16", "%17", "%18", WGMMA_D16(0)) \
	SOME_PRODUCT(DTYPE, TYPE, 64, WGMMA_32, "%32", "%33", "%34", WGMMA_D16(0), WGMMA_D16(4))
SOME_PRODUCTS(dtype_half, "f16")
SOME_PRODUCTS(dtype_bf16, "bf16")

/* A thread's sums: of a slab's outputs q and q + 8 of its warp's 16, and rows two by two. */
template <uint32_t ROWS, uint32_t SLABS> struct sums {
	float of[SLABS][ROWS / 8][4];
};

/* From a tile's first output; gated, the second slab is of the other half. */
__device__ inline uint32_t slab_at(const struct some_job &j, uint32_t slab)
{
	return slab * (j.gated ? j.height : 2 * SLAB) + threadIdx.x / GROUP * SLAB;
}

template <typename DTYPE, uint32_t ROWS, uint32_t SLABS>
__device__ inline void multiply_unit(const struct some_job &j, uint32_t n_steps,
				     struct some_ring &at, struct sums<ROWS, SLABS> &sums)
{
	uint32_t last = 0;
	bool add = false;

#pragma unroll 1
	for (; n_steps > 0; n_steps--) {
		uint32_t stage = uniform(at.stage(j));
		uint64_t rows = wgmma_matrix<64>(stage + j.rows_at, 16, 1024);

		barrier_wait(at.full(), at.parity);
		wgmma_begin();
#pragma unroll
		for (uint32_t s = 0; s < SLABS; s++) {
			uint64_t w =
				wgmma_matrix<64>(stage + uniform(slab_at(j, s)) * SOME_ROW_BYTES,
						 16, 1024);

#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
				some_product<DTYPE, ROWS>::multiply(sums.of[s], w + 2 * i,
								    rows + 2 * i, add || i > 0);
		}
		wgmma_commit();
		wgmma_wait<1>();
		if (add && elected())
			barrier_arrive(last);
		add = true;
		last = at.empty();
		at.step(j);
	}
	wgmma_wait<0>();
#pragma unroll
	for (uint32_t s = 0; s < SLABS; s++)
		registers_fence(sums.of[s]);
	if (elected())
		barrier_arrive(last);
}

/* ---- parts ----------------------------------------------------------------------------------- */

template <uint32_t ROWS, uint32_t SLABS>
__device__ inline float4 *part_at(const struct some_job &j, const struct some_unit &unit,
				  uint32_t part)
{
	uint64_t i = (uint64_t)unit.tile * j.n_parts + part;

	return j.parts + i * SLABS * (ROWS / 8) * MULTIPLIERS + threadIdx.x;
}

/* Is this the tile's last part? Then it has all sums. */
template <uint32_t ROWS, uint32_t SLABS>
__device__ inline bool put_together(const struct some_job &j, const struct some_unit &unit,
				    struct sums<ROWS, SLABS> &sums)
{
	constexpr uint32_t AT_ONCE = ROWS * SLABS <= 64 ? 4 : 1; /* as many as registers hold */
	__shared__ uint32_t n_before;
	float4(&all)[SLABS * ROWS / 8] = *(float4(*)[SLABS * ROWS / 8]) & sums.of;
	float4 *to = part_at<ROWS, SLABS>(j, unit, unit.part);

#pragma unroll
	for (uint32_t i = 0; i < SLABS * ROWS / 8; i++)
		__stcg(&to[i * MULTIPLIERS], all[i]);
	named_barrier(1, MULTIPLIERS);
	if (threadIdx.x == 0) {
		__threadfence();
		n_before = atomicAdd(&j.counters[unit.tile], 1);
		if (n_before + 1 == j.n_parts)
			j.counters[unit.tile] = 0;
		__threadfence();
	}
	named_barrier(1, MULTIPLIERS);
	if (n_before + 1 < j.n_parts)
		return false;
#pragma unroll
	for (uint32_t i = 0; i < SLABS * ROWS / 8; i++)
		all[i] = make_float4(0, 0, 0, 0);
#pragma unroll AT_ONCE
	for (uint32_t part = 0; part < j.n_parts; part++) {
		const float4 *from = part_at<ROWS, SLABS>(j, unit, part);

#pragma unroll
		for (uint32_t i = 0; i < SLABS * ROWS / 8; i++) {
			float4 of = __ldcg(&from[i * MULTIPLIERS]);

			all[i] = make_float4(all[i].x + of.x, all[i].y + of.y, all[i].z + of.z,
					     all[i].w + of.w);
		}
	}
	return true;
}

/* ---- what comes of a tile -------------------------------------------------------------------- */

__device__ inline float bias_of(const struct some_job &j, uint32_t matrix, uint32_t i)
{
	const struct device_vector &bias = j.bias[matrix];

	return bias.at ? vector_at(bias, i) : 0;
}

/* The thread's output of a slab and half, from the tile's first on. */
__device__ inline uint32_t output_of(uint32_t at, uint32_t half)
{
	return at + threadIdx.x % GROUP / 32 * 16 + half * 8 + threadIdx.x % 32 / 4;
}

__device__ inline uint32_t row_of(uint32_t eight, uint32_t which)
{
	return eight * 8 + threadIdx.x % 4 * 2 + which;
}

template <uint32_t ROWS>
__device__ inline void tell_gated(const struct some_job &j, const struct some_unit &unit,
				  const struct sums<ROWS, 2> &sums)
{
#pragma unroll
	for (uint32_t half = 0; half < 2; half++) {
		uint32_t local = output_of(threadIdx.x / GROUP * SLAB, half);
		uint32_t i = unit.first + local;

		if (local >= j.height || i >= j.n_out[0])
			continue;

		float of_gate = bias_of(j, 0, i), of_value = bias_of(j, 1, i);

#pragma unroll
		for (uint32_t e = 0; e < ROWS / 4; e++) {
			uint32_t row = row_of(e / 2, e % 2);
			float gate = sums.of[0][e / 2][half * 2 + e % 2] + of_gate;
			float value = sums.of[1][e / 2][half * 2 + e % 2] + of_value;

			if (row < j.n_rows)
				put(j.out, row, i, act(j.act, gate) * value);
		}
	}
}

/* What is added to is read before anything is written: one wait for all of it. */
template <uint32_t ROWS>
__device__ inline void tell_half(const struct some_job &j, uint32_t at, float bias, uint32_t half,
				 const float (&sums)[ROWS / 8][4])
{
	float before[ROWS / 4];

#pragma unroll
	for (uint32_t e = 0; e < ROWS / 4; e++) {
		uint32_t row = row_of(e / 2, e % 2);

		before[e] = j.out.wide && j.out.add && row < j.n_rows
				    ? j.out.wide[(uint64_t)row * j.out.wide_stride + at]
				    : 0;
	}
#pragma unroll
	for (uint32_t e = 0; e < ROWS / 4; e++) {
		uint32_t row = row_of(e / 2, e % 2);
		float x = sums[e / 2][half * 2 + e % 2] + bias;

		if (row < j.n_rows && j.out.wide)
			j.out.wide[(uint64_t)row * j.out.wide_stride + at] = before[e] + x;
		if (row < j.n_rows && j.out.narrow)
			put_narrow(j.out.narrow, j.out.bf16,
				   (uint64_t)row * j.out.narrow_stride + at, x);
	}
}

template <uint32_t ROWS, uint32_t SLABS>
__device__ inline void tell_plain(const struct some_job &j, const struct some_unit &unit,
				  const struct sums<ROWS, SLABS> &sums)
{
#pragma unroll
	for (uint32_t s = 0; s < SLABS; s++) {
#pragma unroll
		for (uint32_t half = 0; half < 2; half++) {
			uint32_t local = output_of(slab_at(j, s), half), i = unit.first + local;

			if (local < j.height && i < j.n_out[unit.matrix])
				tell_half<ROWS>(j, unit.before + i, bias_of(j, unit.matrix, i),
						half, sums.of[s]);
		}
	}
}
#endif

#endif
