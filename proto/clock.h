/*
 * clock.h - the one clock: daemon, library and programs mean the same time by a number of
 * nanoseconds.
 */
#ifndef COPPICE_CLOCK_H
#define COPPICE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC. */
static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

#endif
