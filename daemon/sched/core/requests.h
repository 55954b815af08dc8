/*
 * requests.h - requests on their way to the scheduler and back: two queues under a mutex.
 *
 * There: whoever posts rings the scheduler's doorbell, which clients ring too. Back: an eventfd
 * that the loop polls.
 */
#ifndef COPPICED_REQUESTS_H
#define COPPICED_REQUESTS_H

#include "daemon/base/must_check.h"
#include "request.h"

#include <pthread.h>

struct request_queue {
	struct sched_request *first, **last;
};

struct requests {
	pthread_mutex_t mutex;
	struct request_queue posted, answered;
	_Atomic uint32_t n_posted; /* so that a spinning scheduler need not take the mutex */
	int reply_fd; /* owned eventfd */
};

MUST_CHECK int requests_init(struct requests *q); /* 0 or -errno */
void requests_done(struct requests *q);

/* Loop; the caller wakes the scheduler. */
void requests_post(struct requests *q, struct sched_request *request);
/* Scheduler; NULL: none. */
struct sched_request *requests_take(struct requests *q);
/* Scheduler; makes reply_fd readable. */
void requests_answer(struct requests *q, struct sched_request *request);
/* Loop; NULL: none. */
struct sched_request *requests_reap(struct requests *q);
/* Makes reply_fd readable without an answer. */
void requests_ring(struct requests *q);

static inline bool requests_any(const struct requests *q)
{
	return atomic_load(&q->n_posted) != 0;
}

#endif
