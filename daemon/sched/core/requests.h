/*
 * requests.h - requests on their way to the scheduler and back: two queues under a mutex, and one
 * of each user, so that who asks for much waits for himself.
 *
 * There: whoever posts rings the scheduler's doorbell, which clients ring too. Back: an eventfd
 * that the loop polls.
 */
#ifndef COPPICED_REQUESTS_H
#define COPPICED_REQUESTS_H

#include "proto/must_check.h"
#include "state.h"

#include <pthread.h>

struct requests {
	pthread_mutex_t mutex;
	struct request_queue posted, answered;
	struct sched_user_queue users; /* the scheduler's: those who have some, in turns */
	struct sched_user nobody; /* who has those that are of no session */
	uint64_t n_looks; /* the scheduler's: sched_session.request_waits */
	_Atomic uint32_t n_posted; /* so that a spinning scheduler need not take the mutex */
	int reply_fd; /* owned eventfd */
};

void request_queue_init(struct request_queue *q); /* which is zero */
MUST_CHECK int requests_init(struct requests *q); /* 0 or -errno */
void requests_done(struct requests *q);

/* Loop; the caller wakes the scheduler. */
void requests_post(struct requests *q, struct sched_request *request);
/* Scheduler; of users in turns, of each the first. beside: a pass of that scheduler is under way,
 * and those alone are taken that may be served beside it; none comes before another of its session
 * that waits. NULL: none. */
struct sched_request *requests_take(struct requests *q, const struct sched *beside);
/* Scheduler; it is not done, and waits right before the next of its session, or behind all of its
 * user's where there is none. */
void requests_again(struct requests *q, struct sched_request *request);
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
