/*
 * job.c - a job's way on the CPU: copies leave the pages that it writes to, new tokens go to them,
 * then its rows attend. Counts what it read.
 */
#include "job.h"
#include "append.h"

#include <string.h>

void job_await_page(struct backend *b, const struct pool_pages *pages, uint32_t page)
{
	if (b->mover && page < pages->n_pages)
		mover_await(b->mover, pool_block(pages, page, 0, 0), pages->page_bytes);
}

static void await_slots(struct backend *b, const struct pool_pages *pages,
			const struct backend_job *job)
{
	for (uint32_t q = 0; b->mover && q < job->tree->n_queries; q++)
		for (uint32_t i = 0; i < job->io[q].n_slots; i++)
			job_await_page(b, pages, job->io[q].slots[i].page);
}

const struct pool_pages *job_pages(struct backend *b, const struct work_shape *shape)
{
	if (b->pages.n_pages == 0 || memcmp(&b->pages_shape, shape, sizeof(*shape)) != 0) {
		pool_pages_init(&b->pages, &b->pool, shape, b->vec);
		b->pages_shape = *shape;
	}
	return &b->pages;
}

void job_begin(struct backend *b, struct attend *a, const struct backend_job *job,
	       const struct pool_pages *pages)
{
	const struct work_shape *shape = job->shape;
	uint64_t key_bytes =
		2 * (uint64_t)shape->head_dim * work_dtype_bytes(shape->dtype) * shape->n_kv_heads;

	await_slots(b, pages, job);
	append_job(pages, b->threads, job);
	b->counters.rows += job->list->n_rows;
	b->counters.kv_bytes_read += attend_begin(a, job) * key_bytes;
	b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
}

void job_run(struct backend *b, const struct backend_job *job)
{
	struct attend_job run = {&b->attend, job, job_pages(b, job->shape)};

	job_begin(b, &b->attend, job, run.pages);
	threads_run(b->threads, attend_fold, &run, attend_n_folds(&run), b->attend.alone);
	threads_run(b->threads, attend_merge, &run, attend_n_merges(&run), b->attend.alone);
}
