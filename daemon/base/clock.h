/*
 * clock.h - the daemon's one clock.
 */
#ifndef COPPICED_CLOCK_H
#define COPPICED_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
