/* clock.h - deadlines: a duration of COPPICE_FOREVER makes the deadline COPPICE_FOREVER. */
#ifndef COPPICE_CLIENT_CLOCK_H
#define COPPICE_CLIENT_CLOCK_H

#include "client/coppice.h"
#include "proto/clock.h"

/* A few nanoseconds to read, a few milliseconds coarse. */
static inline uint64_t clock_coarse_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

static inline uint64_t clock_add_ns(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > COPPICE_FOREVER - b_ns ? COPPICE_FOREVER : a_ns + b_ns;
}

/* Until a deadline; 0 where it has passed, COPPICE_FOREVER of the one that never comes. */
static inline uint64_t clock_left_ns(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (deadline_ns == COPPICE_FOREVER)
		return COPPICE_FOREVER;
	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

#endif
