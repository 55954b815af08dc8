/*
 * errands.h - what the loop has to do for users, packets of theirs and answers to them, in turns:
 * so that who has much of it keeps nobody waiting who has little.
 *
 *      errand_add --> its user's errands, first come first served
 *      a turn of the loop: of each user who has some, ERRANDS_NS of them, and at most one more
 *
 * The loop's thread alone.
 */
#ifndef COPPICED_ERRANDS_H
#define COPPICED_ERRANDS_H

#include "proto/clock.h"
#include "proto/must_check.h"
#include "daemon/loop/loop.h"

#include <sys/queue.h>
#include <sys/types.h>

#define ERRANDS_NS NS_PER_MS

/* serve and of are the owner's; the rest is zeroed at birth. */
struct errand {
	void (*serve)(struct errand *errand); /* the memory is its owner's again */
	void *of; /* borrowed */
	bool waits; /* it was added, and is not served yet */
	TAILQ_ENTRY(errand) link;
};

struct errands_user {
	struct errands *home; /* borrowed */
	uid_t uid;
	uint32_t n_refs;
	bool has_some; /* or is at it */
	TAILQ_HEAD(, errand) errands;
	LIST_ENTRY(errands_user) link; /* of all */
	TAILQ_ENTRY(errands_user) turn; /* of those who have some */
};
TAILQ_HEAD(errands_turns, errands_user);

struct errands {
	struct loop *loop; /* borrowed */
	struct loop_op soon;
	LIST_HEAD(, errands_user) users;
	struct errands_turns turns;
};

/* It stays put. */
void errands_init(struct errands *errands, struct loop *loop);
/* The user, until errands_user_unref. NULL: no memory. */
struct errands_user *errands_user_ref(struct errands *errands, uid_t uid);
void errands_user_unref(struct errands_user *user); /* NULL is fine */
/* Serves it in one of the loop's next turns, once. Never at once. The user is referred to until
 * then. */
void errand_add(struct errands_user *user, struct errand *errand);

#endif
