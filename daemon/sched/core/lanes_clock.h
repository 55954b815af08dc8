/*
 * lanes_clock.h - what a user's entries take of a round of several users' lanes (step/lanes.c),
 * with a look at the clock for a few of them alone: what may take long, which includes to wake a
 * client, ends with one, and so do many quick ones before it. The scheduler's thread alone.
 */
#ifndef COPPICED_LANES_CLOCK_H
#define COPPICED_LANES_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define QUICK_MAX 64u /* entries; what these take is nobody's */

struct lanes_clock {
	uint64_t read_ns; /* when it was read last */
	uint64_t n_entries; /* that had been done by then */
	bool has_taken_time; /* one since may have taken long */
};

static inline void lanes_clock_set(struct lanes_clock *clock, uint64_t now_ns, uint64_t n_entries)
{
	*clock = (struct lanes_clock){.read_ns = now_ns, .n_entries = n_entries};
}

/* Many that were quick, and none that may have taken long? */
static inline bool lanes_clock_has_quick(const struct lanes_clock *clock, uint64_t n_entries)
{
	return !clock->has_taken_time && n_entries - clock->n_entries > QUICK_MAX;
}

#endif
