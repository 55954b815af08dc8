/* append.h - writes K and V of new tokens into their pages, and copies rows from page to page. */
#ifndef COPPICE_CPU_APPEND_H
#define COPPICE_CPU_APPEND_H

#include "kernels/backend.h"
#include "pool.h"
#include "threads.h"

/* What the io of a job's queries says goes to pages. The rows of one KV head are written by one
 * thread. */
void append_job(const struct pool_pages *pages, struct threads *threads,
		const struct backend_job *job);

/* One row, all layers and heads. */
void append_move(const struct pool_pages *pages, const struct work_shape *shape,
		 const struct backend_move *move);

#endif
