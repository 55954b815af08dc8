/*
 * program.c - runs of rows through layers.
 *
 * A run is complete when it returns, as a batch is. What rows are between two segments stays in the
 * program's scratch memory, which grows to the rows of its largest run.
 */
#include "program.h"
#include "huge.h"
#include "program_head.h"
#include "program_layer.h"
#include "program_scratch.h"
#include "weights.h"
#include "kernels/arith.h"
#include "kernels/clock.h"
#include "kernels/say.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define MAX_ROWS 1024u /* more would be no faster, and others' steps would wait longer */

static void cpu_program_free(struct backend *b, struct backend_program *program)
{
	(void)b;
	if (!program)
		return;
	program_scratch_done(program);
	free(program);
}

static uint32_t widest(const struct program_widths *widths)
{
	uint32_t most = widths->product;

	for (uint32_t i = 0; i < PROGRAM_REGISTERS; i++)
		most = max_u32(most, widths->of[i]);
	return most;
}

static int cpu_program_new(struct backend *b, const struct program *p,
			   struct backend_weights *weights, struct backend_program **ret,
			   char why[PROGRAM_WHY_BYTES])
{
	struct program_widths widths;
	struct backend_program *program;

	if (program_check(p, &widths, why) != 0 ||
	    pool_page_bytes(&b->pool, &p->shape, why, PROGRAM_WHY_BYTES) == 0)
		return -EOPNOTSUPP;
	assert(p->weights_bytes <= weights->bytes);
	program = calloc(1, sizeof(*program));
	if (!program)
		return -ENOMEM;
	program->p = p;
	program->weights = weights->base;
	program->widths = widths;
	program->line = widest(&widths);
	program->n_threads = threads_count(b->threads);
	*ret = program;
	return 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int reserve(struct backend *b, const struct backend_run *run)
{
	struct backend_job job = *run->job;
	int r = program_scratch_reserve(run->program, run->rows->n_rows);

	job.shape = &run->program->p->shape;
	return r ? r : attend_reserve(&b->attend, &job);
}

static void run_layers(struct backend *b, const struct backend_run *run)
{
	uint32_t end = run->first_layer + run->n_layers;

	if (run->first_layer == 0)
		program_embed(b, run);
	program_turns(b, run);
	for (uint32_t layer = run->first_layer; layer < end; layer++)
		program_layer(b, run, layer);
	if (end == run->program->p->shape.n_layers)
		program_head(b, run);
}

static int cpu_run(struct backend *b, const struct backend_run *run, uint64_t *ret_id)
{
	struct backend_program *program = run->program;
	uint64_t start_ns = clock_ns();
	bool fits = program_run_fits(program->p, run, &program->progress, MAX_ROWS);
	int r = fits ? reserve(b, run) : -EINVAL;

	program->progress = (struct program_progress){0};
	if (r)
		return r;
	run_layers(b, run);
	program->progress = program_progress_of(program->p, run);
	b->counters.batches++;
	b->counters.busy_ns += clock_ns() - start_ns;
	*ret_id = ++b->last_id;
	return 0;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static void cpu_program_cost(struct backend *b, const struct backend_program *program,
			     struct backend_program_cost *ret)
{
	const struct program *p = program->p;
	struct program_reads layers = program_layers_reads(p), head = program_head_reads(p);
	double threads = threads_count(b->threads);

	*ret = (struct backend_program_cost){
		.fixed_ns = CPU_FIXED_NS +
			    (double)(layers.bytes + head.bytes) * CPU_READ_NS_PER_BYTE / threads,
		.row_ns = (double)layers.elements * b->rows->fma_ns / threads,
		.wanted_ns = (double)head.elements * b->rows->fma_ns / threads,
		.scratch_bytes = program_scratch_bytes(program, MAX_ROWS),
	};
}

const struct backend_program_ops cpu_program = {
	.max_rows = MAX_ROWS,
	.whole_rows = 1,
	.weights_grain = HUGE_BYTES,
	.weights_new = cpu_weights_new,
	.weights_put = cpu_weights_put,
	.weights_lend = cpu_weights_lend,
	.weights_free = cpu_weights_free,
	.program_new = cpu_program_new,
	.program_free = cpu_program_free,
	.run = cpu_run,
	.cost = cpu_program_cost,
};
