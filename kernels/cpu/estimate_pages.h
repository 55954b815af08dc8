/*
 * estimate_pages.h - the CPU's backend estimates: Q from where a step has it and K from its pages, by the book of
 * estimate.h.
 */
#ifndef COPPICE_CPU_ESTIMATE_PAGES_H
#define COPPICE_CPU_ESTIMATE_PAGES_H

#include "../backend.h"
#include "pool.h"
#include "threads.h"

/* As backend_ops.estimate. */
int estimate_pages(const struct pool_pages *pages, const struct vec *vec, struct threads *threads,
		   const struct backend_estimate *estimate, float *ret_mass);

#endif
