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

bool maps_encode(CUtensorMap *ret, const struct map_rows *rows)
{
	const cuuint64_t sizes[] = {rows->n_in, rows->n}, strides[] = {rows->stride * UINT64_C(2)};
	const cuuint32_t box[] = {MAP_INPUTS, rows->n_brought}, every[] = {1, 1};
	encode_function to = find_encode();

	return to &&
	       to(ret,
		  rows->bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
		  2, (void *)(uintptr_t)rows->at, sizes, strides, box, every,
		  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
