/*
 * program.c - runs of rows through a program, phase by phase (program_phase.h).
 *
 * A run is complete when it returns, as a batch is; so it looks at the clock, and ends behind any
 * unit. What rows are between two segments stays in the program's scratch memory,
 * which grows to the rows of its largest run.
 */
#include "program.h"
#include "huge.h"
#include "program_phase.h"
#include "weights.h"
#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/say.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NEARLY_ALL 0.9999 /* of a run that has not ended, whatever was rounded */
#define MAX_ROWS 1024u /* more would be no faster, and others' steps would wait longer */

static void cpu_program_free(struct backend *b, struct backend_program *program)
{
	(void)b;
	if (!program)
		return;
	attend_done(&program->attend);
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
	attend_init_beside(&program->attend, &b->attend);
	*ret = program;
	return 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int reserve(struct program_pass *pass)
{
	struct backend_job job = *pass->run->job;
	int r = program_scratch_reserve(pass->program, pass->run->rows->n_rows);

	job.shape = &pass->program->p->shape;
	return r ? r : attend_reserve(&pass->program->attend, &job);
}

static void begin_anew(struct backend_program *program, uint32_t n_rows)
{
	program->progress = (struct program_progress){.n_rows = n_rows};
	program->begun = false;
	program->phase = program->unit = 0;
}

static bool is_at_head(const struct backend_program *program)
{
	return program_is_at_head(program->p, &program->progress.cursor);
}

/* The next one of what is under way; false: there is none. */
static bool find_phase(struct program_pass *pass, struct program_phase *ret)
{
	struct backend_program *program = pass->program;

	if (!program->begun)
		return program_begin_phase(pass, program->phase, ret);
	if (is_at_head(program))
		return program_head_phase(pass, program->phase, ret);
	return program_op_phase(pass, program->phase, ret);
}

/* Attention that is under way cannot go on where the list has been made again, and is another one:
 * it begins anew. */
static void check_list(const struct program_pass *pass)
{
	struct backend_program *program = pass->program;

	if (program->begun && !is_at_head(program) &&
	    program_op_at(program->p, &program->progress.cursor)->kind == PROGRAM_ATTEND &&
	    program_is_attending(program->phase) && !attend_is_of(&program->attend, pass->run->job))
		program->phase = program->unit = 0;
}

/* Phases of what is under way. */
static uint32_t count_phases(const struct program_pass *pass)
{
	if (is_at_head(pass->program))
		return program_head_phases(pass->run);
	return pass->op->kind == PROGRAM_ATTEND ? PROGRAM_ATTEND_PHASES : 1;
}

/* What is under way is done. */
static void op_end(struct program_pass *pass)
{
	struct backend_program *program = pass->program;

	program->phase = 0;
	if (program->begun)
		program_cursor_next(program->p, &program->progress.cursor);
	program->begun = true;
}

/* False: the run's time is up. */
static bool run_phase(struct program_pass *pass, const struct program_phase *phase,
		      uint64_t until_ns)
{
	struct backend_program *program = pass->program;
	const struct threads_job job = {.run = phase->unit,
					.arg = pass,
					.first = program->unit,
					.n_units = phase->n_units,
					.alone = phase->alone,
					.look_every = phase->look_every,
					.until_ns = phase->alone ? UINT64_MAX : until_ns};

	if (phase->go)
		phase->go(pass);
	else
		program->unit = threads_run_until(pass->b->threads, &job);
	if (phase->go || program->unit == phase->n_units) {
		program->unit = 0;
		program->phase++;
	}
	return until_ns == UINT64_MAX || clock_now_ns() < until_ns;
}

/* Of all that the rows take: what is done, with a part of what is under way. */
static double part_done(const struct program_pass *pass, const struct program_phase *next)
{
	const struct backend_program *program = pass->program;
	struct program_progress *progress = &pass->program->progress;
	double n = program->phase + (double)program->unit / max_u32(next->n_units, 1);
	struct program_times times;

	if (!program->begun)
		return 0;
	program_times_init(&times, program->p, pass->run);
	progress->part += program_times_between(&times, progress->counted, &progress->cursor);
	progress->counted = progress->cursor;
	return progress->part +
	       n / count_phases(pass) * program_times_part(&times, &progress->cursor);
}

/* Returns the part of all that is done then; 1: the rows have come to their end. */
static double run_until(struct program_pass *pass, uint64_t until_ns)
{
	struct program_phase phase;

	for (bool in_time = true;;) {
		while (!find_phase(pass, &phase)) {
			if (pass->program->begun && is_at_head(pass->program))
				return 1;
			op_end(pass);
		}
		if (!in_time)
			return fmin(part_done(pass, &phase), NEARLY_ALL);
		in_time = run_phase(pass, &phase, until_ns);
	}
}

static int begin(struct backend *b, const struct backend_run *run, struct program_pass *ret)
{
	struct backend_program *program = run->program;
	bool fits = program_run_fits(program->p, run, &program->progress, MAX_ROWS);
	int r;

	*ret = (struct program_pass){.b = b, .program = program, .run = run};
	r = fits ? reserve(ret) : -EINVAL;
	if (r) {
		program->progress = (struct program_progress){0};
		return r;
	}
	if (run->goes_on)
		check_list(ret);
	else
		begin_anew(program, run->rows->n_rows);
	return 0;
}

static int cpu_run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	struct program_pass pass;
	struct program_progress *progress = &run->program->progress;
	uint64_t start_ns = clock_now_ns();
	double done;
	int r = begin(b, run, &pass);

	if (r)
		return r;
	done = run_until(&pass, run->most_ns ? start_ns + run->most_ns : UINT64_MAX);
	done = fmax(done, progress->part_before);
	b->counters.batches++;
	b->counters.busy_ns += clock_now_ns() - start_ns;
	*ret = (struct backend_ran){.id = ++b->last_id,
				    .part = done - progress->part_before,
				    .ended = done == 1};
	progress->part_before = done;
	if (ret->ended)
		*progress = (struct program_progress){0};
	return 0;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static void cpu_program_cost(struct backend *b, const struct backend_program *program,
			     struct backend_program_cost *ret)
{
	const struct program *p = program->p;
	struct program_reads layers = program_layers_reads(p), head = program_head_reads(p);
	double threads = threads_at_once(b->threads);

	*ret = (struct backend_program_cost){
		.fixed_ns = CPU_FIXED_NS +
			    (double)(layers.bytes + head.bytes) * CPU_READ_NS_PER_BYTE / threads,
		.head_ns = (double)head.bytes * CPU_READ_NS_PER_BYTE / threads,
		.row_ns = (double)layers.elements * b->rows->fma_ns / threads,
		.wanted_ns = (double)head.elements * b->rows->fma_ns / threads,
		.scratch_bytes = program_scratch_bytes(program, MAX_ROWS),
	};
}

static uint32_t cpu_rows_as(uint32_t n_rows)
{
	return n_rows;
}

const struct backend_program_ops cpu_program = {
	.max_rows = MAX_ROWS,
	.holds = true,
	.rows_as = cpu_rows_as,
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
