/*
 * asked.c - what rows of a program's tokens take, as modelled: products, and attention over their
 * paths. What rows add to those that are taken counts.
 */
#include "asked.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/run/slice.h"

#include "proto/arith.h"

#include <math.h>

static uint32_t n_hidden(const struct room *room, uint32_t n)
{
	uint32_t most = room->model->program->cost.hidden_rows;

	return min_u32(n, most);
}

/* Products of the first n rows, or of as many as take as long. */
static double products_ns(const struct room *room, uint32_t n)
{
	const struct backend_program_cost *cost = &room->model->program->cost;
	uint32_t all = room->program->rows_as(n), few = n_hidden(room, all);

	return few * cost->hidden_row_ns + (all - few) * cost->row_ns;
}

double asked_layer_ns(const struct room *room, const struct asked *a)
{
	return room->fear * work_ns(room->model, a->n_before, 0);
}

/* In all layers. */
static double attention_ns(const struct room *room, const struct asked *a)
{
	return room->model->shape.n_layers * asked_layer_ns(room, a);
}

/* Of its left tokens those before the first one whose results are wanted. */
static uint32_t n_unwanted(const struct asked *a)
{
	const struct decode *d = &a->lane->decode;
	const struct decode_part *part = &d->parts[a->part];
	uint32_t n_done = part->n_new - a->n_left;

	if (!d->want)
		return a->n_left;
	return part->first_wanted > n_done ? part->first_wanted - n_done : 0;
}

uint64_t asked_partials_bytes(const struct room *room, const struct asked *a)
{
	return slice_partials_bytes(&room->model->shape, room->segment_tokens, a->n_before);
}

/* How many rows of it the attention of one layer has time for: devices do not cut it, and it takes
 * no longer than a batch may; but for the first row of a pass (rows_for). */
double asked_in_time(const struct room *room, const struct asked *a)
{
	double left_ns = room->layer_ns - room->attend_ns, each_ns = asked_layer_ns(room, a);

	if (each_ns <= 0)
		return room->rows;
	return left_ns > 0 ? left_ns / each_ns : 0;
}

/* Where attention is cut: for how many there is memory. */
double asked_in_memory(const struct room *room, const struct asked *a)
{
	return fmax((double)SLICE_PARTIALS_BYTES - (double)room->partials_bytes, 0) /
	       (double)asked_partials_bytes(room, a);
}

double asked_results_ns(const struct room *room, uint32_t n_wanted)
{
	return n_wanted > 1 ? (n_wanted - 1) * room->model->program->cost.wanted_ns : 0;
}

uint32_t asked_n_wanted(const struct asked *a, uint32_t n)
{
	uint32_t unwanted = n_unwanted(a);

	return n > unwanted ? n - unwanted : 0;
}

uint32_t asked_attended_as(const struct room *room, uint32_t n)
{
	uint32_t together = room->model->program->cost.attend_rows;

	return together > 0 && n > together ? ceil_div(n, together) * together : n;
}

double asked_rows_ns(const struct room *room, const struct asked *a, uint32_t n)
{
	return products_ns(room, room->n_taken + n) - products_ns(room, room->n_taken) +
	       asked_results_ns(room, room->n_wanted + asked_n_wanted(a, n)) -
	       asked_results_ns(room, room->n_wanted) +
	       asked_attended_as(room, n) * attention_ns(room, a);
}

uint32_t asked_rows_in(const struct room *room, const struct asked *a, double ns, uint32_t n)
{
	uint32_t few = 0;

	if (ns <= 0 || asked_rows_ns(room, a, n) <= ns)
		return ns <= 0 ? 0 : n;
	while (n - few > 1) {
		uint32_t half = few + (n - few) / 2;

		if (asked_rows_ns(room, a, half) <= ns)
			few = half;
		else
			n = half;
	}
	return few;
}

/* The pass with the next n rows of it, for each of these. */
static double each_ns(const struct room *room, const struct asked *a, uint32_t n)
{
	double pass_ns = room->model->program->cost.fixed_ns + room->taken_ns;

	return (pass_ns + asked_rows_ns(room, a, n)) / n;
}

/* Not some rows more than go together with as many products, where it has its tokens sooner with
 * these alone. */
uint32_t asked_whole(const struct room *room, const struct asked *a, uint32_t n)
{
	uint32_t all = room->n_taken + n, fewer = n;

	while (fewer > 0 && room->program->rows_as(room->n_taken + fewer) > all)
		fewer--;
	return fewer > 0 && each_ns(room, a, fewer) < each_ns(room, a, n) ? fewer : n;
}

/* The same, where attention goes by more rows together. */
uint32_t asked_whole_tiles(const struct room *room, const struct asked *a, uint32_t n)
{
	uint32_t together = room->model->program->cost.attend_rows;
	uint32_t fewer = together > 0 ? n / together * together : 0;

	return fewer > 0 && each_ns(room, a, fewer) < each_ns(room, a, n) ? fewer : n;
}
