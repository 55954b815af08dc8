/*
 * slice.c - how many rows of a step go with one batch.
 *
 * Rows of any part may be done one after the other, those of a draft tree too: each sees what came
 * before it, and earlier slices have brought that. What a row takes is modelled (core/turns.h); the
 * budget is kept as well as the model is right.
 */
#include "slice.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/step/step_check.h"
#include "job_tree.h"
#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DEVICE_ROWS 4096u
/* Rows x tokens of a path: with 32 heads of 128 an H200's 6 ms. */
#define SLICE_PAIRS (UINT64_C(192) << 20)

/* What choosing blocks takes, in times that reading the path does: keys are read, put in another
 * order and scored. 12 was seen on a CPU. */
#define ESTIMATE_READS 16.0
#define ESTIMATE_READS_DEVICE 4.0

/* A slice being filled. */
struct filling {
	const struct sched_core *core;
	const struct batch_job *job;
	struct slice *slice;
	uint64_t paths;
	double most_ns;
};

/* Rows of prefill: as many as the configuration wants, and fewer where a long context would make
 * their partials many. What wants rows makes few, and gets more. */
static uint32_t prefill_rows(const struct filling *f, const struct step_part *part)
{
	const struct work_shape *shape = &f->job->model->shape;
	uint64_t end = part->n_seen ? part->n_seen : 1;
	uint64_t row_bytes = slice_partials_bytes(shape, f->job->config.segment_tokens, end);
	uint64_t most = SLICE_PARTIALS_BYTES / row_bytes + 1, least = SLICE_PAIRS / end;
	uint32_t wanted = f->core->config->prefill_rows;

	if (!f->core->ops->wants_rows)
		return (uint32_t)min_u64(most, wanted);
	least = min_u64(least, DEVICE_ROWS);
	return (uint32_t)max_u64(least, wanted);
}

/* Of the left rows of a part so many in each of its slices. A device that gets little at the end
 * has too little to do for all of it. */
static uint32_t even_rows(const struct filling *f, uint32_t left, uint32_t most)
{
	uint32_t n = ceil_div(left, most);

	if (left <= most)
		return left;
	return f->core->ops->wants_rows ? ceil_div(left, n) : most;
}

/* As many of the left rows as there is time for, when the path takes so long. */
static uint32_t rows_in_time(const struct filling *f, const struct step_part *part, uint32_t left,
			     double read_ns)
{
	double room_ns = f->most_ns - f->slice->ns - read_ns;
	double row_ns = work_ns(f->job->model, part->n_seen, 0);

	if (room_ns < row_ns)
		return 0;
	return room_ns >= row_ns * left ? left : (uint32_t)(room_ns / row_ns);
}

/* What choosing blocks for a slice of the part takes, however few its rows are; 0: they are not
 * chosen. Where it takes most of a batch exact attention is sooner done, and keeps others less. */
static double choosing_ns(const struct filling *f, const struct step_part *part, double read_ns)
{
	const struct backend_ops *ops = f->core->ops;
	double ns = (ops->wants_rows ? ESTIMATE_READS_DEVICE : ESTIMATE_READS) * read_ns;

	return ops->estimate && step_may_be_sparse(part) && ns + read_ns <= f->most_ns / 2 ? ns : 0;
}

/* Returns whether there may be room for more, of the next part; or -ENOMEM. */
static int add_rows(struct filling *f, const struct step *step, uint32_t index, uint32_t row)
{
	struct slice *slice = f->slice;
	const struct step_part *part = &step->parts[index];
	uint32_t left = part->n_new - row;
	double read_ns = part_path_ns(f->paths, step->model, part);

	if (slice->n == 0) {
		double chosen_ns = choosing_ns(f, part, read_ns);

		slice->chooses = chosen_ns > 0;
		read_ns += chosen_ns;
		f->most_ns = fmax(f->most_ns, slice->ns + 2 * read_ns);
	}
	uint32_t n = rows_in_time(f, part, left, read_ns);

	if (slice->n == 0 && n == 0)
		n = 1;
	if (step->kind == STEP_PREFILL && !part->seq->parents) {
		uint32_t most = prefill_rows(f, part);
		n = even_rows(f, left, min_u32(n, most));
	}
	if (n == 0)
		return 0;
	if (GROW(slice->rows, slice->room, slice->n + 1) < 0)
		return -ENOMEM;
	slice->rows[slice->n++] = (struct part_rows){part, row, n};
	slice->ns += work_ns(step->model, (double)n * part->n_seen, 0) + read_ns;
	return n == left && step->kind != STEP_PREFILL;
}

int slice_take(struct slice *slice, struct plans *p, const struct batch_job *job,
	       const struct sched_lane *lane)
{
	const struct step *step = &lane->step;
	struct filling f = {.core = p->core,
			    .job = job,
			    .slice = slice,
			    .paths = paths_begin(p),
			    .most_ns = budget_ns(p->core)};
	uint32_t row = step->next_row;
	int r = 1;

	slice->n = 0;
	slice->ns = job->model->cost.fixed_ns;
	for (uint32_t i = step->next_part; i < step->n_parts && r > 0; i++, row = 0)
		r = add_rows(&f, step, i, row);
	return r < 0 ? r : 0;
}

void slice_done(struct slice *slice)
{
	free(slice->rows);
}
