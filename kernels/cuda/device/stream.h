/* stream.h - what the card's memory gives: a bare kernel that reads scattered tiles, timed. */
#ifndef COPPICE_CUDA_STREAM_H
#define COPPICE_CUDA_STREAM_H

#include "proto/must_check.h"

#include <stdint.h>

/* As struct cuda_stream_tiles (module.h) has them. */
struct stream_tiles {
	uint64_t pool_bytes;
	uint32_t tile_bytes, ring_bytes, blocks;
};

#ifdef __cplusplus
extern "C" {
#endif

/* As cuda_stream. */
MUST_CHECK int stream_read(const struct stream_tiles *tiles, uint64_t flush_bytes, uint64_t bytes,
			   uint32_t n, float *ret_us);

#ifdef __cplusplus
}
#endif

#endif
