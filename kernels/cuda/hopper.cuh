/*
 * hopper.cuh - barriers in shared memory, copies into it, and the tensor instructions, each a line of PTX. The bulk
 * copies need sm_90; before that lanes copy 16 bytes at a time to the same barriers.
 */
#ifndef COPPICE_CUDA_HOPPER_CUH
#define COPPICE_CUDA_HOPPER_CUH

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
	asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}

/* Waits for the end of the phase of that parity. */
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
	uint32_t done;

	do {
#if __CUDA_ARCH__ >= 900
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
#else
		asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
#endif
	} while (!done);
}

__device__ inline void store_release(uint32_t to, uint32_t value)
{
	asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

__device__ inline uint32_t load_acquire(uint32_t from)
{
	uint32_t value;

	asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
	return value;
}

/* Among the given number of threads of the block. */
__device__ inline void named_barrier(uint32_t id, uint32_t n_threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

#if __CUDA_ARCH__ >= 900
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
	asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(barrier), "r"(bytes)
		     : "memory");
}

__device__ inline void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(barrier)
		     : "memory");
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
#endif

#if __CUDA_ARCH__ >= 800
__device__ inline void copy_16(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
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

/* What differs between the two dtypes. c += a x b of 16 x 16 by 16 x 8. */
struct dtype_half {
	typedef __half type;
	__device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
	{
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
			     "{%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	}
	__device__ static uint32_t pack(float x, float y)
	{
		__half2 h = __floats2half2_rn(x, y);

		return *(uint32_t *)&h;
	}
};

struct dtype_bf16 {
	typedef __nv_bfloat16 type;
	__device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
	{
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
			     "{%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	}
	__device__ static uint32_t pack(float x, float y)
	{
		__nv_bfloat162 h = __floats2bfloat162_rn(x, y);

		return *(uint32_t *)&h;
	}
};

#endif
