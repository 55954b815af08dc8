/*
 * aside.h - a thread that does something for its owner while he does another: one call at a time.
 *
 *      aside_begin(&a, hash, this);
 *      put(this);
 *      aside_end(&a);                  both are done
 *
 * The thread begins with the first call. Where none can be had the owner does both, one after the
 * other.
 */
#ifndef COPPICED_ASIDE_H
#define COPPICED_ASIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Work on fewer is not worth the thread's waking. */
#define ASIDE_LEAST_BYTES (UINT64_C(256) << 10)

struct aside {
	const char *name; /* the thread's, 15 characters at most; borrowed; NULL: its owner's */
	pthread_t thread;
	bool there; /* the thread is */
	_Atomic bool under_way; /* a call is: it turns false under the lock */
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	void (*call)(void *arg); /* while it is under way */
	void *arg;
	bool over;
};

/* All zero does for one that is never begun. */
void aside_init(struct aside *a, const char *name);
/* Blocks until nothing is under way. */
void aside_done(struct aside *a);
/* Nothing is under way, or it is waited for. What the call works with is another thread's from now
 * on until aside_end. Else does not block where there is a thread. */
void aside_begin(struct aside *a, void (*call)(void *arg), void *arg);
/* Does not block. Once it is not, what the call wrote is to be seen. */
static inline bool aside_is_under_way(const struct aside *a)
{
	return atomic_load(&a->under_way);
}
/* Blocks until the call has ended: what it wrote is to be seen. */
void aside_end(struct aside *a);

#endif
