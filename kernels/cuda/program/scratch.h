/*
 * scratch.h - a program on the device, and the memory that its rows are in: all of one block, made
 * with the program for as many rows as a run may have.
 */
#ifndef COPPICE_CUDA_SCRATCH_H
#define COPPICE_CUDA_SCRATCH_H

#include "kernels/cuda/device/format.h"
#include "kernels/program/backend_program.h"
#include "lt.h"
#include "results.h"
#include "some.h"
#include "weights.h"

#define PROGRAM_MAX_ROWS 1024u /* of a run */
#define PROGRAM_HEAD_ROWS 128u /* whose logits are made at a time */
#define PROGRAM_ROW_ALIGN 8u /* elements that a row is a multiple of */

/* Forms that a register's rows are in. */
enum program_form { PROGRAM_WIDE = 1, PROGRAM_NARROW = 2 };

/* Device memory; rows of registers are stride elements apart, in either form. */
struct program_scratch {
	char *block; /* owned */
	float *wide[PROGRAM_REGISTERS]; /* NULL: never in this form */
	char *narrow[PROGRAM_REGISTERS]; /* the same; X's is made where a product reads X */
	uint32_t stride[PROGRAM_REGISTERS];
	float *made; /* [rows][made_stride]: what products make before biases and gates */
	uint32_t made_stride;
	double *inv_freq; /* [n_turned / 2] */
	float *rotations; /* [rows][n_turned] */
	char *q, *o; /* [rows], narrow: q of all heads; what attention gives */
	struct device_place *places; /* [rows] */
	struct program_wanted *wanted; /* [rows] */
	char *normed; /* [PROGRAM_HEAD_ROWS][hidden], narrow */
	float *logits; /* [PROGRAM_HEAD_ROWS][logits_stride] */
	uint32_t logits_stride;
	struct device_sum *sums; /* [PROGRAM_HEAD_ROWS][chunks] */
	uint64_t *tops; /* [PROGRAM_HEAD_ROWS][chunks][PROGRAM_TOP_MAX] */
	char *workspace; /* of products */
	uint32_t *counters; /* of products' parts, all 0 between launches */
};

struct backend_program {
	const struct program *p;
	const struct backend_weights *weights;
	struct lt *lt;
	struct program_widths widths;
	struct program_scratch scratch;
	struct backend_io *io; /* owned, [PROGRAM_MAX_ROWS] */
	uint32_t n_prepared; /* rows, of the last run that it is ready for */
	struct program_progress progress;
	uint32_t width[PROGRAM_REGISTERS]; /* of rows that are under way, where they are */
	uint64_t slice_elements; /* of matrices, that are multiplied at a time at most */
};

/* Is the layer the first of its kind? */
bool program_is_first(const struct program *p, uint32_t layer);
/* Forms in which what an operation of a kind leaves in its register is read from there, until
 * another takes its place; of attention, none. */
uint32_t program_forms_read(const struct program *p, const struct program_kind *kind, uint32_t op);
/* Whether anything but an operation's input is read from a register, from that operation on. */
bool program_is_read_behind(const struct program *p, const struct program_kind *kind, uint32_t op,
			    uint32_t reg);
/* Is it attention's output that the operation reads, by a register other than X? That lies in
 * scratch.o. */
bool program_reads_attention(const struct program *p, const struct program_kind *kind, uint32_t op);

/* Bytes for so many rows. */
uint64_t scratch_bytes(const struct backend_program *program, uint32_t rows);
/* For PROGRAM_MAX_ROWS, filled on the stream that runs will be on. 0, -ENOMEM, -EIO. */
MUST_CHECK int scratch_init(struct backend_program *program, struct CUstream_st *stream);
void scratch_done(struct backend_program *program);

#endif
