/*
 * attend.c - see attend.h. A row all of whose KV lies in one item is written by the unit that
 * folded it; the others leave partials, which are merged in listed order when all units are done. A
 * row of an item that sees none of its keys has no partial listed there.
 */
#include "attend.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_NS 100e3 /* less than this is done before a sleeping worker has earned its wake-up */
#define UNITS_PER_THREAD 8 /* so that the last to end is not late */
#define KEY_ROWS 4 /* what reading a key costs, in rows of arithmetic */

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

void attend_init_beside(struct attend *a, const struct attend *other)
{
	*a = (struct attend){.vec = other->vec,
			     .threads = other->threads,
			     .states = other->states,
			     .is_beside = true};
}

static void states_free(struct attend *a)
{
	for (uint32_t i = 0; a->states && i < threads_count(a->threads); i++)
		fold_state_done(&a->states[i]);
	free(a->states);
}

void attend_done(struct attend *a)
{
	if (!a->is_beside)
		states_free(a);
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
	return ceil_div(item->row_end - item->row_begin, tokens);
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
	const struct work_item *item = &list->items[unit->item];

	for (uint32_t i = 0; i < item->n_tiles; i++) {
		const struct work_tile *tile = &list->tiles[item->tile + i];
		uint32_t lo = max_u32(tile->row_begin, unit->begin);
		uint32_t hi = min_u32(tile->row_end, unit->end);
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

			*unit = (struct attend_unit){.item = i, .begin = row, .end = end};
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
		  uint32_t q_head, const struct attend_sums *sums)
{
	const struct work_shape *shape = job->shape;
	const struct work_row *at = &job->list->rows[row];
	const struct backend_io *io = &job->io[at->query];
	uint64_t head_bytes = shape->head_dim * work_dtype_bytes(shape->dtype);

	if (!io->o)
		return;
	vec->narrow[shape->dtype]((void *)(uintptr_t)(io->o + at->token * io->o_stride +
						      q_head * head_bytes),
				  sums->o, shape->head_dim, merge_scale(&sums->state));
	if (io->lse) {
		float lse = merge_lse(&sums->state);

		memcpy((char *)(uintptr_t)(io->lse + at->token * io->lse_stride) +
			       q_head * sizeof(lse),
		       &lse, sizeof(lse));
	}
}

/* q_head: of all query heads. */
static void leave_row(const struct attend_job *run, uint32_t row, uint32_t q_head,
		      const struct attend_sums *sums)
{
	const struct work_shape *shape = run->job->shape;
	size_t entry = (size_t)row * shape->n_q_heads + q_head;
	float *to = (float *)(uintptr_t)run->job->parts;

	if (!to) {
		attend_write(run->a->vec, run->job, row, q_head, sums);
		return;
	}
	to += entry * (2 + shape->head_dim);
	memcpy(to, &sums->state, sizeof(sums->state));
	memcpy(to + 2, sums->o, shape->head_dim * sizeof(*sums->o));
}

static struct merge_state *part_state(const struct attend_job *run, size_t entry)
{
	return (struct merge_state *)run->a->parts + entry;
}

static float *part_o(const struct attend_job *run, size_t entry)
{
	return run->a->parts + n_entries(run->job) * 2 + entry * run->job->shape->head_dim;
}

static void keep_part(const struct attend_job *run, size_t entry, const struct attend_sums *sums)
{
	*part_state(run, entry) = sums->state;
	memcpy(part_o(run, entry), sums->o, run->job->shape->head_dim * sizeof(float));
}

/* Rows of one KV head of a unit, which stand at first in state. */
static void finish_head(const struct attend_job *run, const struct attend_unit *unit,
			const struct fold_state *state, uint32_t head, uint32_t first)
{
	const struct work_list *list = run->job->list;
	uint32_t group = group_of(run->job->shape), dim = run->job->shape->head_dim;
	const struct work_item *item = &list->items[unit->item];

	for (uint32_t i = 0; i < (unit->end - unit->begin) * group; i++) {
		uint32_t row = unit->begin + i / group, n = n_parts_of(list, row);
		struct attend_sums sums = {
			{state->max[first + i], fold_sum(state, first + i)},
			state->o + (size_t)(first + i) * dim,
		};
		size_t part = item->part + row - item->row_begin;

		if (n > 1)
			keep_part(run, (head * (size_t)list->n_parts + part) * group + i % group,
				  &sums);
		else if (n == 1 && list->merge_parts[list->merge_first[row]] == part)
			leave_row(run, row, head * group + i % group, &sums);
	}
}

void attend_fold(void *arg, uint32_t thread, uint32_t index)
{
	const struct attend_job *run = arg;
	const struct attend *a = run->a;
	const struct attend_unit *unit = &a->units[index / a->unit_splits];
	struct fold_state *state = &a->states[thread];
	uint32_t head = index % a->unit_splits * a->unit_heads, group = group_of(run->job->shape);
	uint32_t left = backend_job_heads(run->job) - head, first = run->job->head + head;
	uint32_t stride = fold_stride(group, (unit->end - unit->begin) * group);
	struct fold fold = {
		.vec = a->vec,
		.pages = run->pages,
		.job = run->job,
		.item = &run->job->list->items[unit->item],
		.head = first,
		.n_heads = min_u32(left, a->unit_heads),
		.begin = unit->begin,
		.end = unit->end,
	};

	fold_run(&fold, state);
	for (uint32_t h = 0; h < fold.n_heads; h++)
		finish_head(run, unit, state, first + h, h * stride);
}

uint32_t attend_n_folds(const struct attend_job *run)
{
	return run->a->n_units * run->a->unit_splits;
}

/* The blocks of a page's KV heads lie side by side: a unit of few rows takes several heads, as
 * memory is read fastest in order, unless too few units would be left for the threads. */
static void choose_heads(struct attend *a, const struct backend_job *job)
{
	uint32_t n_heads = backend_job_heads(job), group = group_of(job->shape), most = 1;
	uint32_t enough = UNITS_PER_THREAD * threads_count(a->threads);

	for (uint32_t i = 0; i < a->n_units; i++)
		most = max_u32(most, a->units[i].end - a->units[i].begin);
	a->unit_heads = min_u32(FOLD_ROWS / fold_stride(group, most * group), n_heads);
	while (a->unit_heads > 1 && (uint64_t)a->n_units * (n_heads / a->unit_heads) < enough)
		a->unit_heads--;
	a->unit_splits = ceil_div(n_heads, a->unit_heads);
}

/* Unit: one row that has no partial or several, one KV head. */
void attend_merge(void *arg, uint32_t thread, uint32_t index)
{
	const struct attend_job *run = arg;
	const struct work_list *list = run->job->list;
	uint32_t n_heads = backend_job_heads(run->job), head = run->job->head + index % n_heads;
	uint32_t row = run->a->merges[index / n_heads], dim = run->job->shape->head_dim;
	uint32_t group = group_of(run->job->shape);
	float *o = run->a->states[thread].line;

	for (uint32_t i = 0; i < group; i++) {
		struct attend_sums sums = {.o = o};

		merge_empty(&sums.state, o, dim);
		for (uint32_t p = list->merge_first[row]; p < list->merge_first[row + 1]; p++) {
			size_t part = head * (size_t)list->n_parts + list->merge_parts[p];
			size_t entry = part * group + i;

			merge_fold(&sums.state, o, part_state(run, entry), part_o(run, entry), dim);
		}
		leave_row(run, row, head * group + i, &sums);
	}
}

uint32_t attend_n_merges(const struct attend_job *run)
{
	return run->a->n_merges * backend_job_heads(run->job);
}

static uint64_t sum_bytes(uint64_t sum, const void *at, size_t n)
{
	const uint32_t *words = at;

	for (size_t i = 0; i < n / sizeof(*words); i++)
		sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) + (sum >> 29);
	return sum;
}

