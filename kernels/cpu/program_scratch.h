/* program_scratch.h - a program on the CPU, and the memory that its rows are in. */
#ifndef COPPICE_CPU_PROGRAM_SCRATCH_H
#define COPPICE_CPU_PROGRAM_SCRATCH_H

#include "proto/arith.h"
#include "proto/must_check.h"
#include "kernels/program/backend_program.h"
#include "kernels/rows/rows.h"
#include "attend.h"
#include "linear.h"

#define PROGRAM_HEAD_ROWS 64u /* whose logits are made at a time */

/* Elements from a row to the next. A row's length is often a multiple of 4 KiB: then the lines that
 * a product takes from all rows at once would share a few places of the first-level cache. */
static inline size_t program_stride(uint32_t width)
{
	return align_to(width, 16) + 48;
}

/* All of one block. */
struct program_scratch {
	char *block; /* owned */
	uint64_t bytes; /* its */
	uint32_t rows; /* that there is room for */
	float *of[PROGRAM_REGISTERS]; /* [rows], program_stride of widths.of apart */
	float *rotations; /* [rows][n_turned] */
	char *qkv, *o; /* [rows] in the type of the KV: q, k and v; what attention gives */
	struct backend_io *io; /* [rows] */
	float *gates; /* linear.h */
	float *lines; /* [threads][line] */
	float *vectors; /* [line]: norms' weights and biases of an operation */
	float *normed; /* [PROGRAM_HEAD_ROWS], program_stride of hidden apart */
	float *logits; /* [PROGRAM_HEAD_ROWS][n_vocab] */
};

struct backend_program {
	const struct program *p;
	const char *weights;
	struct program_widths widths;
	uint32_t line; /* the widest row of all */
	uint32_t n_threads;
	struct program_scratch scratch;
	struct attend attend; /* beside the backend's */
	struct program_progress progress;
	/* Of what comes next so much is done already; begun: rows are embedded, and rotations
	 * known. */
	bool begun;
	uint32_t phase, unit;
	uint32_t width[PROGRAM_REGISTERS]; /* elements of a row, as it is there */
};

/* Bytes for so many rows. */
uint64_t program_scratch_bytes(const struct backend_program *program, uint32_t rows);
/* Room for so many rows; what was there is gone where it was too small. 0 or -ENOMEM. */
MUST_CHECK int program_scratch_reserve(struct backend_program *program, uint32_t rows);
void program_scratch_done(struct backend_program *program);

/* A tensor as a matrix; a vector has one output. */
static inline struct rows_matrix program_matrix(const struct backend_program *program,
						const struct program_tensor *t)
{
	return (struct rows_matrix){program->weights + t->offset, t->dtype, t->n_out ? t->n_out : 1,
				    t->n_in};
}

#endif
