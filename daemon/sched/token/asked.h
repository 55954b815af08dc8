/* asked.h - tokens that a pass may have, and what they take. */
#ifndef COPPICED_ASKED_H
#define COPPICED_ASKED_H

#include "room.h"

/* Tokens of a lane's part that the pass may have, and where they go on. */
struct asked {
	struct sched_lane *lane;
	uint32_t part;
	uint32_t n_before; /* tokens of its sequence */
	uint32_t n_left;
};

static inline struct sched_seq *asked_seq(const struct asked *a)
{
	return a->lane->step.parts[a->part].seq;
}

/* Attention of a row at the end of its path, in a layer; without reading that. */
double asked_layer_ns(const struct room *room, const struct asked *a);
/* What a row of it leaves to be merged. */
uint64_t asked_partials_bytes(const struct room *room, const struct asked *a);
/* Of the next n rows those whose results are wanted. */
uint32_t asked_n_wanted(const struct asked *a, uint32_t n);
/* The head of the pass's first row whose results are wanted is what all rows take. */
double asked_results_ns(const struct room *room, uint32_t n_wanted);
/* As many rows' attention as takes as long as that of n of one prompt. */
uint32_t asked_attended_as(const struct room *room, uint32_t n);
/* How much longer the pass is with the next n rows of it, but for reading its path. */
double asked_rows_ns(const struct room *room, const struct asked *a, uint32_t n);

/* How many rows of it the attention of one layer has time for: devices do not cut it, and it takes
 * no longer than a batch may. Where it is cut: for how many there is memory. */
double asked_in_time(const struct room *room, const struct asked *a);
double asked_in_memory(const struct room *room, const struct asked *a);
/* How many rows of it so long a time is enough for, n at most. */
uint32_t asked_rows_in(const struct room *room, const struct asked *a, double ns, uint32_t n);
/* Of n rows as many as fill products, or tiles of attention, where its tokens are sooner so. */
uint32_t asked_whole(const struct room *room, const struct asked *a, uint32_t n);
uint32_t asked_whole_tiles(const struct room *room, const struct asked *a, uint32_t n);

#endif
