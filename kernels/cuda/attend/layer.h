/*
 * layer.h - what one layer's attention consists of, in the order in which all launch it:
 *
 *      inbound, or a launch that stands for it -> attend -> merge -> outbound -> finish
 *
 * Each waits for the one before where it must (launch.cuh), so that none may be moved past another.
 */
#ifndef COPPICE_CUDA_LAYER_H
#define COPPICE_CUDA_LAYER_H

#include "append.h"
#include "attend.h"
#include "kernels/cuda/device/bring.h"
#include "kernels/cuda/device/queue.h"

/* NULL: it has none of that. */
struct layer {
	const struct device_stand *stand; /* in the place of inbound */
	const struct device_inbound *inbound;
	const struct device_attend *attend; /* and its merge */
	const struct device_outbound *outbound;
	const struct device_finish *finish;
};

/* A cudaError_t: 0 is success. */
MUST_CHECK int layer_launch(const struct layer *layer, struct launch_to to);
/* The same as one chain. 0 or -EIO. */
MUST_CHECK int layer_play(const struct layer *layer, struct queue *q, struct launch_chain *chain);

#endif
