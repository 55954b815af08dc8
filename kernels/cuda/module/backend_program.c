/*
 * backend_program.c - the backend's part in whole tokens. Weights come and go on any thread, by a
 * stream that they share; programs and their runs are the scheduler's, and a run is a batch.
 */
#include "backend_impl.h"
#include "kernels/cuda/program/lt.h"

#include "kernels/cuda/program/lend.h"

#include <cuda_runtime_api.h>

static int programs_weights_new(struct backend *b, uint64_t bytes, struct backend_weights **ret)
{
	return weights_new(&b->ferry, bytes, ret);
}

static int programs_weights_put(struct backend *b, struct backend_weights *weights, uint64_t offset,
				const void *from, uint64_t bytes)
{
	(void)b;
	return weights_put(weights, offset, from, bytes);
}

static int programs_weights_lend(struct backend *b, struct backend_weights *weights,
				 struct backend_lent *ret)
{
	(void)b;
	return lend_weights(weights, ret);
}

static void programs_weights_free(struct backend *b, struct backend_weights *weights)
{
	(void)b;
	weights_free(weights);
}

static int programs_new(struct backend *b, const struct program *program,
			struct backend_weights *weights, struct backend_program **ret,
			char why[PROGRAM_WHY_BYTES])
{
	backend_enter(b);
	return program_new(&b->programs, program, weights, ret, why);
}

static uint64_t programs_bytes(struct backend *b, const struct program *program)
{
	(void)b;
	return program_new_bytes(program);
}

static bool programs_prepare(struct backend *b, struct backend_program *program)
{
	backend_enter(b);
	return stand_leave(&b->batch) == 0 && program_prepare(&b->batch, program);
}

static void programs_free(struct backend *b, struct backend_program *program)
{
	backend_enter(b);
	program_free(program);
}

static int programs_run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	struct backend_job job = *run->job;

	backend_enter(b);
	job.shape = &run->program->p->shape;
	backend_make_way(b, &(struct backend_batch){.jobs = &job, .n_jobs = 1});
	return program_run(&b->batch, run, ret);
}

static bool programs_is_ending(struct backend *b, uint64_t id)
{
	return batch_is_ending(&b->batch, id);
}

static void programs_cost(struct backend *b, const struct backend_program *program,
			  struct backend_program_cost *ret)
{
	program_cost(&b->batch, program, ret);
}

const struct backend_program_ops backend_program_ops = {
	.max_rows = PROGRAM_MAX_ROWS,
	.rows_as = program_rows_as,
	.weights_grain = WEIGHTS_GRAIN,
	.weights_new = programs_weights_new,
	.weights_put = programs_weights_put,
	.weights_lend = programs_weights_lend,
	.weights_free = programs_weights_free,
	.program_new = programs_new,
	.program_bytes = programs_bytes,
	.program_prepare = programs_prepare,
	.program_free = programs_free,
	.run = programs_run,
	.is_ending = programs_is_ending,
	.cost = programs_cost,
};
