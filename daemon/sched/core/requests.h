/*
 * requests.h - requests on their way to the scheduler and back: two queues under a mutex, each with
 * its bell.
 *
 * There: the scheduler's futex on the board (the bell that clients ring too). Back: an eventfd that
 * the loop polls.
 */
#ifndef COPPICED_MAILBOX_H
#define COPPICED_MAILBOX_H

#include "daemon/sched/sched.h"

#include <pthread.h>

struct mail_queue {
	struct sched_request *first, **last;
};

struct mailbox {
	pthread_mutex_t mutex;
	struct mail_queue requests, replies;
	_Atomic uint32_t n_requests; /* so that a spinning scheduler need not take the mutex */
	int reply_fd; /* owned eventfd */
};

int mailbox_init(struct mailbox *m); /* 0 or -errno */
void mailbox_done(struct mailbox *m);

void mailbox_post(struct mailbox *m,
		  struct sched_request *request); /* loop; the caller wakes the scheduler */
struct sched_request *mailbox_take(struct mailbox *m); /* scheduler; NULL: none */
void mailbox_reply(struct mailbox *m,
		   struct sched_request *request); /* scheduler; rings reply_fd */
struct sched_request *mailbox_reap(struct mailbox *m); /* loop; NULL: none */
void mailbox_ring(struct mailbox *m); /* makes reply_fd readable without a reply */

#endif
