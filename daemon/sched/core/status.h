/*
 * status.h - figures of the scheduler: what its parts count as they go, and what the verb status
 * adds when it is asked for.
 */
#ifndef COPPICED_SCHED_STATUS_H
#define COPPICED_SCHED_STATUS_H

#include "kernels/backend.h"
#include "kernels/group/group.h"
#include "kvstore/tier.h"

struct sched_status {
	struct store_stats store;
	struct store_tiers_stats tiers; /* of no use where has_tiers is false */
	bool has_tiers;
	uint64_t n_streamed, staged_bytes; /* of streamed attention */
	struct backend_counters backend;
	uint64_t n_sessions, n_lanes;
	uint64_t entries, entries_failed;
	uint64_t plans_ahead; /* made ahead, and taken */
	uint64_t batches, decode_jobs, decode_sessions, prefill_jobs;
	uint64_t steps_cut, cut_batches; /* decode steps that took too long, and their slices */
	uint64_t passes, pass_rows, pass_ns; /* of programs' tokens, through all layers */
	uint64_t pass_segments; /* what the backend had of them at a time */
	uint64_t passes_cut_in; /* that began between two segments of another's */
	uint64_t pass_slot_waits; /* segments at which one would have, had fewer been under way */
	uint64_t passes_under_way;
	uint64_t turn_waits, turn_wait_ns; /* for a user's next step, whose turn it was: his time */
	uint64_t decode_kv_bytes_read, decode_kv_bytes_alone;
	uint64_t windows_won, windows_lost, window_ns;
	uint64_t n_input_waits; /* lanes whose step awaits a stream */
	uint64_t device_page_bytes[GROUP_DEVICES_MAX]; /* of pages in use, of each device */
	bool draining;
	bool own; /* of a user's own sessions, beside what all may know */
	uint64_t own_pool_bytes; /* then: what the user holds */
};

#endif
