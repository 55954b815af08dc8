/* head.h - final norm and head of the wanted rows, and what comes of them. */
#ifndef COPPICE_CUDA_HEAD_H
#define COPPICE_CUDA_HEAD_H

#include "kernels/cuda/batch/batch.h"
#include "scratch.h"

/* How often so many rows go at a time, all wanted ones in all. */
uint32_t head_blocks(const struct backend_run *run);
/* Of PROGRAM_HEAD_ROWS wanted rows, or those that are left: of these ending_ns tells when they
 * begin. 0 or -EIO. */
MUST_CHECK int head_run(struct batch *b, const struct backend_run *run, uint32_t block,
			uint64_t *ending_ns);
/* Its product alone, of up to PROGRAM_HEAD_ROWS rows. */
MUST_CHECK int head_multiply(struct batch *b, const struct backend_program *program,
			     uint32_t n_rows);

#endif
