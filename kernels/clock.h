/* clock.h - the time that waits are measured in. */
#ifndef COPPICE_KERNELS_CLOCK_H
#define COPPICE_KERNELS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

#endif
