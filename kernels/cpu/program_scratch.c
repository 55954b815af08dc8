/*
 * program_scratch.c - one walk says where each part of the block lies, or, without a block, how
 * large it is to be.
 *
 * Memory that no row touches is never the machine's: the logits' part counts where rows are wanted.
 * A large block is of huge pages, as giving back gigabytes of small ones takes as long as a batch
 * may, or longer.
 */
#include "program_scratch.h"

#include "huge.h"

#include "kernels/backend.h"
#include "kernels/program/carve.h"

#include <errno.h>
#include <stdlib.h>

#define PART_BYTES 64u /* parts begin at multiples of it */
#define LARGE_BYTES (16 * HUGE_BYTES)

static void carve_all(const struct backend_program *program, uint64_t rows, struct carving *c,
		      struct program_scratch *ret)
{
	const struct program *p = program->p;
	uint64_t threads = program->n_threads, q = program_q_width(p), kv = program_kv_width(p);
	size_t bytes = work_dtype_bytes(p->shape.dtype);

	for (uint32_t i = 0; i < PROGRAM_REGISTERS; i++)
		ret->of[i] = carve(c, rows * program_stride(program->widths.of[i]), sizeof(float));
	ret->rotations = carve(c, rows * p->n_turned, sizeof(float));
	ret->qkv = carve(c, rows * (q + 2 * kv), bytes);
	ret->o = carve(c, rows * q, bytes);
	ret->io = carve(c, rows, sizeof(*ret->io));
	ret->gates = carve(c, threads * 2 * rows * LINEAR_GATE_OUTS, sizeof(float));
	ret->lines = carve(c, threads * program->line, sizeof(float));
	ret->vectors = carve(c, program->line, sizeof(float));
	ret->normed = carve(c, PROGRAM_HEAD_ROWS * program_stride(p->hidden), sizeof(float));
	ret->logits = carve(c, (uint64_t)PROGRAM_HEAD_ROWS * p->n_vocab, sizeof(float));
}

uint64_t program_scratch_bytes(const struct backend_program *program, uint32_t rows)
{
	struct program_scratch nowhere;
	struct carving c = {.align = PART_BYTES};

	carve_all(program, rows, &c, &nowhere);
	return c.bytes;
}

/* NULL: there is none. */
static char *block_new(uint64_t bytes)
{
	void *block;

	if (bytes >= LARGE_BYTES)
		return huge_map(align_to(bytes, HUGE_BYTES));
	return posix_memalign(&block, PART_BYTES, bytes) == 0 ? block : NULL;
}

static void block_free(char *block, uint64_t bytes)
{
	if (bytes >= LARGE_BYTES)
		huge_unmap(block, align_to(bytes, HUGE_BYTES));
	else
		free(block);
}

int program_scratch_reserve(struct backend_program *program, uint32_t rows)
{
	struct program_scratch *s = &program->scratch;
	uint64_t bytes = program_scratch_bytes(program, rows);
	struct carving c = {.align = PART_BYTES};

	if (rows <= s->rows)
		return 0;
	program_scratch_done(program);
	c.block = block_new(bytes);
	if (!c.block)
		return -ENOMEM;
	*s = (struct program_scratch){.block = c.block, .bytes = bytes, .rows = rows};
	carve_all(program, rows, &c, s);
	return 0;
}

void program_scratch_done(struct backend_program *program)
{
	block_free(program->scratch.block, program->scratch.bytes);
	program->scratch = (struct program_scratch){0};
}
