/*
 * rows.c - rows of a pass as a program has them: token, position, and what is wanted of it. They
 * stand in the order of the job's parts, which is that of lanes and their parts; who is absent has
 * a row there too.
 */
#include "rows.h"

#include "daemon/base/grow.h"

#include <errno.h>

static int row_want(struct passes *p, const struct decode *d, const struct decode_part *part,
		    uint32_t at, uint32_t row)
{
	uint32_t n = p->rows.n_wanted;

	if (!d->want || at < part->first_wanted)
		return 0;
	if (GROW(p->wanted, p->wanted_room, n + 1) < 0)
		return -ENOMEM;
	p->wanted[n] = (struct program_wanted){
		.row = row,
		.want = d->want,
		.n_top = d->n_top,
		.next = !d->parents && at + 1 < part->n_new ? d->ids[part->first_id + at + 1]
							    : PROGRAM_NONE,
		.out = d->out + (uint64_t)(part->first_out + at - part->first_wanted) * d->stride,
	};
	p->rows.n_wanted++;
	return 0;
}

/* Of a draft it is as far from the sequence as it is deep. */
static uint32_t depth_of(const uint32_t *parents, uint32_t i)
{
	uint32_t depth = 0;

	for (; parents[i] != WORK_NONE; i = parents[i])
		depth++;
	return depth;
}

/* Of the pass's row i of a part. */
static uint32_t position_of(const struct step_part *step, const struct decode *d,
			    const struct decode_part *part, uint32_t i)
{
	uint32_t n_before = store_seq_n_tokens(step->seq->store);

	return n_before +
	       (d->parents ? depth_of(d->parents + part->first_id, part->n_done + i) : i);
}

static int add_rows(struct passes *p, const struct sched_lane *lane, uint32_t index)
{
	const struct step_part *step = &lane->step.parts[index];
	const struct decode *d = &lane->decode;
	const struct decode_part *part = &d->parts[index];
	uint32_t row = p->rows.n_rows;
	int r = 0;

	if (GROW(p->ids, p->ids_room, row + step->n_new + 1) < 0 ||
	    GROW(p->positions, p->positions_room, row + step->n_new + 1) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < step->n_new && r == 0; i++, row++) {
		p->ids[row] = d->ids[part->first_id + part->n_done + i];
		p->positions[row] = position_of(step, d, part, i);
		r = row_want(p, d, part, part->n_done + i, row);
	}
	p->rows.n_rows = row;
	return r;
}

/* Of a sequence that has no new token: nobody wants it, whatever its id. */
static int add_absent_row(struct passes *p, const struct step_part *part)
{
	uint32_t row = p->rows.n_rows;

	if (GROW(p->ids, p->ids_room, row + 1) < 0 ||
	    GROW(p->positions, p->positions_room, row + 1) < 0)
		return -ENOMEM;
	p->ids[row] = 0;
	p->positions[row] = store_seq_n_tokens(part->seq->store) - 1;
	p->rows.n_rows++;
	return 0;
}

/* Of those from part n on, up to the next one that has come. */
static int add_absent_rows(struct passes *p, uint32_t *n)
{
	int r = 0;

	for (; *n < p->now->job.n_parts && p->now->job.parts[*n]->n_new == 0 && r == 0; ++*n)
		r = add_absent_row(p, p->now->job.parts[*n]);
	return r;
}

int rows_collect(struct passes *p)
{
	const struct batch_job *job = &p->now->job;
	uint32_t n = 0;
	int r;

	p->rows = (struct program_rows){0};
	r = add_absent_rows(p, &n);
	for (uint32_t i = 0; i < job->n_lanes; i++)
		for (uint32_t j = 0; j < job->lanes[i]->step.n_parts && r == 0; j++) {
			if (job->lanes[i]->step.parts[j].n_new == 0)
				continue;
			r = add_rows(p, job->lanes[i], j);
			n++;
			if (r == 0)
				r = add_absent_rows(p, &n);
		}
	p->rows.ids = p->ids;
	p->rows.positions = p->positions;
	p->rows.wanted = p->wanted;
	return r;
}
