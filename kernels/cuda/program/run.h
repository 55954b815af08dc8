/* run.h - between the parts of a run. */
#ifndef COPPICE_CUDA_RUN_H
#define COPPICE_CUDA_RUN_H

#include "elements.h"
#include "kernels/cuda/batch/batch.h"
#include "scratch.h"

struct device_vector run_vector(const struct backend_program *program,
				const struct program_tensor *t);
/* 0 or -EIO, which the queue remembers. */
MUST_CHECK int run_multiply(struct batch *b, const struct backend_program *program,
			    const struct lt_product *product);

/* head.c: final norm and head of the wanted rows, and what comes of them. 0 or -EIO. */
MUST_CHECK int head_run(struct batch *b, const struct backend_run *run);
/* Its product alone, of up to PROGRAM_HEAD_ROWS rows. */
MUST_CHECK int head_multiply(struct batch *b, const struct backend_program *program,
			     uint32_t n_rows);

#endif
