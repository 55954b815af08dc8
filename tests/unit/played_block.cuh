/*
 * played_block.cuh - a thread block on the CPU: what ptx.cuh and nvcc give kernels, so that their
 * own source runs where there is no GPU.
 *
 * A thread has a stack of its own and runs until it has to wait. What a warp does together
 * (shuffles, ldmatrix, mma, wgmma) is a meeting: each lane brings what it has, and goes on with
 * what all brought. Barriers are counted as the hardware counts them. Copies and wgmma are over at
 * once: that somebody reads too early is not seen here, but that somebody waits for ever is. Blocks
 * run one after the other. wgmma reads shared memory by its matrices' descriptors (PTX ISA), of
 * atoms with 128-byte or 64-byte swizzle.
 *
 * Included before any kernel, in place of ptx.cuh.
 */
#ifndef COPPICE_TESTS_PLAYED_BLOCK_CUH
#define COPPICE_TESTS_PLAYED_BLOCK_CUH

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define COPPICE_CUDA_PTX_CUH
#define __CUDA_ARCH__ 900
#define __CUDACC__ 1
#define WGMMA 1
#undef __device__
#undef __host__
#undef __global__
#undef __shared__
#undef __align__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __host__
#define __global__
#define __shared__
#define __align__(n)
#define __launch_bounds__(...)
#define __grid_constant__

#define PLAYED_SHARED_BYTES 232448u
#define PLAYED_THREADS 384u
#define PLAYED_BYTES 64u /* that a lane brings to a meeting, at most */

typedef char played_lanes[32][PLAYED_BYTES];

struct played_warp {
	uint32_t arrived;
	uint64_t meeting;
	played_lanes brought[2]; /* to every other meeting: the late still read the last */
};

struct played_barrier {
	uint32_t count, left; /* of who arrives; 0: not made yet */
	int64_t bytes; /* still to come */
	uint64_t phase;
};

struct played_index {
	uint32_t x;
};

extern struct played_index threadIdx, blockIdx, gridDim;
extern struct played_warp played_warps[PLAYED_THREADS / 32];
extern struct played_barrier played_barriers[PLAYED_SHARED_BYTES / 8], played_named[16];
extern char shared[PLAYED_SHARED_BYTES];

/* Lets the others run; somebody has changed what others wait for. */
void played_wait(const char *what, uint32_t which);
void played_moved(void);
/* fp16 and bf16. */
extern float played_values[2][65536];
uint32_t played_bits(bool bf16, float value);

/* ---- of a warp ------------------------------------------------------------------------------ */

static inline const played_lanes &played_meet(const void *mine, size_t n, const char *what)
{
	struct played_warp &w = played_warps[threadIdx.x / 32];
	uint64_t meeting = w.meeting;
	played_lanes &all = w.brought[meeting % 2];

	memcpy(all[threadIdx.x % 32], mine, n);
	if (++w.arrived == 32) {
		w.arrived = 0;
		w.meeting++;
		played_moved();
	}
	while (w.meeting == meeting)
		played_wait(what, 0);
	return all;
}

static inline void __syncwarp()
{
	played_meet("", 1, "syncwarp");
}

template <typename VALUE>
static inline VALUE played_of_lane(VALUE value, uint32_t lane, const char *what)
{
	VALUE ret;

	memcpy(&ret, played_meet(&value, sizeof(value), what)[lane], sizeof(ret));
	return ret;
}

template <typename VALUE> static inline VALUE __shfl_sync(uint32_t, VALUE value, uint32_t lane)
{
	return played_of_lane(value, lane % 32, "shfl");
}

template <typename VALUE> static inline VALUE __shfl_xor_sync(uint32_t, VALUE value, uint32_t mask)
{
	return played_of_lane(value, (threadIdx.x ^ mask) % 32, "shfl.xor");
}

static inline uint32_t __ballot_sync(uint32_t, bool mine)
{
	const played_lanes &all = played_meet(&mine, sizeof(mine), "ballot");
	uint32_t ret = 0;

	for (uint32_t i = 0; i < 32; i++)
		ret |= (uint32_t)(all[i][0] != 0) << i;
	return ret;
}

static inline bool __any_sync(uint32_t mask, bool mine)
{
	return __ballot_sync(mask, mine) != 0;
}

static inline bool __all_sync(uint32_t mask, bool mine)
{
	return __ballot_sync(mask, mine) == ~0u;
}

/* ---- of a thread ---------------------------------------------------------------------------- */

static inline uint32_t __popc(uint32_t x)
{
	return (uint32_t)__builtin_popcount(x);
}

static inline uint32_t __ffs(uint32_t x)
{
	return (uint32_t)__builtin_ffs((int)x);
}

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)((uint64_t)a * b >> 32);
}

template <typename VALUE> static inline VALUE __ldcg(const VALUE *at)
{
	return *at;
}

