/* clocks.h - what the time of attention's blocks goes to: a table of its phases, by the clocks of a
 * module that has them. */
#ifndef COPPICE_BENCH_CLOCKS_H
#define COPPICE_BENCH_CLOCKS_H

#include "card.h"

#define CLOCKS_PHASES 8u

/* A phase of one launch, over its blocks, in us. */
struct clocks_phase {
	const char *name;
	uint32_t n; /* blocks that have it */
	double median, p90, worst;
};

/* Of one launch. ret [CLOCKS_PHASES]. */
void clocks_read(const struct device_clocks *clocks, struct clocks_phase *ret);
/* Launches the attention of the batch that was last a few times; prints the medians. 0 or -errno,
 * and says why. */
int clocks_show(struct card_run *run, const char *name, const char *policy);

#endif
