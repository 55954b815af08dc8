/*
 * backend.c - what all of the backend's parts rest on: who may wait for the batches' stream, and
 * when a batch may go. Whatever enters leaves no launch standing behind it; a batch gives way to
 * copies that read what it writes.
 */
#include "backend_impl.h"

#include <cuda_runtime_api.h>

bool backend_await_idle(struct backend *b)
{
	if (queue_await(&b->batch.queue) == 0)
		return true;
	peer_give_up(b->batch.peer);
	return false;
}

void backend_enter(struct backend *b)
{
	cudaSetDevice(b->device);
	(void)!stand_leave(&b->batch); /* what needs the queue finds it failed */
}

/* A batch writes to a page that a copy still reads only after that. */
static void await_readers(struct backend *b, const struct backend_job *job)
{
	uint64_t page_bytes = shape_page_bytes(&b->pool, job->shape, NULL, 0);
	uint64_t n_pages = page_bytes ? b->pool.extent_bytes / page_bytes : 0;

	for (uint32_t q = 0; n_pages && q < job->tree->n_queries; q++)
		for (uint32_t i = 0; i < job->io[q].n_slots; i++) {
			uint64_t page = job->io[q].slots[i].page;
			tier_before_write(&b->tier,
					  b->pool.base + page / n_pages * b->pool.extent_bytes +
						  page % n_pages * page_bytes,
					  page_bytes);
		}
}

/* Blocks of attention that found no room would begin when others have ended, and double its
 * time. */
void backend_make_way(struct backend *b, const struct backend_batch *batch)
{
	for (uint32_t i = 0; tier_reads(&b->tier) && i < batch->n_jobs; i++)
		await_readers(b, &batch->jobs[i]);
	if (b->tier.ready)
		b->batch.n_blocks = b->batch.all_blocks - tier_blocks(&b->tier);
}

int backend_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	cudaSetDevice(b->device);
	backend_make_way(b, batch);
	return batch_submit(&b->batch, batch, ret_id);
}
