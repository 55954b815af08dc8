/*
 * blocking.h - long waits, in slices: without the interpreter's lock, and ended by a signal whose
 * handler raises.
 */
#ifndef COPPICE_PYTHON_BLOCKING_H
#define COPPICE_PYTHON_BLOCKING_H

#include "base.h"

#define BLOCKING_RAISED 1 /* no -errno: an exception is set */

/* Waits so long at most; -ETIMEDOUT: not yet. Called without the interpreter's lock. */
typedef int (*blocking_wait)(void *context, uint64_t timeout_ns);

/* 0 or -errno of the wait; or BLOCKING_RAISED. */
MUST_CHECK int blocking_run(blocking_wait wait, void *context, uint64_t timeout_ns);
/* The same for a ticket. The lane is entered. */
MUST_CHECK int blocking_wait_ticket(struct coppice_lane *lane, uint64_t ticket,
				    uint64_t timeout_ns);

#endif
