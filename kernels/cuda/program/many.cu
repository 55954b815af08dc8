/*
 * many.cu - see many.h. Rows and weights go from memory to shared memory, 64 inputs at a time, and
 * from there into wgmma: a are 64 rows, b so many gates and the values that they gate, side by
 * side. So a thread has both in its registers, and what comes of them is all that is written.
 *
 * A cluster is two blocks. A unit is a tile of outputs for 256 rows, 128 of each block, both of
 * which read the same weights: one block brings the gates to both, the other the values. Units go
 * on with the rows, so that those that read the same weights are under way at the same time.
 *
 * Warp 8 brings: it fills the ring with weights before the launch before this one has ended, and
 * with rows behind that. Warps 0 to 7, two groups, multiply, 64 rows each. The second group begins
 * a little later than the first, and stays so: while one makes gates the other multiplies.
 *
 * Grid: clusters, as many as there are multiprocessors for, which take units in turns.
 */
#include "cluster.cuh"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "many.h"
#include "maps.h"
#include "values.cuh"

#define GROUP 128u /* threads */
#define MULTIPLIERS (2 * GROUP)
#define THREADS (MULTIPLIERS + 32)
#define ROWS 128u /* of a block */
#define GROUP_ROWS 64u
#define ROWS_BYTES (ROWS * MAP_ROW_BYTES)
#define STAGES_MOST 8u
#define LAG_CYCLES 1000 /* of the second group: two steps of the first */

struct many_job {
	CUtensorMap w[2], rows;
	char *out;
	uint32_t out_stride, n_rows, n_out;
	uint32_t n_steps, n_tiles_down, n_units; /* down: tiles of 256 rows */
};

/* HALF: gates of a tile. */
template <uint32_t HALF>
struct many_ring : tile_ring<ROWS_BYTES + 2 * HALF * MAP_ROW_BYTES, STAGES_MOST> {
	static constexpr uint32_t HALF_BYTES = HALF * MAP_ROW_BYTES;
	static_assert(HALF_BYTES % 1024 == 0, "whole atoms");
};

#ifdef WGMMA
/* ---- who brings ------------------------------------------------------------------------------ */

template <uint32_t HALF> struct many_bringer {
	const struct many_job &j;
	struct many_ring<HALF> at;
	uint32_t unit, at_step;

	__device__ inline bool more() const
	{
		return unit < j.n_units;
	}

	__device__ inline void step()
	{
		at.step();
		if (++at_step == j.n_steps) {
			at_step = 0;
			unit += gridDim.x / CLUSTER_BLOCKS;
		}
	}

	/* Half of them, for both blocks; the other block brings the other half. */
	__device__ inline void bring_weights() const
	{
		barrier_expect(at.full(), at.STAGE_BYTES);
		tensor_copy_both(at.stage() + ROWS_BYTES + cluster_rank() * at.HALF_BYTES,
				 &j.w[cluster_rank()], at_step * MAP_INPUTS,
				 unit / j.n_tiles_down * HALF, at.full());
	}

	__device__ inline void bring_rows() const
	{
		uint32_t tile = unit % j.n_tiles_down * CLUSTER_BLOCKS + cluster_rank();

		tensor_copy_2(at.stage(), &j.rows, at_step * MAP_INPUTS, tile * ROWS, at.full());
	}
};

template <uint32_t HALF> __device__ inline void bring(const struct many_job &j, uint32_t base)
{
	struct many_bringer<HALF> weights = {
		j, {base, 0, 0}, blockIdx.x / CLUSTER_BLOCKS, 0
	};
	struct many_bringer<HALF> rows = weights;

	bring_all(weights, rows, weights.at.STAGES);
}

/* ---- who multiplies -------------------------------------------------------------------------- */

/* d (64 rows x 2 * HALF) = or += a (64 x 16) x b (16 x 2 * HALF), both in shared memory. */
template <typename DTYPE, uint32_t HALF> struct many_product;

#define MANY_REGISTERS_112 \
	WGMMA_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82," \
		 "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101," \
		 "%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define MANY_REGISTERS_128 \
	MANY_REGISTERS_112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124," \
			   "%125,%126,%127"
