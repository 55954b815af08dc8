/*
 * segment.c - a run: what goes up, operations one after the other, the head, and where it ends:
 * behind an operation, a slice of one, or some rows of the head, by what these are expected to
 * take.
 */
#include "elements.h"
#include "head.h"
#include "pass.h"
#include "product.h"
#include "program.h"

#include <errno.h>
#include <string.h>

/* Rows of all queries lie one query after the other. Their K and V lie nowhere but in pages. */
static void set_io(const struct backend_run *run)
{
	const struct backend_job *job = run->job;
	uint64_t bytes = program_q_width(run->program->p) * UINT64_C(2);
	uint64_t q = (uintptr_t)run->program->scratch.q, o = (uintptr_t)run->program->scratch.o;

	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		run->program->io[i] = (struct backend_io){
			.q = q,
			.o = o,
			.q_stride = bytes,
			.o_stride = bytes,
			.slots = job->io[i].slots,
			.n_slots = job->io[i].n_slots,
		};
		q += job->tree->queries[i].n_rows * bytes;
		o += job->tree->queries[i].n_rows * bytes;
	}
}

/* What goes up with it: ids, positions and places, then what is wanted. */
static size_t inputs_bytes(const struct program_rows *rows)
{
	size_t row = 2 * sizeof(uint32_t) + sizeof(struct device_place);

	return rows->n_rows * row + rows->n_wanted * sizeof(*rows->wanted);
}

static int begin(struct pass *pass)
{
	const struct program *p = pass->program->p;
	const struct program_scratch *s = &pass->program->scratch;
	const struct program_rows *rows = pass->run->rows;
	size_t words = rows->n_rows * sizeof(uint32_t);
	char *inputs = batch_layers_host(&pass->layers, inputs_bytes(rows));
	char *places = inputs + 2 * words;
	char *wanted = places + rows->n_rows * sizeof(struct device_place);
	struct device_begin begin = {
		.ids = (const void *)inputs,
		.positions = (const void *)(inputs + words),
		.wanted_from = (const void *)wanted,
		.wanted_to = s->wanted,
		.places_from = (const void *)places,
		.places_to = s->places,
		.inv_freq = s->inv_freq,
		.embed = product_vector(pass->program, &p->tensors[p->embed]),
		.x = pass->run->goes_on ? NULL : s->wide[PROGRAM_X],
		.rotations = s->rotations,
		.begin_ns = pass->layers.begin_ns,
		.n_rows = rows->n_rows,
		.n_wanted = rows->n_wanted,
		.hidden = p->hidden,
		.x_stride = s->stride[PROGRAM_X],
		.n_turned = p->n_turned,
		.embed_factor = p->embed_factor,
		.rope_factor = p->rope_factor,
	};

	memcpy(inputs, rows->ids, words);
	memcpy(inputs + words, rows->positions, words);
	batch_layers_places(&pass->layers, (void *)places);
	if (rows->n_wanted)
		memcpy(wanted, rows->wanted, rows->n_wanted * sizeof(*rows->wanted));
	return queue_expect(&pass->b->queue, device_begin(&begin, queue_to(&pass->b->queue)));
}

/* Whether it ends before what comes next, one of n parts of that; else that counts from now
 * on. A norm that an operation makes itself is nothing to end at. */
static bool is_time(struct pass *pass, struct program_progress *progress, uint32_t n)
{
	double ns;

	if (!pass->run->most_ns)
		return false;
	ns = program_times_ns(&pass->times, &progress->cursor) / n;
	if (pass->any && !pass->norm && pass->left_ns < ns)
		return true;
	pass->any = true;
	pass->left_ns -= ns;
	progress->part += program_times_part(&pass->times, &progress->cursor) / n;
	return false;
}

static int run_layers(struct pass *pass, struct program_progress *progress)
{
	struct program_cursor *cursor = &progress->cursor;
	int r = 0;

	while (!r && !program_is_at_head(pass->program->p, cursor)) {
		uint32_t n = pass_count_parts(pass->program, cursor);

		if (is_time(pass, progress, n))
			return 0;
		r = pass_run_op(pass, cursor);
		if (++cursor->part == n)
			program_cursor_next(pass->program->p, cursor);
	}
	return r;
}

/* cursor->part: of what the head takes at a time, the next. */
static int run_head(struct pass *pass, struct program_progress *progress)
{
	struct program_cursor *cursor = &progress->cursor;
	uint32_t n = head_blocks(pass->run);
	int r = 0;

	for (; !r && cursor->part < n; cursor->part++) {
		if (is_time(pass, progress, n))
			return 0;
		r = head_run(pass->b, pass->run, cursor->part, pass->layers.ending_ns);
	}
	return r;
}

static bool has_ended(const struct backend_run *run, const struct program_cursor *cursor)
{
	return program_is_at_head(run->program->p, cursor) && cursor->part >= head_blocks(run);
}

/* progress is where it leads. */
static int run_all(struct pass *pass, struct program_progress *progress, struct backend_ran *ret)
{
	int r = begin(pass);

	if (!r)
		r = run_layers(pass, progress);
	if (!r && program_is_at_head(pass->program->p, &progress->cursor))
		r = run_head(pass, progress);
	ret->ended = has_ended(pass->run, &progress->cursor);
	if (!r)
		r = batch_layers_end(&pass->layers, ret->ended, &ret->id);
	if (r)
		return r;
	ret->part = (ret->ended ? 1 : progress->part) - progress->part_before;
	progress->part_before = progress->part;
	return 0;
}

static int run_begin(struct batch *b, const struct backend_run *run, struct pass *pass)
{
	struct backend_program *program = run->program;

	*pass = (struct pass){.b = b,
			      .program = program,
			      .run = run,
			      .job = *run->job,
			      .left_ns = (double)run->most_ns};
	memcpy(pass->width, program->width, sizeof(pass->width));
	if (run->most_ns)
		program_times_init(&pass->times, program->p, run);
	set_io(run);
	pass->job.shape = &program->p->shape;
	pass->job.io = program->io;
	pass->job.layer = 0;
	return batch_layers_begin(b, &pass->job, inputs_bytes(run->rows), &pass->layers);
}

int program_run(struct batch *b, const struct backend_run *run, struct backend_ran *ret)
{
	struct backend_program *program = run->program;
	bool fits = program_run_fits(program->p, run, &program->progress, PROGRAM_MAX_ROWS);
	struct program_progress progress = {.n_rows = run->rows->n_rows};
	struct pass pass;
	int r;

	if (run->goes_on)
		progress = program->progress;
	program->progress = (struct program_progress){0};
	if (!fits)
		return -EINVAL;
	r = run_begin(b, run, &pass);
	if (r)
		return r;
	r = run_all(&pass, &progress, ret);
	if (r) {
		b->queue.failed = b->queue.failed || r == -EIO;
		batch_layers_drop(&pass.layers);
		return r;
	}
	memcpy(program->width, pass.width, sizeof(pass.width));
	if (!ret->ended)
		program->progress = progress;
	return 0;
}
