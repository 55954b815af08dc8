/*
 * maps.c - maps are made by a function of the driver, which the runtime finds: nothing is linked
 * with the driver. Where it has none there are no maps.
 */
#include "maps.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <string.h>

#define DRIVER_VERSION 12000

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
				    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
				    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
				    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function find_encode(void)
{
	static encode_function found; /* of the process */
	enum cudaDriverEntryPointQueryResult result;
	void *at = NULL;

	if (!found &&
	    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, DRIVER_VERSION,
					     cudaEnableDefault, &result) == cudaSuccess &&
	    result == cudaDriverEntryPointSuccess)
		memcpy(&found, &at, sizeof(found));
	return found;
}

/* Of so many dimensions; the first has inputs. */
struct dims {
	uint32_t n;
	cuuint64_t sizes[4], strides[3];
	cuuint32_t box[4];
};

static bool encode(CUtensorMap *ret, const struct map_rows *rows, const struct dims *dims)
{
	static const cuuint32_t every[] = {1, 1, 1, 1};
	encode_function to = find_encode();

	return to &&
	       to(ret,
		  rows->bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
		  dims->n, (void *)(uintptr_t)rows->at, dims->sizes, dims->strides, dims->box,
		  every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool maps_encode(CUtensorMap *ret, const struct map_rows *rows)
{
	const struct dims dims = {.n = 2,
				  .sizes = {rows->n_in, rows->n},
				  .strides = {rows->stride * UINT64_C(2)},
				  .box = {MAP_INPUTS, rows->n_brought}};

	return encode(ret, rows, &dims);
}

bool maps_encode_turns(CUtensorMap *ret, const struct map_rows *rows, const void *other)
{
	const uint64_t row_bytes = rows->stride * UINT64_C(2);
	const uint64_t apart = (uint64_t)((const char *)other - (const char *)rows->at);
	const struct dims dims = {.n = 4,
				  .sizes = {rows->n_in, 8, 2, rows->n / 8},
				  .strides = {row_bytes, apart, 8 * row_bytes},
				  .box = {MAP_INPUTS, 8, 2, rows->n_brought / 8}};

	return encode(ret, rows, &dims);
}
