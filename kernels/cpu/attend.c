/*
 * attend.c - see attend.h. A row all of whose KV lies in one item is written by the unit that
 * folded it; the others leave partials, which are merged in listed order when all units are done. A
 * row of an item that sees none of its keys has no partial listed there.
 */
#include "attend.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_NS 100e3 /* less than this is done before a sleeping worker has earned its wake-up */
#define UNITS_PER_THREAD 8 /* so that the last to end is not late */
#define KEY_ROWS 4 /* what reading a key costs, in rows of arithmetic */

struct run {
	const struct attend *a;
	const struct backend_job *job;
	const struct pool_pages *pages;
	uint32_t group;
	uint32_t unit_heads; /* KV heads that a unit takes */
	uint32_t unit_splits; /* units that an item's heads are dealt to */
};

int attend_init(struct attend *a, const struct vec *vec, struct threads *threads)
{
	uint32_t n = threads_count(threads);

	*a = (struct attend){.vec = vec, .threads = threads};
	a->states = calloc(n, sizeof(*a->states));
	if (!a->states)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		if (fold_state_init(&a->states[i]) != 0)
			return -ENOMEM;
	}
	return 0;
}

void attend_done(struct attend *a)
{
	for (uint32_t i = 0; a->states && i < threads_count(a->threads); i++)
		fold_state_done(&a->states[i]);
	free(a->states);
	free(a->units);
	free(a->parts);
	free(a->merges);
	*a = (struct attend){0};
}

static int reserve(void **at, size_t *room, size_t n, size_t size)
{
	if (n <= *room)
		return 0;

	size_t more = n + n / 2;
	void *grown = realloc(*at, more * size);

	if (!grown)
		return -ENOMEM;
	*at = grown;
	*room = more;
	return 0;
}

static uint32_t group_of(const struct work_shape *shape)
{
	return shape->n_q_heads / shape->n_kv_heads;
}

static uint32_t n_parts_of(const struct work_list *list, uint32_t row)
{
	return list->merge_first[row + 1] - list->merge_first[row];
}

static uint32_t units_of_item(const struct work_item *item, uint32_t tokens)
{
	return (item->row_end - item->row_begin + tokens - 1) / tokens;
}

static bool merges_any(const struct work_list *list)
{
	for (uint32_t row = 0; row < list->n_rows; row++) {
		if (n_parts_of(list, row) > 1)
			return true;
	}
	return false;
}

/* Partial p, KV head h, head i of its group: entry (h * n_parts + p) * group + i. */
static size_t n_entries(const struct backend_job *job)
{
	return (size_t)job->list->n_parts * job->shape->n_q_heads;
}

int attend_reserve(struct attend *a, const struct backend_job *job)
{
	uint32_t tokens = fold_tokens(group_of(job->shape));
	size_t units = 0, parts = 0;

	for (uint32_t i = 0; i < job->list->n_items; i++)
		units += units_of_item(&job->list->items[i], tokens);
	if (merges_any(job->list))
		parts = n_entries(job) * (2 + job->shape->head_dim);
	if (reserve((void **)&a->units, &a->units_room, units, sizeof(*a->units)) != 0 ||
	    reserve((void **)&a->parts, &a->parts_room, parts, sizeof(*a->parts)) != 0 ||
	    reserve((void **)&a->merges, &a->merges_room, job->list->n_rows, sizeof(*a->merges)))
		return -ENOMEM;
	return 0;
}

/* Keys and work of the tiles that rows [begin, end) meet. */
static void unit_weigh(const struct work_list *list, struct attend_unit *unit)
{
	for (uint32_t i = 0; i < unit->item->n_tiles; i++) {
		const struct work_tile *tile = &list->tiles[unit->item->tile + i];
		uint32_t lo = tile->row_begin > unit->begin ? tile->row_begin : unit->begin;
		uint32_t hi = tile->row_end < unit->end ? tile->row_end : unit->end;
		uint64_t keys = 0;

		if (lo >= hi)
			continue;
		for (uint32_t p = 0; p < tile->n_pieces; p++) {
			const struct work_piece *piece = &list->pieces[tile->piece + p];

			if (piece->row_begin < unit->end && unit->begin < piece->row_end)
				keys += piece->count;
		}
		unit->keys += keys;
		unit->work += keys * (hi - lo + KEY_ROWS);
	}
}

