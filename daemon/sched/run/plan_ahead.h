/*
 * plan_ahead.h - plans made ahead. A plan takes in tokens as long as it has room for them; the next
 * one takes longer to make than a layer to compute. So a thread makes it meanwhile, of the tokens
 * that there are when it begins, and it takes in those that have come since.
 *
 *      advance says soon --renewal_begin--> thread: plan, prepare --renewal_made--> the next job of the same lanes
 *
 * One at a time. Where the thread is late, or what it made fits no more, the batch makes its plan
 * itself.
 */
#ifndef COPPICED_RENEW_H
#define COPPICED_RENEW_H

#include "job.h"

#include <pthread.h>

enum renewal_state { RENEWAL_NONE, RENEWAL_MAKING, RENEWAL_MADE };

struct renewal {
	_Atomic(enum renewal_state) state;
	struct batch_job job; /* the thread's while it makes the plan, else the scheduler's */
	uint64_t begun; /* when it was asked for, in uses of plans */
	uint64_t n_taken; /* plans that have taken another's place */
	bool started; /* there is a thread */
	bool stopping; /* under the lock, as a change from MAKING is */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const struct backend_ops *ops; /* borrowed, as the backend */
	struct backend *backend;
};

/* All else below: the scheduler's thread. */

void renewal_init(struct renewal *r);
/* For the steps of a job of the batch that has just been submitted. Nothing where one is being
 * made, or has been for others, who have not had their turn since. */
void renewal_begin(struct sched *s, const struct batch_job *job);
/* What was made last and has not taken another's place yet; NULL: nothing. The caller may exchange
 * it for a job of its own, and then calls renewal_taken. */
struct batch_job *renewal_made(struct renewal *r);
void renewal_taken(struct renewal *r);
/* The model is about to go. Waits for the thread if that is at work. */
void renewal_forget_model(struct renewal *r, const struct sched_model *model);
void renewal_done(struct renewal *r);

#endif
