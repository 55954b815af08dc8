/* pass.h - a segment of a run, as its launches have it. */
#ifndef COPPICE_CUDA_PASS_H
#define COPPICE_CUDA_PASS_H

#include "kernels/cuda/batch/batch_layers.h"
#include "scratch.h"

struct pass {
	struct batch *b;
	struct backend_program *program;
	const struct backend_run *run;
	struct backend_job job; /* the run's, whose Q and O are the program's own */
	struct batch_layers layers;
	uint32_t layer;
	const struct program_kind *kind;
	uint32_t at; /* of op, in the kind */
	uint32_t part; /* of op, of several */
	const struct program_op *op;
	const struct program_op *norm; /* that op makes itself of what it reads; NULL: none */
	uint32_t width[PROGRAM_REGISTERS]; /* as it is now */
	struct program_times times;
	double left_ns; /* of what it may take */
	bool any; /* something of it is launched */
};

/* Not of the head: in how many parts an operation goes, one after the other, whoever cuts runs. */
uint32_t pass_count_parts(const struct backend_program *program,
			  const struct program_cursor *cursor);
/* Outputs of a matrix that go in one, where there are several; the last has what is left. */
uint32_t pass_slice_outs(const struct backend_program *program, const struct program_tensor *t);
/* A part. 0, -ENOMEM, -EIO. */
MUST_CHECK int pass_run_op(struct pass *pass, const struct program_cursor *cursor);

#endif