static inline uint32_t atomicInc(uint32_t *at, uint32_t most)
{
	uint32_t before = *at;

	*at = before >= most ? 0 : before + 1;
	return before;
}

static inline uint32_t atomicAdd(uint32_t *at, uint32_t n)
{
	*at += n;
	return *at - n;
}

static inline uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline int32_t min(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static inline float exp2_fast(float x)
{
	return exp2f(x);
}

static inline void zero_now(float &x)
{
	x = 0;
}

static inline uint32_t shared_address(const void *at)
{
	return (uint32_t)((const char *)at - shared);
}

static inline bool elected()
{
	return threadIdx.x % 32 == 0;
}

static inline void fence_async()
{
}

static inline void fence_barriers()
{
}

static inline void announce(const void *)
{
}

static inline void launch_wait()
{
}

static inline void launch_next()
{
}

template <uint32_t N> static inline void registers_more()
{
	__syncwarp();
}

template <uint32_t N> static inline void registers_less()
{
	__syncwarp();
}

/* ---- barriers ------------------------------------------------------------------------------- */

static inline void played_arrive(struct played_barrier &b, int64_t bytes, uint32_t n)
{
	assert(b.count && b.left >= n);
	b.left -= n;
	b.bytes += bytes;
	if (b.left || b.bytes)
		return;
	b.left = b.count;
	b.phase++;
	played_moved();
}

static inline struct played_barrier &played_at(uint32_t barrier)
{
	assert(barrier % 8 == 0 && barrier < PLAYED_SHARED_BYTES);
	return played_barriers[barrier / 8];
}

static inline void barrier_init(uint32_t barrier, uint32_t count)
{
	played_at(barrier) = (struct played_barrier){count, count, 0, 0};
}

static inline void barrier_arrive(uint32_t barrier)
{
	played_arrive(played_at(barrier), 0, 1);
}

static inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
	played_arrive(played_at(barrier), bytes, 1);
}

static inline bool barrier_test(uint32_t barrier, uint32_t parity)
{
	assert(played_at(barrier).count);
	return played_at(barrier).phase % 2 != parity;
}

static inline bool barriers_test(uint32_t barrier, uint32_t parity)
{
	return barrier_test(barrier, parity) && barrier_test(barrier + 8, parity);
}

static inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
	while (!barrier_test(barrier, parity))
		played_wait("mbarrier", barrier);
}

static inline void named_arrive(uint32_t id, uint32_t n_threads)
{
	struct played_barrier &b = played_named[id];

	if (b.left == 0)
		b.count = b.left = n_threads;
	assert(b.count == n_threads);
	if (--b.left)
		return;
	b.phase++;
	played_moved();
}

static inline void named_barrier(uint32_t id, uint32_t n_threads)
{
	uint64_t phase = played_named[id].phase;

	named_arrive(id, n_threads);
	while (played_named[id].phase == phase)
		played_wait("bar.sync", id);
}

static inline void __syncthreads()
{
	named_barrier(0, PLAYED_THREADS);
}

/* ---- copies --------------------------------------------------------------------------------- */

static inline void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
	assert((to | (uintptr_t)from | bytes) % 16 == 0 && to + bytes <= PLAYED_SHARED_BYTES);
	memcpy(shared + to, from, bytes);
	played_arrive(played_at(barrier), -(int64_t)bytes, 0);
}

static inline void copy_some_16(uint32_t to, const void *from, uint32_t n)
{
	memset(shared + to, 0, 16);
	memcpy(shared + to, from, n);
}

static inline void copy_wait()
{
}

static inline void copy_arrive(uint32_t barrier)
{
	barrier_arrive(barrier);
}

/* ---- matrices ------------------------------------------------------------------------------- */

/* Each lane's row of 16 bytes: matrix i is lanes' 8 i and on. */
static inline void load_matrix(uint32_t (&r)[4], uint32_t at)
{
	const played_lanes &all = played_meet(&at, sizeof(at), "ldmatrix");

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t row;

		memcpy(&row, all[8 * i + threadIdx.x % 32 / 4], sizeof(row));
		memcpy(&r[i], shared + row + threadIdx.x % 4 * 4, 4);
	}
	__syncwarp();
}

static inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t at)
{
	const played_lanes &all = played_meet(&at, sizeof(at), "ldmatrix.trans");

	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t j = 0; j < 2; j++) {
			uint32_t row;

			memcpy(&row, all[8 * i + threadIdx.x % 4 * 2 + j], sizeof(row));
			memcpy((char *)&r[i] + 2 * j, shared + row + threadIdx.x % 32 / 4 * 2, 2);
		}
	}
	__syncwarp();
}

static inline void wgmma_begin()
{
	__syncwarp();
}

static inline void wgmma_commit()
{
	__syncwarp();
}

template <uint32_t N> static inline void wgmma_wait()
{
	__syncwarp();
}

template <uint32_t N> static inline void registers_fence(float (&)[N][4])
{
}

