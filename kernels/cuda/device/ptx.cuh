/*
 * ptx.cuh - barriers in shared memory, copies into it, and the tensor instructions, each a line
 * of PTX. The bulk copies need sm_90; before that lanes copy 16 bytes at a time to the same
 * barriers.
 */
#ifndef COPPICE_CUDA_PTX_CUH
#define COPPICE_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ inline uint32_t shared_address(const void *at)
{
	return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ inline void barrier_init(uint32_t barrier, uint32_t count)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier)
{
	asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(barrier)
		     : "memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* By whole warps. What was written before is seen by all behind it. */
__device__ inline void cluster_sync()
{
	asm volatile(
		"barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
			: "memory");
}
#endif

/* Waits for the end of the phase of that parity. */
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
	uint32_t done;

	do {
#if __CUDA_ARCH__ >= 900
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
			     "selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
#else
		asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; "
			     "selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
#endif
	} while (!done);
}

/* Has the phase of that parity ended? */
__device__ inline bool barrier_test(uint32_t barrier, uint32_t parity)
{
	uint32_t done;

	asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 "
		     "%0, 1, 0, p; }"
		     : "=r"(done)
		     : "r"(barrier), "r"(parity)
		     : "memory");
	return done;
}

#if __CUDA_ARCH__ >= 900
/* The same of two barriers, one behind the other: asked one by one, each takes as long. */
__device__ inline bool barriers_test(uint32_t barrier, uint32_t parity)
{
	uint32_t done;

	asm volatile("{ .reg .pred p, q;"
		     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
		     "mbarrier.test_wait.parity.shared.b64 q, [%1 + 8], %2;"
		     "and.pred p, p, q;"
		     "selp.u32 %0, 1, 0, p; }"
		     : "=r"(done)
		     : "r"(barrier), "r"(parity)
		     : "memory");
	return done;
}
#endif

/* Barriers that were made are seen by copies. */
__device__ inline void fence_barriers()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* To the second-level cache. */
__device__ inline void announce(const void *at)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* Here and now, whatever the compiler would rather do before. */
__device__ inline void zero_now(float &x)
{
	asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x));
}

/* Among the given number of threads of the block. */
__device__ inline void named_barrier(uint32_t id, uint32_t n_threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* One lane of the warp. Not by its number: who waits for the barriers asks for that, and would keep
 * the answer in memory. */
__device__ inline bool elected()
{
	uint32_t lane;

	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane == 0;
}

/* Is counted there, and does not wait. */
__device__ inline void named_arrive(uint32_t id, uint32_t n_threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

#if __CUDA_ARCH__ >= 900
/* At the barrier of that address in both blocks of a cluster of two, by a whole warp. What was read
 * is known to have been read, and nothing that was written is handed on: an arrival that had the
 * cluster see writes would take a fence of the whole device's memory. */
__device__ inline void barrier_arrive_both(uint32_t barrier)
{
	uint32_t lane = threadIdx.x % 32;

	if (lane < 2)
		asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
			     "mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(barrier),
			     "r"(lane)
			     : "memory");
}

__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
	asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(
			     barrier),
		     "r"(bytes)
		     : "memory");
}

__device__ inline void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
		     "[%1], %2, [%3];" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(barrier)
		     : "memory");
}

/* Ordinary stores to shared memory come before what bulk copies and wgmma do after the next
 * barrier. */
__device__ inline void fence_async()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The kernel before this one on the stream is complete, its writes are seen. */
__device__ inline void launch_wait()
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The next kernel's blocks may take what room there is. */
__device__ inline void launch_next()
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#else
__device__ inline void launch_wait()
{
}

__device__ inline void launch_next()
{
}

__device__ inline void fence_async()
{
}
#endif

#if __CUDA_ARCH__ >= 800
__device__ inline void copy_16(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Of those 16 bytes the first n are copied, the others become 0; from is an address even if n is
 * 0. */
__device__ inline void copy_some_16(uint32_t to, const void *from, uint32_t n)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
		     : "memory");
}

/* The same of what is read once, and whose neighbours are read next. */
__device__ inline void copy_once(uint32_t to, const void *from, uint32_t n)
{
	asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
		     "r"(n)
		     : "memory");
}

/* This lane's copies so far are there. */
__device__ inline void copy_wait()
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* This lane's copies since the last time are a group. */
__device__ inline void copy_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All of this lane's groups but the last N are there. */
template <uint32_t N> __device__ inline void copy_wait_but()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The barrier counts this lane once its copies so far are there. */
__device__ inline void copy_arrive(uint32_t barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
#endif

__device__ inline void load_matrix(uint32_t (&r)[4], uint32_t at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(at)
		     : "memory");
}

__device__ inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(at)
		     : "memory");
}

