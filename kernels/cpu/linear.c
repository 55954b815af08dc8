/*
 * linear.c - a unit is some outputs of all rows. Its weights stay in the second-level cache while
 * blocks of rows go by, so memory gives them once however many rows there are.
 *
 *      weights   | unit 0 | unit 1 | ...          gated: a unit takes as much of each half
 *      rows      | block | block | ...            of each unit, by product.c
 *
 * An output is computed alike in any unit, so that bits depend neither on the threads nor on where
 * units are cut.
 */
#include "linear.h"

#include "proto/arith.h"

#include <string.h>

#define UNIT_BYTES (256u << 10) /* of weights; beside them stand blocks of rows (product.c) */
#define UNITS_PER_THREAD 4u /* so that the last to end is not late */
#define OUTS_STEP 4u /* outputs that are computed together */
#define ROWS_STEP 16u
/* As many as a unit of 16-bit weights has of 1,024 rows: so one of the fewest outputs has fewer
 * rows where rows are longer than 32,768. */
#define UNIT_FMAS (UNIT_BYTES / 2 * UINT64_C(1024))
#define ALONE_FMAS (1u << 20) /* less than this is done before a worker is awake */

static uint32_t outs_of_all(const struct linear *l)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n_w; i++)
		n += l->w[i].n_out;
	return n;
}

/* Where outputs go: the first of row 0, and how rows follow. */
struct target {
	float *y;
	size_t stride;
	bool add;
};

/* Outputs [first, first + n) of one matrix. */
static void multiply(const struct linear *l, uint32_t which, uint32_t first, uint32_t n,
		     const struct target *to)
{
	const struct rows_matrix part = rows_part(&l->w[which], first, n);
	const float *bias = l->bias[which];

	for (uint32_t r = 0; bias && r < l->n_rows; r++) {
		if (to->add)
			l->rows->add(to->y + r * to->stride, bias + first, n);
		else
			memcpy(to->y + r * to->stride, bias + first, n * sizeof(*bias));
	}
	l->rows->matmul(&(struct rows_product){.x = l->x,
					       .w = &part,
					       .y = to->y,
					       .x_stride = l->x_stride,
					       .y_stride = to->stride,
					       .n_rows = l->n_rows,
					       .add = to->add || bias});
}

/* Outputs [first, end) of all matrices. */
static void outputs(const struct linear *l, uint32_t first, uint32_t end, struct target to)
{
	float *y = to.y;
	uint32_t before = 0;

	for (uint32_t i = 0; i < l->n_w; i++) {
		uint32_t lo = max_u32(first, before), hi = min_u32(end, before + l->w[i].n_out);

		to.y = y + (lo - first);
		if (lo < hi)
			multiply(l, i, lo - before, hi - lo, &to);
		before += l->w[i].n_out;
	}
}

static void plain_unit(const struct linear *l, uint32_t first, uint32_t end)
{
	outputs(l, first, end, (struct target){l->y + first, l->y_stride, l->add});
}

static void gated_unit(const struct linear *l, uint32_t thread, uint32_t first, uint32_t end)
{
	uint32_t n = end - first;
	size_t room = (size_t)l->unit_rows * LINEAR_GATE_OUTS;
	float *gate = l->gates + thread * 2 * room, *up = gate + room;

	outputs(l, first, end, (struct target){gate, n, false});
	outputs(l, l->n_outs + first, l->n_outs + end, (struct target){up, n, false});
	for (uint32_t r = 0; r < l->n_rows; r++, gate += n, up += n) {
		float *y = l->y + r * l->y_stride + first;

		l->rows->gate(l->act, gate, up, n);
		if (l->add)
			l->rows->add(y, gate, n);
		else
			memcpy(y, gate, n * sizeof(*y));
	}
}

void linear_unit(const struct linear *l, uint32_t thread, uint32_t unit)
{
	uint32_t blocks = ceil_div(l->n_rows, l->unit_rows), row = unit % blocks * l->unit_rows;
	uint32_t first = unit / blocks * l->unit_outs;
	uint32_t end = min_u32(first + l->unit_outs, l->n_outs);
	struct linear some = *l;

	some.x += row * l->x_stride;
	some.y += row * l->y_stride;
	some.n_rows = min_u32(l->unit_rows, l->n_rows - row);
	if (l->gated)
		gated_unit(&some, thread, first, end);
	else
		plain_unit(&some, first, end);
}

static uint32_t choose_outs(const struct linear *l, uint32_t n_threads)
{
	const struct rows_matrix *w = &l->w[0];
	uint64_t row_bytes = w->n_in * work_dtype_bytes(w->dtype);
	uint64_t most = l->gated ? LINEAR_GATE_OUTS : UINT32_MAX;
	uint64_t outs = min_u64(UNIT_BYTES / row_bytes, most);
	uint32_t enough = l->n_outs / (n_threads * UNITS_PER_THREAD);

	outs = min_u64(outs, enough) / OUTS_STEP * OUTS_STEP;
	return (uint32_t)max_u64(outs, OUTS_STEP);
}

/* All, but where the fewest outputs of so many would take long. */
static uint32_t choose_rows(const struct linear *l)
{
	uint64_t most = UNIT_FMAS / ((uint64_t)OUTS_STEP * l->w[0].n_in);

	return (uint32_t)min_u64(max_u64(most, ROWS_STEP), l->n_rows);
}

void linear_cut(struct linear *l, uint32_t n_threads)
{
	uint32_t n_outs = outs_of_all(l);

	l->n_outs = l->gated ? n_outs / 2 : n_outs;
	l->unit_outs = choose_outs(l, n_threads);
	l->unit_rows = choose_rows(l);
	l->n_units = ceil_div(l->n_outs, l->unit_outs) * ceil_div(l->n_rows, l->unit_rows);
	l->alone = (uint64_t)n_outs * l->w[0].n_in * l->n_rows < ALONE_FMAS;
}
