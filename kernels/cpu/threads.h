/*
 * threads.h - a caller and its workers take numbered units of one job until none is left.
 *
 * Workers sleep on a futex between jobs. A worker that wakes late is not waited for: the caller
 * waits only for those who have joined, so that a busy machine delays no batch by more than the
 * units in hand.
 */
#ifndef COPPICE_CPU_THREADS_H
#define COPPICE_CPU_THREADS_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

struct threads;

/* thread: 0 (the caller) to n - 1, for scratch memory. */
typedef void (*threads_unit)(void *arg, uint32_t thread, uint32_t unit);

/* n threads, the caller among them. 0, -ENOMEM or -EAGAIN. */
MUST_CHECK int threads_new(uint32_t n, struct threads **ret);
void threads_free(struct threads *t); /* NULL is fine; no job may be running */

/* Workers look for the next job for so long before they sleep, where every one has a core to
 * itself. */
void threads_watch(struct threads *t, uint64_t ns);

/* From now on units have subnormal floats for 0, as inputs and as outputs: with them a processor
 * may take many times as long, so that a user's numbers would say how long others wait. Not where
 * a unit makes halves from the bits of subnormal floats. */
void threads_flush_subnormals(struct threads *t);

/* Around several runs of the caller's: its subnormals are 0 from the one to the other, as to change
 * that takes as long as a small unit. Calls nest. */
void threads_begin(struct threads *t);
void threads_end(struct threads *t);

uint32_t threads_count(const struct threads *t);
/* So many of them run at a time: no more than there were cores for when they began. */
uint32_t threads_at_once(const struct threads *t);
/* Units that were done, ever. Any thread. */
uint64_t threads_progress(const struct threads *t);
/* Runs units 0 to n_units - 1, taken in ascending order; returns when all are done. alone: by the
 * caller only. From one thread at a time. */
void threads_run(struct threads *t, threads_unit run, void *arg, uint32_t n_units, bool alone);

/* A job that ends before all its units are done where it takes long. */
struct threads_job {
	threads_unit run;
	void *arg;
	uint32_t first, n_units; /* units from first on, of so many */
	bool alone;
	uint32_t look_every; /* so many units, a thread looks at the clock */
	uint64_t until_ns; /* no unit is begun behind that but the first; UINT64_MAX: all are */
};

/* Returns the first unit that is not done; all before it are. */
uint32_t threads_run_until(struct threads *t, const struct threads_job *job);

#endif
