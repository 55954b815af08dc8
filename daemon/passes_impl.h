/*
 * passes_impl.h - between the parts of passes: passes.c decides which there are and brings what they need, passes_view.c makes
 * one into a job.
 */
#ifndef COPPICED_PASSES_IMPL_H
#define COPPICED_PASSES_IMPL_H

#include "passes.h"

#include "sched_impl.h"
#include "step.h"

/* Of all members. */
static inline uint32_t passes_n_rows(const struct passes *p)
{
	const struct passes_member *last;

	if (p->n_members == 0)
		return 0;
	last = &p->members[p->n_members - 1];
	return last->first_row + last->n_rows;
}

/* Of a page. */
static inline uint64_t passes_layer_bytes(const struct passes *p)
{
	return p->model->page_bytes / p->model->shape.n_layers;
}

/* The stage's pages are of one layer: all layers' parts of a page lie one after the other. */
static inline uint32_t passes_extent_pages(const struct sched *s)
{
	return (uint32_t)(s->config->extent_bytes / passes_layer_bytes(&s->passes));
}

static inline const struct gather *passes_gather(const struct passes *p,
						 const struct passes_pass *pass)
{
	return &p->members[pass->member == PASSES_ALL ? 0 : pass->member].gather;
}

/* Submits the next pass, whose slices are there. 0, -ENOMEM, or what the backend says. */
int passes_submit(struct sched *s);

#endif
