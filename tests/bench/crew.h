/*
 * crew.h - processes of client.h, together: started one after the other, so that the first of them
 * stores the prefix, and measured while all are at work.
 */
#ifndef COPPICE_BENCH_CREW_H
#define COPPICE_BENCH_CREW_H

#include "client.h"

#include <sys/types.h>

#define CREW_MOST 64u

struct crew {
	uint32_t n;
	struct client_options each;
	pid_t pids[CREW_MOST];
	int up[CREW_MOST][2], down[CREW_MOST][2];
};

/* Blocks until all of them are warm. Each ends the program with a sentence where it fails. */
void crew_start(struct crew *crew, const struct client_options *each, uint32_t n,
		const char *socket);
/* Takes the times of all, us[n * client_times()], from now on. Returns how long the sequences' own
 * tails were, in the mean. They go on decoding. */
double crew_measure(struct crew *crew, double *us);
void crew_end(struct crew *crew);

#endif
