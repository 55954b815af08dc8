/*
 * attend_capped.cu - attention whose scores are capped (variant_capped.h), of rows with a first
 * position that they see: a variant as a model would have it, at one shape. It stands in the place
 * of attend_bounded.cu in a module that variant_test alone loads.
 */
#include "kernels/cuda/attend/attend_kernel.cuh"
#include "variant_capped.h"

struct variant_capped : variant_bounded {
	static constexpr bool scores_change = true;

	__device__ static float score(float scaled)
	{
		return CAPPED_AT_LOG2 * tanhf(scaled / CAPPED_AT_LOG2);
	}
};

attend_function attend_find_bounded(uint32_t dim, bool bf16)
{
	typedef kernel_traits<dtype_half, 128, 128, variant_capped> traits;

	return dim == 128 && !bf16 ? attend_kernel<traits> : NULL;
}
