/*
 * queue.h - the device's one stream of work, for whoever has something to add to it: launches,
 * copies, memory that what runs may be using. The first error stays, and so does what was waited
 * for in vain.
 *
 * What takes a launch_to (launch.h) may become part of a chain while one is recorded; what takes a
 * stream starts at once and never does.
 */
#ifndef COPPICE_CUDA_QUEUE_H
#define COPPICE_CUDA_QUEUE_H

#include "format.h"
#include "launch.h"
#include "proto/must_check.h"

#include <stddef.h>

/* What the driver gives device memory in. */
#define QUEUE_GRANULE (UINT64_C(2) << 20)

struct queue {
	device_stream stream; /* owned by whoever opened it */
	struct launch_chain *recorded; /* NULL: what is put on it starts at once */
	/* with what is under way, as it may wait for others that never come; 0: without end */
	uint64_t patience_ns;
	bool failed;
	bool stuck; /* what is under way was waited for in vain */
	int error; /* the cudaError_t that failed it */
};

/* Memory that grows and is kept. */
struct queue_buffer {
	void *at; /* owned, device or pinned host memory */
	size_t bytes;
};

/* 0 or -ENOMEM. Done waits for what runs; one that is all zero is fine. */
MUST_CHECK int queue_init(struct queue *q);
void queue_done(struct queue *q);

/* Of what device_* functions return: the first that went wrong is remembered. 0 or -EIO. */
MUST_CHECK int queue_expect(struct queue *q, int r);
/* For all that the stream has to do; no longer than its patience, if there is any: then it has
 * failed, and is not waited for again. 0 or -EIO, which the queue remembers, too. */
MUST_CHECK int queue_await(struct queue *q);
/* False: the stream is still at it when the time is over. */
bool queue_settles(const struct queue *q, uint64_t limit_ns);

/* Grows a buffer, whose contents are lost; waits for what may be using the old one. 0, -ENOMEM,
 * -EIO. */
MUST_CHECK int queue_grow(struct queue *q, struct queue_buffer *buffer, size_t bytes);
MUST_CHECK int queue_grow_pinned(struct queue *q, struct queue_buffer *buffer, size_t bytes);
/* What a buffer on the device is given for so much: some more, as it may grow, but nothing
 * large. */
size_t queue_room(size_t bytes);

/* Pinned host memory to the device's or back, behind nothing else (bring.h). 0 or -EIO. */
MUST_CHECK int queue_bring(struct queue *q, void *to, const void *from, size_t bytes);

/* What takes queue_to is the chain's from here on, until queue_play starts it or queue_drop forgets
 * it. */
void queue_record(struct queue *q, struct launch_chain *chain);
MUST_CHECK int queue_play(struct queue *q);
void queue_drop(struct queue *q);

static inline struct launch_to queue_to(const struct queue *q)
{
	struct launch_to to = {q->stream, q->recorded};

	return to;
}

#endif
