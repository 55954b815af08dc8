/*
 * queue.c - see queue.h. A buffer is replaced only when nothing runs that could be using it, and
 * only once there is a new one; an error that was seen is never overwritten by what follows from
 * it.
 */
#include "queue.h"
#include "bring.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <sched.h>

int queue_init(struct queue *q)
{
	*q = (struct queue){0};
	return cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking) == cudaSuccess
		       ? 0
		       : -ENOMEM;
}

void queue_done(struct queue *q)
{
	if (q->stream)
		cudaStreamDestroy(q->stream);
	*q = (struct queue){0};
}

int queue_expect(struct queue *q, int r)
{
	if (r == cudaSuccess)
		return 0;
	if (q->error == cudaSuccess)
		q->error = r;
	return -EIO;
}

bool queue_settles(const struct queue *q, uint64_t limit_ns)
{
	uint64_t deadline_ns = clock_now_ns() + limit_ns;
	cudaError_t r;

	while ((r = cudaStreamQuery(q->stream)) == cudaErrorNotReady &&
	       clock_now_ns() < deadline_ns)
		sched_yield();
	cudaGetLastError();
	return r != cudaErrorNotReady;
}

int queue_await(struct queue *q)
{
	if (q->patience_ns && (q->stuck || !queue_settles(q, q->patience_ns))) {
		q->failed = q->stuck = true;
		return queue_expect(q, cudaErrorTimeout);
	}
	return queue_expect(q, cudaStreamSynchronize(q->stream));
}

/* ---- memory --------------------------------------------------------------------------------- */

size_t queue_room(size_t bytes)
{
	size_t room = bytes + bytes / 2;

	if (room <= QUEUE_GRANULE / 2)
		return room;
	return round_up(bytes, QUEUE_GRANULE);
}

static int grow(struct queue *q, struct queue_buffer *buffer, size_t bytes, bool pinned)
{
	void *at = NULL;

	if (queue_await(q) != 0)
		return -EIO;
	if ((pinned ? cudaMallocHost(&at, bytes) : cudaMalloc(&at, bytes)) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	if (pinned)
		cudaFreeHost(buffer->at);
	else
		cudaFree(buffer->at);
	*buffer = (struct queue_buffer){at, bytes};
	return 0;
}

int queue_grow(struct queue *q, struct queue_buffer *buffer, size_t bytes)
{
	return bytes <= buffer->bytes ? 0 : grow(q, buffer, queue_room(bytes), false);
}

int queue_grow_pinned(struct queue *q, struct queue_buffer *buffer, size_t bytes)
{
	return bytes <= buffer->bytes ? 0 : grow(q, buffer, bytes + bytes / 2, true);
}

int queue_bring(struct queue *q, void *to, const void *from, size_t bytes)
{
	const struct device_bring copy = {.from = (uintptr_t)from,
					  .to = (uintptr_t)to,
					  .row_bytes = bytes,
					  .n_rows = 1};

	return queue_expect(q, device_bring(&copy, q->stream));
}

/* ---- chains --------------------------------------------------------------------------------- */

void queue_record(struct queue *q, struct launch_chain *chain)
{
	launch_chain_begin(chain);
	q->recorded = chain;
}

int queue_play(struct queue *q)
{
	struct launch_chain *chain = q->recorded;

	q->recorded = NULL;
	return queue_expect(q, launch_chain_go(chain, q->stream));
}

void queue_drop(struct queue *q)
{
	q->recorded = NULL;
}
