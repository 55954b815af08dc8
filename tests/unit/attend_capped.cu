/*
 * attend_capped.cu - attention whose scores are capped (variant_capped.h), of rows with a first
 * position that they see and a sink: a variant as a model would have it, at one shape. It stands in
 * the place of attend_bounded.cu in a module that variant_test alone loads.
 */
#include "kernels/cuda/attend/find.cuh"
#include "variant_capped.cuh"

struct attend_kernels attend_find_bounded(uint32_t dim, bool bf16)
{
	typedef kernel_traits<dtype_half, 128, 128, variant_capped> traits;

	return dim == 128 && !bf16 ? attend_kernels_of<traits>() : attend_kernels{};
}
