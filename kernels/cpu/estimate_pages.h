/*
 * estimate_pages.h - the estimates of estimate.h as the CPU's backend makes them: Q from where a
 * step has it, K from its pages, in fp32 and with the vectors of attention. A row of squares is a
 * query whose dimensions are those of all its tokens.
 */
#ifndef COPPICE_CPU_ESTIMATE_PAGES_H
#define COPPICE_CPU_ESTIMATE_PAGES_H

#include "kernels/must_check.h"
#include "kernels/backend.h"
#include "kernels/plan/array.h"
#include "pool.h"
#include "threads.h"

/* As backend_ops.estimate; ret_mass is in room. */
MUST_CHECK int estimate_pages(const struct pool_pages *pages, const struct vec *vec,
			      struct threads *threads, const struct backend_estimate *estimate,
			      struct array *room, const float **ret_mass);

#endif
