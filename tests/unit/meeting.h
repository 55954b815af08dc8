/*
 * meeting.h - devices that meet, as GPUs do, here CPUs, and what they do wrong if they are told to.
 *
 * A member computes partials when a batch is submitted; the last to conclude merges all rows. It is
 * complete when the test lets it be.
 */
#ifndef COPPICE_TESTS_MEETING_H
#define COPPICE_TESTS_MEETING_H

#include "kernels/backend.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MEETING_DEVICES 3u

struct end {
	struct backend *backend;
	struct backend_job job; /* of the batch, as it was given */
	float *parts; /* owned; NULL: the batch has no owners */
	uint64_t submitted, concluded, abandoned;
	uint32_t n_rows_written; /* by this owner, ever */
	uint64_t given_bytes; /* to owners of rows, ever */
	uint64_t arena; /* its only one */
	/* tokens that its plan took in, and where the last of them went */
	uint32_t n_advanced, next_page;
};

struct meeting {
	pthread_mutex_t lock;
	struct end ends[MEETING_DEVICES];
	uint32_t n, n_concluded;
	uint32_t n_behind; /* batches that nobody has told of yet */
	bool silent; /* of the second: nothing is ever complete */
	bool refuses; /* the second does not conclude */
	uint32_t slow_ms; /* the second takes so much longer to take its share */
	bool stale, one_stale; /* all refuse what is submitted, or the second */
	bool one_breaks; /* the second fails as it is to take it */
	bool full; /* the second cannot take in another token */
	bool apart; /* they do not reach each other's memory */
};

/* The one there is; new with each group that opens, but for n_behind and apart. */
extern struct meeting meeting;

/* Of each member. */
struct backend_ops meeting_ops(void);

#endif
