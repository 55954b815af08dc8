/*
 * lane_honest.h - a session of the stepped scheduler's that does nothing wrong and checks every
 * answer and status.
 */
#ifndef COPPICE_FUZZ_LANE_HONEST_H
#define COPPICE_FUZZ_LANE_HONEST_H

#include "draw.h"
#include "sched_harness.h"

#define DIM 16
#define N_LAYERS 2
#define MAX_LEN 160
#define SEQS_A_CLIENT 4
#define N_BASE 40 /* tokens of the friend's that the hostile session may share */
#define BASE_ID 0x40000000u

extern const struct work_shape LANE_SHAPE;

struct naive {
	uint64_t handle; /* 0: free */
	uint32_t n;
	uint32_t ids[MAX_LEN];
	uint64_t hash[MAX_LEN + 1]; /* of the first i ids */
	double sum[N_LAYERS][MAX_LEN + 1][DIM]; /* of V over the first i tokens */
};

struct lane_honest {
	struct client c;
	struct naive seqs[SEQS_A_CLIENT];
	bool is_friend;
	uint64_t n_steps, n_refused;
};

/* A prompt of the base and n_more tokens, computed; without room for it q stays free. */
void lane_honest_open(struct draw *d, struct lane_honest *who, struct naive *q, uint32_t n_more);
/* Opens, extends, trims or closes one of its sequences. */
void lane_honest_turn(struct draw *d, struct lane_honest *who);

#endif