static bool wanted(const struct backend_job *job, uint32_t begin, uint32_t end)
{
	for (uint32_t row = begin; row < end; row++) {
		if (job->io[job->list->rows[row].query].o)
			return true;
	}
	return false;
}

static int unit_compare(const void *a, const void *b)
{
	const struct attend_unit *x = a, *y = b;

	if (x->work != y->work)
		return x->work < y->work ? 1 : -1;
	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void make_units(struct attend *a, const struct backend_job *job)
{
	uint32_t tokens = fold_tokens(group_of(job->shape));

	a->n_units = 0;
	for (uint32_t i = 0; i < job->list->n_items; i++) {
		const struct work_item *item = &job->list->items[i];

		for (uint32_t row = item->row_begin; row < item->row_end; row += tokens) {
			struct attend_unit *unit = &a->units[a->n_units];
			uint32_t end = item->row_end - row < tokens ? item->row_end : row + tokens;

			*unit = (struct attend_unit){.item = item, .begin = row, .end = end};
			if (!wanted(job, row, end))
				continue;
			unit_weigh(job->list, unit);
			a->n_units++;
		}
	}
	if (a->n_units > 1)
		qsort(a->units, a->n_units, sizeof(*a->units), unit_compare);
}

/* Rows that no unit can write by itself. */
static void make_merges(struct attend *a, const struct backend_job *job)
{
	a->n_merges = 0;
	for (uint32_t row = 0; row < job->list->n_rows; row++) {
		if (n_parts_of(job->list, row) != 1 && job->io[job->list->rows[row].query].o)
			a->merges[a->n_merges++] = row;
	}
}

void attend_write(const struct vec *vec, const struct backend_job *job, uint32_t row,
		  uint32_t q_head, const struct merge_state *state, const float *o)
{
	const struct work_shape *shape = job->shape;
	const struct work_row *at = &job->list->rows[row];
	const struct backend_io *io = &job->io[at->query];
	uint64_t head_bytes = shape->head_dim * work_dtype_bytes(shape->dtype);

	if (!io->o)
		return;
	vec->narrow[shape->dtype]((void *)(uintptr_t)(io->o + at->token * io->o_stride +
						      q_head * head_bytes),
				  o, shape->head_dim, merge_scale(state));
	if (io->lse) {
		float lse = merge_lse(state);

		memcpy((char *)(uintptr_t)(io->lse + at->token * io->lse_stride) +
			       q_head * sizeof(lse),
		       &lse, sizeof(lse));
	}
}

/* q_head: of all query heads. */
static void leave_row(const struct run *run, uint32_t row, uint32_t q_head,
		      const struct merge_state *state, const float *o)
{
	const struct work_shape *shape = run->job->shape;
	size_t entry = (size_t)row * shape->n_q_heads + q_head;
	float *to = (float *)(uintptr_t)run->job->parts;

	if (!to) {
		attend_write(run->a->vec, run->job, row, q_head, state, o);
		return;
	}
	to += entry * (2 + shape->head_dim);
	memcpy(to, state, sizeof(*state));
	memcpy(to + 2, o, shape->head_dim * sizeof(*o));
}

static struct merge_state *part_state(const struct run *run, size_t entry)
{
	return (struct merge_state *)run->a->parts + entry;
}

static float *part_o(const struct run *run, size_t entry)
{
	return run->a->parts + n_entries(run->job) * 2 + entry * run->job->shape->head_dim;
}

static void keep_part(const struct run *run, size_t entry, const struct merge_state *state,
		      const float *o)
{
	*part_state(run, entry) = *state;
	memcpy(part_o(run, entry), o, run->job->shape->head_dim * sizeof(float));
}

/* Rows of one KV head of a unit, which stand at first in state. */
static void finish_head(const struct run *run, const struct attend_unit *unit,
			const struct fold_state *state, uint32_t head, uint32_t first)
{
	const struct work_list *list = run->job->list;
	uint32_t group = run->group, dim = run->job->shape->head_dim;

	for (uint32_t i = 0; i < (unit->end - unit->begin) * group; i++) {
		uint32_t row = unit->begin + i / group, n = n_parts_of(list, row);
		struct merge_state sums = {state->max[first + i], fold_sum(state, first + i)};
		const float *o = state->o + (size_t)(first + i) * dim;
		size_t part = unit->item->part + row - unit->item->row_begin;

		if (n > 1)
			keep_part(run, (head * (size_t)list->n_parts + part) * group + i % group,
				  &sums, o);
		else if (n == 1 && list->merge_parts[list->merge_first[row]] == part)
			leave_row(run, row, head * group + i % group, &sums, o);
	}
}

static void unit_run(void *arg, uint32_t thread, uint32_t index)
{
	const struct run *run = arg;
	const struct attend_unit *unit = &run->a->units[index / run->unit_splits];
	struct fold_state *state = &run->a->states[thread];
	uint32_t head = index % run->unit_splits * run->unit_heads;
	uint32_t left = backend_job_heads(run->job) - head, first = run->job->head + head;
	uint32_t stride = fold_stride(run->group, (unit->end - unit->begin) * run->group);
	struct fold fold = {
		.vec = run->a->vec,
		.pages = run->pages,
		.job = run->job,
		.item = unit->item,
		.head = first,
		.n_heads = left < run->unit_heads ? left : run->unit_heads,
		.begin = unit->begin,
		.end = unit->end,
	};

	fold_run(&fold, state);
	for (uint32_t h = 0; h < fold.n_heads; h++)
		finish_head(run, unit, state, first + h, h * stride);
}

/* The blocks of a page's KV heads lie side by side: a unit of few rows takes several heads, as
 * memory is read fastest in order, unless too few units would be left for the threads. */
static void choose_heads(struct run *run)
{
	uint32_t n_heads = backend_job_heads(run->job), most = 1;
	uint32_t enough = UNITS_PER_THREAD * threads_count(run->a->threads);

	for (uint32_t i = 0; i < run->a->n_units; i++) {
		uint32_t rows = run->a->units[i].end - run->a->units[i].begin;

		most = rows > most ? rows : most;
	}
	run->unit_heads = FOLD_ROWS / fold_stride(run->group, most * run->group);
	run->unit_heads = run->unit_heads < n_heads ? run->unit_heads : n_heads;
	while (run->unit_heads > 1 &&
	       (uint64_t)run->a->n_units * (n_heads / run->unit_heads) < enough)
		run->unit_heads--;
	run->unit_splits = (n_heads + run->unit_heads - 1) / run->unit_heads;
}

/* Unit: one row that has no partial or several, one KV head. */
static void merge_run(void *arg, uint32_t thread, uint32_t index)
{
	const struct run *run = arg;
	const struct work_list *list = run->job->list;
	uint32_t n_heads = backend_job_heads(run->job), head = run->job->head + index % n_heads;
	uint32_t row = run->a->merges[index / n_heads], dim = run->job->shape->head_dim;
	float *o = run->a->states[thread].line;

	for (uint32_t i = 0; i < run->group; i++) {
		struct merge_state state;

		merge_empty(&state, o, dim);
		for (uint32_t p = list->merge_first[row]; p < list->merge_first[row + 1]; p++) {
			size_t entry =
				(head * (size_t)list->n_parts + list->merge_parts[p]) * run->group +
				i;

			merge_fold(&state, o, part_state(run, entry), part_o(run, entry), dim);
		}
		leave_row(run, row, head * run->group + i, &state, o);
	}
}

void attend_run(struct attend *a, const struct backend_job *job, const struct pool_pages *pages,
		uint64_t *ret_keys)
{
	struct run run = {.a = a, .job = job, .pages = pages, .group = group_of(job->shape)};
	uint32_t n_heads = backend_job_heads(job);
	uint64_t keys = 0, work = 0;

	make_units(a, job);
	make_merges(a, job);
	choose_heads(&run);
	for (uint32_t i = 0; i < a->n_units; i++) {
		keys += a->units[i].keys;
		work += a->units[i].work;
	}

	double ns = (double)work * n_heads * run.group * job->shape->head_dim * 2 * a->vec->fma_ns;
	bool alone = ns < ALONE_NS;

	threads_run(a->threads, unit_run, &run, a->n_units * run.unit_splits, alone);
	threads_run(a->threads, merge_run, &run, a->n_merges * n_heads, alone);
	*ret_keys = keys;
}
