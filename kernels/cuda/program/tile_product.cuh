/*
 * tile_product.cuh - products of tiles that lie in shared memory: d (64 x N) += a (64 x 16) x
 * b (16 x N), for the widths N that tiles of pair.cu and tall.cu have. By all warps of a group.
 */
#ifndef COPPICE_CUDA_TILE_PRODUCT_CUH
#define COPPICE_CUDA_TILE_PRODUCT_CUH

#include "kernels/cuda/device/ptx.cuh"

#ifdef WGMMA
template <typename DTYPE, uint32_t N> struct tile_product;

#define TILE_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TILE_72 WGMMA_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define TILE_80 TILE_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define TILE_D48 WGMMA_D16(0), WGMMA_D16(4), WGMMA_D16(8)
#define TILE_PRODUCT(DTYPE, TYPE, N, D, A, B, ...) \
	template <> struct tile_product<DTYPE, N> { \
		__device__ static void add(float (&d)[N / 8][4], uint64_t a, uint64_t b) \
		{ \
			asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE \
				     "." TYPE " {" D "}, " A ", " B ", 1, 1, 1, 0, 0;" \
				     : __VA_ARGS__ \
				     : "l"(a), "l"(b)); \
		} \
	};
#define TILE_PRODUCTS(DTYPE, TYPE) \
	TILE_PRODUCT(DTYPE, TYPE, 32, TILE_16, "%16", "%17", WGMMA_D16(0)) \
	TILE_PRODUCT(DTYPE, TYPE, 64, WGMMA_32, "%32", "%33", WGMMA_D16(0), WGMMA_D16(4)) \
	TILE_PRODUCT(DTYPE, TYPE, 96, WGMMA_48, "%48", "%49", TILE_D48) \
	TILE_PRODUCT(DTYPE, TYPE, 128, WGMMA_64, "%64", "%65", TILE_D48, WGMMA_D16(12)) \
	TILE_PRODUCT(DTYPE, TYPE, 144, TILE_72, "%72", "%73", TILE_D48, WGMMA_D16(12), \
		     WGMMA_D4(16), WGMMA_D4(17)) \
	TILE_PRODUCT(DTYPE, TYPE, 160, TILE_80, "%80", "%81", TILE_D48, WGMMA_D16(12), \
		     WGMMA_D16(16))
TILE_PRODUCTS(dtype_half, "f16")
TILE_PRODUCTS(dtype_bf16, "bf16")
#endif

#endif
