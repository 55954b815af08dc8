/*
 * pace.c - see pace.h. What is there at once is had within half a millisecond; what takes seconds
 * is not asked for all the time.
 */
#include "pace.h"

#include "clock.h"
#include "proto/arith.h"

#include <time.h>

#define FIRST_NS UINT64_C(500000)
#define LATER_NS UINT64_C(20000000)

struct pace pace_begin(uint64_t timeout_ns)
{
	return (struct pace){clock_add_ns(clock_now_ns(), timeout_ns), FIRST_NS};
}

bool pace_sleep(struct pace *pace)
{
	uint64_t left_ns = clock_left_ns(pace->deadline_ns);
	struct timespec pause = clock_timespec(min_u64(pace->pause_ns, left_ns));

	if (left_ns == 0)
		return false;
	nanosleep(&pause, NULL);
	pace->pause_ns = min_u64(2 * pace->pause_ns, LATER_NS);
	return true;
}
