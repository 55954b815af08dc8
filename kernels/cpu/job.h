/* job.h - runs a job: append, then attention. */
#ifndef COPPICE_CPU_JOB_H
#define COPPICE_CPU_JOB_H

#include "state.h"

/* There is room for it (attend_reserve). */
void job_run(struct backend *b, const struct backend_job *job);
/* The same in parts: begun, with its new tokens where they belong; then a's folds and merges are
 * left to do. */
void job_begin(struct backend *b, struct attend *a, const struct backend_job *job,
	       const struct pool_pages *pages);
/* Pages of a job's shape: until a job of another one has its own. */
const struct pool_pages *job_pages(struct backend *b, const struct work_shape *shape);
/* Rows are about to be written to a page: copies of it come first. */
void job_await_page(struct backend *b, const struct pool_pages *pages, uint32_t page);

#endif
