/* variant_capped.cuh - variant_capped.h for the GPU's kernels: transform, mask and sink at once. */
#ifndef COPPICE_TESTS_VARIANT_CAPPED_CUH
#define COPPICE_TESTS_VARIANT_CAPPED_CUH

#include "kernels/cuda/attend/traits.cuh"
#include "variant_capped.h"

struct variant_capped : variant_bounded {
	static constexpr bool scores_change = true;
	static constexpr bool has_sink = true;

	__device__ static float score(float scaled)
	{
		return CAPPED_AT_LOG2 * tanhf(scaled / CAPPED_AT_LOG2);
	}

	__device__ static float sink(const struct device_attend &a, uint32_t q_head)
	{
		(void)a;
		return (float)CAPPED_SINK(q_head);
	}
};

#endif
