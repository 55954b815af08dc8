/* maps.c - which tensor maps matrices have. Where the driver makes none there are none. */
#include "maps.h"

#include "kernels/cuda/device/tensor_map.h"

/* Of so many dimensions; the first has inputs. */
struct dims {
	uint32_t n;
	cuuint64_t sizes[4], strides[3];
	cuuint32_t box[4];
};

static bool encode(CUtensorMap *ret, const struct map_rows *rows, const struct dims *dims)
{
	static const cuuint32_t every[] = {1, 1, 1, 1};
	tensor_map_encode to = tensor_map_encoder();

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
