/* head.h - final norm and head of the wanted rows, and what comes of them. */
#ifndef COPPICE_CUDA_HEAD_H
#define COPPICE_CUDA_HEAD_H

#include "kernels/cuda/batch/batch.h"
#include "scratch.h"

/* 0 or -EIO. */
MUST_CHECK int head_run(struct batch *b, const struct backend_run *run);
/* Its product alone, of up to PROGRAM_HEAD_ROWS rows. */
MUST_CHECK int head_multiply(struct batch *b, const struct backend_program *program,
			     uint32_t n_rows);

#endif
