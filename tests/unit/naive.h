/*
 * naive.h - what sequences of a scheduler must yield, by a list of token ids each.
 *
 * Q is zero, so that attention is the mean of V over the path. V of a token is made of a hash of
 * everything up to it, so that a row of foreign or stale KV shows in the mean. Shapes have one
 * layer, as many query heads as KV heads, and fp32; each 16 values of a row are the same ones.
 */
#ifndef COPPICE_TESTS_NAIVE_H
#define COPPICE_TESTS_NAIVE_H

#include "sched_harness.h"

#define NAIVE_DIM 16
#define NAIVE_MOST 1024u /* tokens */
#define NAIVE_DRAFT 4u /* tokens of a draft tree */

extern const struct work_shape naive_shape; /* 128 bytes a token, 2 KiB a page */

struct naive {
	uint64_t handle; /* 0: free */
	uint32_t n;
	uint32_t ids[NAIVE_MOST];
	uint64_t hash[NAIVE_MOST + 1]; /* of the first i ids */
	double sum[NAIVE_MOST + 1][NAIVE_DIM]; /* of V over the first i tokens */
};

/* Of no tokens. */
void naive_begin(struct naive *q);
/* A token more; the scheduler knows nothing of it yet. */
void naive_append(struct naive *q, uint32_t id);
/* Submits an extension by the tokens from `from` on, and a step of them, of a client that has no
 * other in flight. Returns the step's ticket; rec is what it asks for. */
uint64_t naive_submit(struct client *c, const struct naive *q, uint32_t from,
		      struct abi_step_seq *rec);
/* The same, but the step appends alone: nothing comes of its rows. */
uint64_t naive_submit_append(struct client *c, const struct naive *q, uint32_t from);
/* Waits for it. 0: all rows are right. Else the step's status; the tokens are gone on both
 * sides. */
int naive_await(struct client *c, struct naive *q, uint32_t from, const struct abi_step_seq *rec,
		uint64_t ticket);
/* Both. */
int naive_compute(struct client *c, struct naive *q, uint32_t from);
/* Cuts it to its first n tokens. */
void naive_trim(struct client *c, struct naive *q, uint32_t n);
/* Returns the status; 0: other is the same then. */
int naive_fork(struct client *c, const struct naive *q, struct naive *other);
/* A draft tree of two branches below a common token, of which so many tokens of one branch are
 * accepted, 3 at most. 0; or the status of what failed, and the draft is gone. */
int naive_draft(struct client *c, struct naive *q, const uint32_t ids[NAIVE_DRAFT],
		uint32_t n_accepted);

#endif