#define MANY_D(i) WGMMA_D16(i), WGMMA_D16(i + 4), WGMMA_D16(i + 8)
#define MANY_PRODUCT(DTYPE, TYPE, HALF, COLUMNS, D, A, B, ADD, ...) \
	template <> struct many_product<DTYPE, HALF> { \
		__device__ static void multiply(float (&d)[HALF / 4][4], uint64_t a, uint64_t b, \
						bool add) \
		{ \
			asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0; " \
				     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE \
				     "." TYPE " {" D "}, " A ", " B ", p, 1, 1, 0, 0; }" \
				     : __VA_ARGS__ \
				     : "l"(a), "l"(b), "r"((uint32_t)add)); \
		} \
	};
#define MANY_PRODUCTS(DTYPE, TYPE) \
	MANY_PRODUCT(DTYPE, TYPE, 112, 224, MANY_REGISTERS_112, "%112", "%113", "%114", MANY_D(0), \
		     MANY_D(12), WGMMA_D16(24)) \
	MANY_PRODUCT(DTYPE, TYPE, 128, 256, MANY_REGISTERS_128, "%128", "%129", "%130", MANY_D(0), \
		     MANY_D(12), WGMMA_D16(24), WGMMA_D16(28))
MANY_PRODUCTS(dtype_half, "f16")
MANY_PRODUCTS(dtype_bf16, "bf16")

/* A thread's sums: of rows q and q + 8 of its warp's 16, gates two by two, then values. */
template <uint32_t HALF> struct many_sums {
	float of[HALF / 4][4];
};

template <typename DTYPE, uint32_t HALF>
__device__ inline void multiply_unit(uint32_t n_steps, struct many_ring<HALF> &at,
				     struct many_sums<HALF> &sums)
{
	uint32_t last = 0;
	bool add = false;

#pragma unroll 1
	for (; n_steps > 0; n_steps--) {
		uint32_t stage = uniform(at.stage());
		uint64_t rows = wgmma_matrix<64>(stage + uniform(threadIdx.x / GROUP) * GROUP_ROWS *
								 MAP_ROW_BYTES,
						 16, 1024);
		uint64_t w = wgmma_matrix<64>(stage + ROWS_BYTES, 16, 1024);

		barrier_wait(at.full(), at.parity);
		wgmma_begin();
#pragma unroll
		for (uint32_t i = 0; i < MAP_INPUTS / 16; i++)
			many_product<DTYPE, HALF>::multiply(sums.of, rows + 2 * i, w + 2 * i,
							    add || i > 0);
		wgmma_commit();
		wgmma_wait<1>();
		if (add)
			barrier_arrive_both(last);
		add = true;
		last = at.empty();
		at.step();
	}
	wgmma_wait<0>();
	registers_fence(sums.of);
	barrier_arrive_both(last);
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Four lanes side by side have four words each, and get them the other way round. */
__device__ inline uint4 turned_round(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
	uint32_t ab = __shfl_xor_sync(~0u, odd ? a : b, 1);
	uint32_t cd = __shfl_xor_sync(~0u, odd ? c : d, 1);
	uint32_t x = odd ? ab : a, y = odd ? b : ab, z = odd ? cd : c, w = odd ? d : cd;
	uint32_t first = __shfl_xor_sync(~0u, high ? x : z, 2);
	uint32_t second = __shfl_xor_sync(~0u, high ? y : w, 2);

	return high ? make_uint4(first, second, z, w) : make_uint4(x, y, first, second);
}

/* Eight outputs of a row each time: of two eights side by side, and of two rows, by four lanes. */
template <typename DTYPE, uint32_t HALF>
__device__ inline void tell(const struct many_job &j, uint32_t unit,
			    const struct many_sums<HALF> &sums)
{
	const uint32_t lane = threadIdx.x % 32,
		       tile = unit % j.n_tiles_down * CLUSTER_BLOCKS + cluster_rank();
	const uint32_t row = tile * ROWS + threadIdx.x / 32 * 16 + lane / 4 + (lane & 2 ? 8 : 0);
	const uint32_t first = unit / j.n_tiles_down * HALF + (lane & 1) * 8;
	char *to = j.out + ((uint64_t)row * j.out_stride + first) * 2;

#pragma unroll
	for (uint32_t e = 0; e < HALF / 8; e += 2) {
		uint32_t made[4];

#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			const float(&g)[4] = sums.of[e + i % 2],
			      (&v)[4] = sums.of[e + i % 2 + HALF / 8];
			const uint32_t at = i / 2 * 2;

			made[i] = DTYPE::pack(silu_gated(g[at], v[at]),
					      silu_gated(g[at + 1], v[at + 1]));
		}

		uint4 eight = turned_round(made[0], made[1], made[2], made[3]);

		if (row < j.n_rows && first + e * 8 < j.n_out)
			*(uint4 *)(to + e * 16) = eight;
	}
}

/* ---- the kernel ------------------------------------------------------------------------------ */

__device__ inline void lag()
{
	const long long begin = clock64();

	while (clock64() - begin < LAG_CYCLES) {
	}
}

template <typename DTYPE, uint32_t HALF>
__device__ inline void multiply_all(const struct many_job &j, uint32_t base)
{
	struct many_ring<HALF> at = {
		base, 0, 0
	};

	if (LAG_CYCLES > 0 && threadIdx.x >= GROUP) {
		barrier_wait(at.full(), 0);
		lag();
	}
#pragma unroll 1
	for (uint32_t i = blockIdx.x / CLUSTER_BLOCKS; i < j.n_units;
	     i += gridDim.x / CLUSTER_BLOCKS) {
		struct many_sums<HALF> sums;

		multiply_unit<DTYPE>(j.n_steps, at, sums);
		tell<DTYPE>(j, i, sums);
	}
}
#endif

template <typename DTYPE, uint32_t HALF>
__global__ void IN_PAIRS __launch_bounds__(THREADS, 1)
	many_kernel(const __grid_constant__ struct many_job j)
{
#ifdef WGMMA
	extern __shared__ __align__(1024) char shared[];
	const uint32_t base = shared_address(shared);

	launch_next();
	if (threadIdx.x < many_ring<HALF>::STAGES) {
		barrier_init(base + threadIdx.x * 8, 1);
		barrier_init(base + (STAGES_MOST + threadIdx.x) * 8,
			     CLUSTER_BLOCKS * MULTIPLIERS / 32);
		fence_barriers();
	}
	__syncthreads();
	cluster_sync();
	if (threadIdx.x < MULTIPLIERS) {
		launch_wait();
		multiply_all<DTYPE, HALF>(j, base);
	} else {
		if (threadIdx.x % 32 == 0)
			bring<HALF>(j, base);
	}
	__syncwarp();
	cluster_sync(); /* what the other block's copies bring and arrive at is here until then */
#endif
}

/* ---- host ------------------------------------------------------------------------------------ */

typedef void (*many_function)(struct many_job);

struct many_way {
	uint32_t half, bytes;
	many_function of[2]; /* bf16 */
};

template <uint32_t HALF> static struct many_way way_of(void)
{
	return {HALF,
		many_ring<HALF>::BYTES,
		{many_kernel<dtype_half, HALF>, many_kernel<dtype_bf16, HALF>}};
}

static struct many_way way_at(uint32_t i)
{
	return i == 0 ? way_of<112>() : way_of<128>();
}

#define WAYS 2u

extern "C" int device_many_init(void)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; code_has_wgmma(device_code()) && i < 2 * WAYS && !r; i++) {
		struct many_way way = way_at(i / 2);

		r = cudaFuncSetAttribute((const void *)way.of[i % 2],
					 cudaFuncAttributeMaxDynamicSharedMemorySize, way.bytes);
	}
	return r;
}

