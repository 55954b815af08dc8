/*
 * helper.h - a thread that does one thing at a time for another, which goes on meanwhile. The
 * thread begins with the first of them, and blocks no core between two.
 */
#ifndef COPPICED_HELPER_H
#define COPPICED_HELPER_H

#include "proto/must_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct helper {
	const char *name; /* the thread's, 15 characters at most; borrowed */
	void (*run)(void *ctx); /* on that thread */
	void *ctx; /* borrowed */
	_Atomic bool under_way; /* turns false under the lock */
	bool started; /* there is a thread */
	bool stopping; /* under the lock */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* All below: one thread, whose helper it is. */

void helper_init(struct helper *e, const char *name, void (*run)(void *ctx), void *ctx);
/* After the one before, which is waited for. False: there can be no thread. */
MUST_CHECK bool helper_start(struct helper *e);
/* Until then what it works with is its own. */
static inline bool helper_is_under_way(const struct helper *e)
{
	return atomic_load(&e->under_way);
}
void helper_await(struct helper *e);
/* Waits for what is under way. */
void helper_done(struct helper *e);

#endif
