/*
 * find.cuh - the kernels of a variant (traits.cuh): attention and its merge, for each dtype and dim
 * of heads.
 */
#ifndef COPPICE_CUDA_FIND_CUH
#define COPPICE_CUDA_FIND_CUH

#include "attend_kernel.cuh"
#include "merge.cuh"

#include <type_traits>

typedef void (*attend_function)(struct device_attend);

struct attend_kernels {
	attend_function attend; /* NULL: not compiled */
	attend_function merge; /* NULL: that of variant_none */
};

/* Of traits: keys and values may be of different dims. */
template <typename T> static struct attend_kernels attend_kernels_of()
{
	typedef typename T::variant variant;

	if constexpr (variant::has_sink || std::is_same_v<variant, variant_none>)
		return {attend_kernel<T>, merge_kernel<typename T::dtype, T::v, variant>};
	else
		return {attend_kernel<T>, NULL};
}

template <typename VARIANT> static struct attend_kernels attend_find(uint32_t dim, bool bf16)
{
	return for_shape(
		dim, bf16, [](auto type, auto dim) -> struct attend_kernels {
			typedef typename decltype(type)::type dtype;

			return attend_kernels_of<
				kernel_traits<dtype, dim.value, dim.value, VARIANT>>();
		});
}

/* attend_bounded.cu: those of rows with a first position that they see. */
struct attend_kernels attend_find_bounded(uint32_t dim, bool bf16);

#endif