static inline uint32_t uniform(uint32_t x)
{
	return __shfl_sync(~0u, x, 0);
}

/* The top bits say how wide an atom is, and so its swizzle. */
template <uint32_t ATOM_VALUES>
static inline uint64_t wgmma_matrix(uint32_t at, uint32_t leading, uint32_t stride)
{
	static_assert(ATOM_VALUES == 64 || ATOM_VALUES == 32, "with 128-byte or 64-byte swizzle");
	return (uint64_t)(at >> 4) | (uint64_t)(leading >> 4) << 16 |
	       (uint64_t)(stride >> 4) << 32 | UINT64_C(1) << (ATOM_VALUES == 64 ? 62 : 63);
}

static inline uint64_t wgmma_behind(uint64_t matrix, uint32_t bytes)
{
	return matrix + (bytes >> 4);
}

/* Value k of column n. */
static inline const char *played_wide(uint64_t matrix, uint32_t n, uint32_t k, bool transposed)
{
	uint32_t at = (uint32_t)(matrix & 0x3fff) << 4, leading = (uint32_t)(matrix >> 16 & 0x3fff)
								  << 4;
	uint32_t stride = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
	uint32_t values = matrix >> 62 == 1 ? 64 : 32; /* of a row of an atom */

	at += transposed
		      ? n / values * leading + k / 8 * stride + k % 8 * values * 2 + n % values * 2
		      : n / 8 * stride + n % 8 * values * 2 + k * 2;
	return shared + (at ^ (at >> 7 & (values / 8 - 1)) << 4);
}

#define PLAYED_COLUMNS 256u /* of a wide matrix, at most */

/* What all lanes of a warp multiply at a meeting, made of bits once for all. */
struct played_product {
	uint64_t meeting;
	float a[16][16], b[PLAYED_COLUMNS][16];
};

extern struct played_product played_products[PLAYED_THREADS / 32];

template <bool BF16> struct played_dtype {
	static float value(const void *bits)
	{
		uint16_t at;

		memcpy(&at, bits, sizeof(at));
		return played_values[BF16][at];
	}

	/* The warp's, with a 16 x 16 matrix of which each lane brought its four words. True: b is
	 * still to be made. */
	static bool product_of(const played_lanes &all, struct played_product *&ret)
	{
		struct played_product &p = played_products[threadIdx.x / 32];
		uint64_t meeting = played_warps[threadIdx.x / 32].meeting;

		ret = &p;
		if (p.meeting == meeting)
			return false;
		p.meeting = meeting;
		for (uint32_t r = 0; r < 16; r++)
			for (uint32_t k = 0; k < 16; k++)
				p.a[r][k] = value(all[r % 8 * 4 + k % 8 / 2] +
						  (r / 8 + k / 8 * 2) * 4 + k % 2 * 2);
		return true;
	}

	/* On what was there, one k after the other. */
	static float dot(float sum, const float (&a)[16], const float (&b)[16])
	{
		for (uint32_t k = 0; k < 16; k++)
			sum += a[k] * b[k];
		return sum;
	}

	/* Of eight columns, which stand behind a. */
	static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
	{
		const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
		const played_lanes &all = played_meet(mine, sizeof(mine), "mma");
		uint32_t lane = threadIdx.x % 32;
		struct played_product *p;

		if (product_of(all, p))
			for (uint32_t i = 0; i < 8 * 16; i++)
				p->b[i / 16][i % 16] = value(all[i / 16 * 4 + i % 8 / 2] + 16 +
							     i % 16 / 8 * 4 + i % 2 * 2);
		for (uint32_t i = 0; i < 4; i++)
			c[i] = dot(c[i], p->a[lane / 4 + i / 2 * 8], p->b[lane % 4 * 2 + i % 2]);
		__syncwarp();
	}

	template <uint32_t TRANSPOSED, uint32_t N>
	static void multiply_wide(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, bool add)
	{
		const played_lanes &all = played_meet(a, sizeof(a), "wgmma");
		uint32_t lane = threadIdx.x % 32;
		struct played_product *p;

		static_assert(N * 8 <= PLAYED_COLUMNS, "room");
		if (product_of(all, p))
			for (uint32_t n = 0; n < N * 8; n++)
				for (uint32_t k = 0; k < 16; k++)
					p->b[n][k] = value(played_wide(b, n, k, TRANSPOSED));
		for (uint32_t i = 0; i < 4 * N; i++)
			d[i / 4][i % 4] =
				dot(add ? d[i / 4][i % 4] : 0, p->a[lane / 4 + i % 4 / 2 * 8],
				    p->b[i / 4 * 8 + lane % 4 * 2 + i % 2]);
		__syncwarp();
	}

	static uint32_t pack(float x, float y)
	{
		return played_bits(BF16, x) | played_bits(BF16, y) << 16;
	}
};

typedef struct played_dtype<false> dtype_half;
typedef struct played_dtype<true> dtype_bf16;

#endif
