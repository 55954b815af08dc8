/*
 * blocking.c - long waits, in slices.
 *
 * Python runs handlers of signals in its main thread alone, and only with its lock: so a wait comes
 * back to it now and then.
 */
#include "blocking.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <errno.h>

#define SLICE_NS UINT64_C(200000000)

static uint64_t deadline_of(uint64_t timeout_ns)
{
	uint64_t now = clock_now_ns();

	return timeout_ns > COPPICE_FOREVER - now ? COPPICE_FOREVER : now + timeout_ns;
}

static uint64_t slice_of(uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();

	if (now >= deadline_ns)
		return 0;
	return min_u64(deadline_ns - now, SLICE_NS);
}

int blocking_run(blocking_wait wait, void *context, uint64_t timeout_ns)
{
	uint64_t deadline_ns = deadline_of(timeout_ns);
	uint64_t slice_ns = min_u64(timeout_ns, SLICE_NS);
	int r;

	do {
		Py_BEGIN_ALLOW_THREADS;
		r = wait(context, slice_ns);
		Py_END_ALLOW_THREADS;
		if (r != -ETIMEDOUT)
			return r;
		if (PyErr_CheckSignals() < 0)
			return BLOCKING_RAISED;
		slice_ns = slice_of(deadline_ns);
	} while (slice_ns > 0);
	return r;
}

struct wait {
	struct coppice_lane *lane;
	uint64_t ticket;
};

static int wait_for_ticket(void *context, uint64_t timeout_ns)
{
	struct wait *w = context;

	return coppice_wait(w->lane, w->ticket, timeout_ns);
}

int blocking_wait_ticket(struct coppice_lane *lane, uint64_t ticket, uint64_t timeout_ns)
{
	struct wait w = {lane, ticket};

	return blocking_run(wait_for_ticket, &w, timeout_ns);
}
