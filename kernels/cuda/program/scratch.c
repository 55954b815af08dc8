/*
 * scratch.c - see scratch.h. One walk says where each part of the block lies, or, without a block,
 * how large it is to be. A register has memory in the forms alone in which some operation of some
 * kind of layer reads it: products read what is narrow, norms and attention what is wide, and X is
 * wide and stays so. What attention gives lies apart, for all registers that it is ever in.
 */
#include "scratch.h"

#include "proto/arith.h"
#include "kernels/program/carve.h"

#include <cuda_runtime_api.h>
#include <errno.h>

/* ---- forms ----------------------------------------------------------------------------------- */

static const struct program_op *op_of(const struct program *p, const struct program_kind *kind,
				      uint32_t op)
{
	return &p->ops[kind->first_op + op];
}

bool program_reads_attention(const struct program *p, const struct program_kind *kind, uint32_t op)
{
	uint32_t in = op_of(p, kind, op)->in;

	while (in != PROGRAM_X && op-- > 0) {
		if (op_of(p, kind, op)->out == in)
			return op_of(p, kind, op)->kind == PROGRAM_ATTEND;
	}
	return false;
}

uint32_t program_forms_read(const struct program *p, const struct program_kind *kind, uint32_t op)
{
	uint32_t out = op_of(p, kind, op)->out, forms = 0;

	if (out == PROGRAM_X)
		return PROGRAM_WIDE;
	if (op_of(p, kind, op)->kind == PROGRAM_ATTEND)
		return 0;
	while (++op < kind->n_ops) {
		const struct program_op *next = op_of(p, kind, op);

		if (next->in == out)
			forms |= next->kind == PROGRAM_LINEAR ? PROGRAM_NARROW : PROGRAM_WIDE;
		if (next->out == out)
			break;
	}
	return forms;
}

bool program_is_first(const struct program *p, uint32_t layer)
{
	uint32_t first = 0;

	while (p->kind_of[first] != p->kind_of[layer])
		first++;
	return first == layer;
}

bool program_is_read_behind(const struct program *p, const struct program_kind *kind, uint32_t op,
			    uint32_t reg)
{
	while (op_of(p, kind, op)->out != reg) {
		if (++op == kind->n_ops)
			return false;
		if (op_of(p, kind, op)->in == reg)
			return true;
	}
	return op_of(p, kind, op)->flags & PROGRAM_ADD;
}

/* In which a register ever is. */
static uint32_t forms_of(const struct program *p, uint32_t reg)
{
	uint32_t forms = reg == PROGRAM_X ? PROGRAM_WIDE : 0;

	for (uint32_t k = 0; k < p->n_kinds; k++)
		for (uint32_t i = 0; i < p->kinds[k].n_ops; i++) {
			const struct program_op *op = op_of(p, &p->kinds[k], i);

			if (op->out == reg)
				forms |= program_forms_read(p, &p->kinds[k], i);
			if (op->in == PROGRAM_X && reg == PROGRAM_X && op->kind == PROGRAM_LINEAR)
				forms |= PROGRAM_NARROW;
		}
	return forms;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint32_t stride_of(uint32_t width)
{
	return (uint32_t)align_to(width, PROGRAM_ROW_ALIGN);
}

static void carve_registers(const struct backend_program *program, uint64_t rows, struct carving *c,
			    struct program_scratch *ret)
{
	for (uint32_t i = 0; i < PROGRAM_REGISTERS; i++) {
		uint32_t forms = forms_of(program->p, i);
		uint64_t n = rows * stride_of(program->widths.of[i]);

		ret->stride[i] = stride_of(program->widths.of[i]);
		ret->wide[i] = forms & PROGRAM_WIDE ? carve(c, n, sizeof(float)) : NULL;
		ret->narrow[i] = forms & PROGRAM_NARROW ? carve(c, n, 2) : NULL;
	}
}

static void carve_head(const struct backend_program *program, struct carving *c,
		       struct program_scratch *ret)
{
	const struct program *p = program->p;
	uint64_t rows = PROGRAM_HEAD_ROWS, chunks = results_chunks(p->n_vocab);

	ret->logits_stride = stride_of(p->n_vocab);
	ret->normed = carve(c, rows * p->hidden, 2);
	ret->logits = carve(c, rows * ret->logits_stride, sizeof(float));
	ret->sums = carve(c, rows * chunks, sizeof(*ret->sums));
	ret->tops = carve(c, rows * chunks * PROGRAM_TOP_MAX, sizeof(*ret->tops));
}

static void carve_all(const struct backend_program *program, uint64_t rows, struct carving *c,
		      struct program_scratch *ret)
{
	const struct program *p = program->p;

	carve_registers(program, rows, c, ret);
	carve_head(program, c, ret);
	ret->made_stride = stride_of(program->widths.product);
	ret->made = carve(c, rows * ret->made_stride, sizeof(float));
	ret->inv_freq = carve(c, p->n_turned / 2, sizeof(double));
	ret->rotations = carve(c, rows * p->n_turned, sizeof(float));
	ret->q = carve(c, rows * program_q_width(p), 2);
	ret->o = carve(c, rows * program_q_width(p), 2);
	ret->places = carve(c, rows, sizeof(*ret->places));
	ret->wanted = carve(c, rows, sizeof(*ret->wanted));
	ret->workspace = carve(c, LT_WORKSPACE_BYTES, 1);
	ret->counters = carve(c, SOME_COUNTERS, sizeof(*ret->counters));
}

uint64_t scratch_bytes(const struct backend_program *program, uint32_t rows)
{
	struct program_scratch nowhere;
	struct carving c = {.align = PROGRAM_ALIGN};

	carve_all(program, rows, &c, &nowhere);
	return c.bytes;
}

int scratch_init(struct backend_program *program, struct CUstream_st *stream)
{
	struct program_scratch *s = &program->scratch;
	const struct program *p = program->p;
	uint64_t bytes = scratch_bytes(program, PROGRAM_MAX_ROWS);
	struct carving c = {.align = PROGRAM_ALIGN};

	if (cudaMalloc((void **)&c.block, bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	s->block = c.block;
	carve_all(program, PROGRAM_MAX_ROWS, &c, s);
	if (cudaMemsetAsync(s->counters, 0, SOME_COUNTERS * sizeof(*s->counters), stream) !=
	    cudaSuccess)
		return -EIO;
	if (p->n_turned &&
	    cudaMemcpyAsync(s->inv_freq, p->inv_freq, p->n_turned / 2 * sizeof(double),
			    cudaMemcpyHostToDevice, stream) != cudaSuccess)
		return -EIO;
	return 0;
}

void scratch_done(struct backend_program *program)
{
	cudaFree(program->scratch.block);
	program->scratch = (struct program_scratch){0};
}
