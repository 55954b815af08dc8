/*
 * aside.h - a thread that does a part of its owner's work while the owner does another: one call at
 * a time.
 *
 *      aside_begin(&a, hash, this);
 *      put(this);
 *      aside_end(&a);                  both are done
 *
 * Where no thread can be had the owner does both, one after the other.
 */
#ifndef COPPICED_ASIDE_H
#define COPPICED_ASIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Work on fewer is not worth the thread's waking. */
#define ASIDE_LEAST_BYTES (UINT64_C(256) << 10)

struct aside {
	pthread_t thread;
	bool there; /* the thread is */
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	void (*call)(void *arg); /* under way; NULL: none */
	void *arg;
	bool over;
};

void aside_init(struct aside *a);
/* Nothing is under way. */
void aside_done(struct aside *a);
/* Nothing is under way. call is another thread's from now on until aside_end. Does not block where
 * there is a thread. */
void aside_begin(struct aside *a, void (*call)(void *arg), void *arg);
/* Blocks until the call has ended: what it wrote is to be seen. */
void aside_end(struct aside *a);

#endif
