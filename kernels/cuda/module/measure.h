/*
 * measure.h - times of the attention of the batch that was submitted last, replayed from a graph.
 */
#ifndef COPPICE_CUDA_MEASURE_H
#define COPPICE_CUDA_MEASURE_H

#include "kernels/cuda/batch/batch.h"
#include "kernels/cuda/program/program.h"
#include "module.h"

/* As cuda_measure says, or, whole, cuda_measure_step; of the current device. */
MUST_CHECK int measure_attention(struct batch *b, bool whole, uint64_t flush_bytes, uint32_t n,
				 float *ret_us);
/* As cuda_measure_products says. */
MUST_CHECK int measure_products(struct batch *b, struct backend_program *program, uint32_t n_rows,
				uint32_t n, float *ret_us);
/* As cuda_clocks says. */
MUST_CHECK int measure_clocks(struct batch *b, uint64_t flush_bytes, struct device_clocks *ret);

/* Members of a group, and the CUDA ordinals of their devices. */
struct measure_members {
	struct batch *batches[PEERS_MAX];
	int devices[PEERS_MAX];
	uint32_t n;
};

/* As cuda_measure_group says. */
MUST_CHECK int measure_group(const struct measure_members *members,
			     const struct cuda_measure_layers *how, uint32_t n, float *ret_us,
			     struct cuda_measure_stamp *ret_stamps);

#endif