__device__ inline float exp2_fast(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* ---- warp groups --------------------------------------------------------------------------------
 * wgmma runs behind the program's back: registers that it reads or writes are its own from
 * wgmma_begin to wgmma_wait.
 */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA 1

template <uint32_t N> __device__ inline void registers_more()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <uint32_t N> __device__ inline void registers_less()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

__device__ inline void wgmma_begin()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until no more than the last N that were committed are under way. */
template <uint32_t N> __device__ inline void wgmma_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Nobody moves what is done with these registers across this line. */
template <uint32_t N> __device__ inline void registers_fence(float (&d)[N][4])
{
#pragma unroll
	for (uint32_t i = 0; i < N; i++) {
#pragma unroll
		for (uint32_t j = 0; j < 4; j++)
			asm volatile("" : "+f"(d[i][j])::"memory");
	}
}

/* A matrix in shared memory in atoms of 8 rows x 64 values, 128-byte swizzle, or x 32 and 64-byte
 * swizzle; bytes from atom to atom along the rows' direction and across (PTX ISA, matrix descriptor
 * of wgmma). */
template <uint32_t ATOM_VALUES>
__device__ inline uint64_t wgmma_matrix(uint32_t at, uint32_t leading, uint32_t stride)
{
	return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 |
	       (uint64_t)(stride >> 4) << 32 | UINT64_C(1) << (ATOM_VALUES == 64 ? 62 : 63);
}

/* What lies so many bytes behind a matrix, in atoms alike. */
__device__ inline uint64_t wgmma_behind(uint64_t matrix, uint32_t bytes)
{
	return matrix >> 32 << 32 | ((uint32_t)matrix + (bytes >> 4));
}

/* What all lanes of the warp have alike, so that the compiler knows it. Matrices that begin there
 * are then made in registers of the warp; else each is made in those of the lanes and handed over,
 * ten instructions that wait for each other before every product. */
__device__ inline uint32_t uniform(uint32_t x)
{
	return __shfl_sync(~0u, x, 0);
}

#define WGMMA_D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define WGMMA_D16(i) WGMMA_D4(i), WGMMA_D4(i + 1), WGMMA_D4(i + 2), WGMMA_D4(i + 3)
#define WGMMA_32 \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%" \
	"24,%25,%26,%27,%28,%29," \
	"%30,%31"
#define WGMMA_48 WGMMA_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_64 \
	WGMMA_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%" \
		 "51,%52,%53,%54,%55," \
		 "%56,%57,%58,%59,%60,%61,%62,%63"

/* d (64 x COLUMNS) = or += a (64 x 16, of the warps' registers as mma.m16n8k16 has it) x b (16 x
 * COLUMNS in shared memory, with TRANSPOSED: its rows lie side by side). Operands have numbers: D
 * are those of d, and A, B, ADD and T those behind them. */
#define WGMMA_OVERLOAD(TYPE, COLUMNS, D, A, B, ADD, T, ...) \
	template <uint32_t TRANSPOSED> \
	__device__ static void multiply_wide(float(&d)[COLUMNS / 8][4], const uint32_t(&a)[4], \
					     uint64_t b, bool add) \
	{ \
		asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0; " \
			     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE \
			     " {" D "}, {" A "}, " B ", p, 1, 1, " T "; }" \
			     : __VA_ARGS__ \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), \
			       "r"((uint32_t)add), "n"(TRANSPOSED)); \
	}
#define WGMMA_DEFINE(TYPE) \
	WGMMA_OVERLOAD(TYPE, 128, WGMMA_64, "%64,%65,%66,%67", "%68", "%69", "%70", WGMMA_D16(0), \
		       WGMMA_D16(4), WGMMA_D16(8), WGMMA_D16(12)) \
	WGMMA_OVERLOAD(TYPE, 96, WGMMA_48, "%48,%49,%50,%51", "%52", "%53", "%54", WGMMA_D16(0), \
		       WGMMA_D16(4), WGMMA_D16(8)) \
	WGMMA_OVERLOAD(TYPE, 64, WGMMA_32, "%32,%33,%34,%35", "%36", "%37", "%38", WGMMA_D16(0), \
		       WGMMA_D16(4))
#else
template <uint32_t N> __device__ inline void registers_more()
{
}

template <uint32_t N> __device__ inline void registers_less()
{
}

#define WGMMA_DEFINE(TYPE)
#endif

/* c += a x b of 16 x 16 by 16 x 8. */
#define MMA_DEFINE(TYPE) \
	__device__ static void multiply(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, \
					uint32_t b1) \
	{ \
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 " \
			     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
	}

/* What differs between the two dtypes. */
struct dtype_half {
	typedef __half type;
	WGMMA_DEFINE("f16")
	MMA_DEFINE("f16")
	__device__ static uint32_t pack(float x, float y)
	{
		__half2 h = __floats2half2_rn(x, y);

		return *(uint32_t *)&h;
	}
};

struct dtype_bf16 {
	typedef __nv_bfloat16 type;
	WGMMA_DEFINE("bf16")
	MMA_DEFINE("bf16")
	__device__ static uint32_t pack(float x, float y)
	{
		__nv_bfloat162 h = __floats2bfloat162_rn(x, y);

		return *(uint32_t *)&h;
	}
};

#endif
