/* sparse.h - what sparse prefill has of the device: where it puts its work, and what lies where. */
#ifndef COPPICE_CUDA_SPARSE_H
#define COPPICE_CUDA_SPARSE_H

#include "kernels/cuda/device/hosts.h"
#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/device/queue.h"

struct sparse {
	struct queue *queue;
	const struct pool *pool;
	struct hosts *hosts;
};

#endif
