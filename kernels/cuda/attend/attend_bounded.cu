/*
 * attend_bounded.cu - attention of lists in which some rows see nothing before a position (windows,
 * chunks): the kernel of attend_kernel.cuh once more, with their masks. Other lists are spared
 * what these cost.
 */
#include "find.cuh"

struct attend_kernels attend_find_bounded(uint32_t dim, bool bf16)
{
	return attend_find<variant_bounded>(dim, bf16);
}
