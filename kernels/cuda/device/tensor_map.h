/* tensor_map.h - the driver's function that makes tensor maps. */
#ifndef COPPICE_CUDA_TENSOR_MAP_H
#define COPPICE_CUDA_TENSOR_MAP_H

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cuTensorMapEncodeTiled: map; type, dimensions, address; sizes, strides, box, steps; interleaving,
 * swizzle, what is brought to the second-level cache, what is beyond the ends. */
typedef CUresult (*tensor_map_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
				      const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
				      const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
				      CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* NULL: the driver has none. Any thread. */
tensor_map_encode tensor_map_encoder(void);

#ifdef __cplusplus
}
#endif

#endif
