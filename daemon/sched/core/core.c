/*
 * core.c - the end of a backend that can no more.
 *
 * The end is said once, in the log with the backend's own words, and the loop is woken, which then
 * sees `failed` and ends the daemon. Until then every entry and request still comes back, with a
 * status.
 */
#include "core.h"

#include "daemon/base/log.h"

void core_fail(struct sched_core *core)
{
	if (atomic_exchange(&core->failed, true))
		return;
	const char *why = core->ops->fault ? core->ops->fault(core->backend) : NULL;

	log_error("the %s backend has failed for good: %s", core->ops->name,
		  why ? why : "it does not say why");
	requests_ring(&core->requests);
}

void core_read_lanes_clock(struct sched_core *core)
{
	lanes_clock_set(&core->lanes_clock, core_clock(core), core->stats.entries);
}
