/*
 * honest.h - a client of libcoppice that does nothing wrong and checks every answer: while others
 * attack the daemon, what it gets must stay right and come in time. All functions assert.
 */
#ifndef COPPICE_FUZZ_HONEST_H
#define COPPICE_FUZZ_HONEST_H

#include "coppice.h"

#include <stdint.h>
#include <sys/types.h>

#define HONEST_DIM 64
#define HONEST_LAYERS 2

struct honest {
	struct coppice *c; /* owned */
	struct coppice_arena *arena; /* owned */
	struct coppice_lane *lane; /* owned */
	struct coppice_seq *seq; /* owned; NULL: none */
	uint32_t model;
	uint32_t family; /* sets its token ids apart from others' */
	uint32_t n; /* tokens of the sequence */
	uint64_t hash;
	double sum[HONEST_LAYERS][HONEST_DIM]; /* of V */
	uint64_t longest_ns; /* step */
	uint64_t n_steps;
};

/* With a sequence of a first token. Honest clients of one family share what they compute. */
void honest_start(struct honest *h, const char *socket, uint32_t family);
/* A token more, all layers, each answer checked. Over some hundred tokens the sequence begins
 * anew. */
void honest_step(struct honest *h);
/* The same in two halves, of a sequence of few tokens: the token is live, then it is computed. */
void honest_extend(struct honest *h);
void honest_compute(struct honest *h);
/* For so long, with a rest between two steps; returns the longest in nanoseconds. */
uint64_t honest_run(struct honest *h, unsigned ms);
void honest_end(struct honest *h);

/* What a process has open, and its resident memory. */
unsigned process_descriptors(pid_t pid);
uint64_t process_bytes(pid_t pid);

#endif
