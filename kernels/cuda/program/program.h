/*
 * program.h - whole tokens on one GPU: programs made, run and weighed. Products are cuBLASLt's
 * (lt.h), attention is that of any batch (batch_layers.h), the rest is a launch for each operation
 * (elements.h, results.h), all on the batches' stream.
 */
#ifndef COPPICE_CUDA_PROGRAM_H
#define COPPICE_CUDA_PROGRAM_H

#include "kernels/cuda/batch/batch.h"
#include "scratch.h"

/* What all programs of a device share. All zero but for the batch: none was made yet. */
struct programs {
	struct batch *batch; /* of the device */
	struct lt *lt; /* owned */
	uint64_t slice_elements; /* as programs have it; 0: as is best */
};

void programs_done(struct programs *programs);

/* As backend_program_ops have it, of the current device. Matrices are to be of the model's type,
 * with rows that are a multiple of 16 bytes; vectors and the embedding may be of any type. */
MUST_CHECK int program_new(struct programs *programs, const struct program *p,
			   const struct backend_weights *weights, struct backend_program **ret,
			   char why[PROGRAM_WHY_BYTES]);
uint64_t program_new_bytes(const struct program *p); /* of the device; 0: it is not taken */
void program_free(struct backend_program *program); /* NULL is fine */
bool program_prepare(struct batch *b, struct backend_program *program);
MUST_CHECK int program_run(struct batch *b, const struct backend_run *run, struct backend_ran *ret);
/* What a run launches for products, biases and gates of all layers, or once of each kind, and the
 * product of the head, over whatever is in the scratch memory; for who measures, or prepares. */
MUST_CHECK int program_run_products(struct batch *b, struct backend_program *program,
				    uint32_t n_rows, bool once);
uint32_t program_rows_as(uint32_t n_rows);
void program_cost(const struct batch *b, const struct backend_program *program,
		  struct backend_program_cost *ret);

#endif
