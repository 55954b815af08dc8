/*
 * estimate_pages.h - the estimates of estimate.h as the CPU's backend makes them: Q from where a step has it, K from its pages,
 * in fp32 and with the vectors of attention. A row of squares is a query whose dimensions are those of all its tokens.
 */
#ifndef COPPICE_CPU_ESTIMATE_PAGES_H
#define COPPICE_CPU_ESTIMATE_PAGES_H

#include "../backend.h"
#include "pool.h"
#include "threads.h"

/* All zero: nothing yet. Grows, and is kept. */
struct estimate_room {
	float *mass; /* owned */
	size_t n_room;
};

/* As backend_ops.estimate; the masses go to the room's. */
int estimate_pages(const struct pool_pages *pages, const struct vec *vec, struct threads *threads,
		   const struct backend_estimate *estimate, struct estimate_room *room);

#endif