static bool is_whole(const void *at, uint64_t stride)
{
	return (uintptr_t)at % 16 == 0 && stride % 8 == 0;
}

extern "C" bool device_many_takes(const struct device_few *few)
{
	bool are_whole = is_whole(few->in, few->in_stride) && is_whole(few->w[0], few->w_stride) &&
			 is_whole(few->w[1], few->w_stride) &&
			 is_whole(few->out.narrow, few->out.narrow_stride);

	return code_has_wgmma(device_code()) && few->n_rows >= MANY_ROWS && few->gated &&
	       few->act == PROGRAM_SILU && !few->norm.at && !few->bias[0].at && !few->bias[1].at &&
	       few->out.narrow && !few->out.wide && few->n_out[0] % 8 == 0 && are_whole;
}

/* That with which all clusters together are done first, the wider of those alike. */
static struct many_way find_way(uint32_t n_out, uint32_t n_tiles_down, uint32_t n_clusters)
{
	struct many_way best = {};
	uint32_t least = UINT32_MAX;

	for (uint32_t i = WAYS; i-- > 0;) {
		struct many_way way = way_at(i);
		uint32_t n_units = ceil_div(n_out, way.half) * n_tiles_down;
		uint32_t cost = ceil_div(n_units, n_clusters) * way.half;

		if (cost < least)
			best = way;
		least = min_u32(least, cost);
	}
	return best;
}

static bool encode_all(const struct device_few *few, uint32_t half, struct many_job *job)
{
	const bool bf16 = few->out.bf16;
	struct map_rows rows = {few->in, few->n_rows, few->n_in, few->in_stride, ROWS, bf16};
	struct map_rows w = {few->w[0], few->n_out[0], few->n_in, few->w_stride, half, bf16};
	bool done = maps_encode(&job->rows, &rows) && maps_encode(&job->w[0], &w);

	w.at = few->w[1];
	return done && maps_encode(&job->w[1], &w);
}

extern "C" int device_many(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	uint32_t n_tiles_down = ceil_div(few->n_rows, CLUSTER_BLOCKS * ROWS);
	uint32_t n_clusters = max_u32(1, n_blocks / CLUSTER_BLOCKS);
	struct many_way way = find_way(few->n_out[0], n_tiles_down, n_clusters);
	struct many_job job = {};

	job.out = (char *)few->out.narrow;
	job.out_stride = few->out.narrow_stride;
	job.n_rows = few->n_rows;
	job.n_out = few->n_out[0];
	job.n_steps = ceil_div(few->n_in, MAP_INPUTS);
	job.n_tiles_down = n_tiles_down;
	job.n_units = ceil_div(few->n_out[0], way.half) * n_tiles_down;
	if (!encode_all(few, way.half, &job))
		return cudaErrorNotSupported;
	return launch_early(way.of[few->out.bf16 != 0], &job,
			    {CLUSTER_BLOCKS * min_u32(job.n_units, n_clusters), THREADS, way.bytes},
			    to);
}