/* Of which rows fold which tiles, and what is merged: pieces say no more than where KV lies. */
static uint64_t sum_list(const struct work_list *list)
{
	uint32_t n_rows = list->n_rows;
	uint64_t sum = sum_bytes(n_rows, list->rows, n_rows * sizeof(*list->rows));

	if (n_rows == 0)
		return 0;
	sum = sum_bytes(sum, list->items, list->n_items * sizeof(*list->items));
	sum = sum_bytes(sum, list->merge_first, (n_rows + 1) * sizeof(*list->merge_first));
	return sum_bytes(sum, list->merge_parts,
			 list->merge_first[n_rows] * sizeof(*list->merge_parts));
}

static bool is_same_plan(const struct attend *a, const struct backend_job *job)
{
	return job->plan_id && job->plan_id == a->plan_id;
}

void attend_remember(struct attend *a, const struct backend_job *job)
{
	if (is_same_plan(a, job))
		return;
	a->plan_id = job->plan_id;
	a->sum = sum_list(job->list);
}

bool attend_is_of(const struct attend *a, const struct backend_job *job)
{
	return is_same_plan(a, job) || sum_list(job->list) == a->sum;
}

uint64_t attend_begin(struct attend *a, const struct backend_job *job)
{
	uint64_t keys = 0, work = 0;

	make_units(a, job);
	make_merges(a, job);
	choose_heads(a, job);
	for (uint32_t i = 0; i < a->n_units; i++) {
		keys += a->units[i].keys;
		work += a->units[i].work;
	}
	a->alone = (double)work * backend_job_heads(job) * group_of(job->shape) *
			   job->shape->head_dim * 2 * a->vec->fma_ns <
		   ALONE_NS;
	return keys;
}
