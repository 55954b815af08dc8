/* state.h - what the CPU's backend has, for the files of it that run batches. */
#ifndef COPPICE_CPU_STATE_H
#define COPPICE_CPU_STATE_H

#include "kernels/backend.h"
#include "kernels/plan/array.h"
#include "kernels/program/backend_program.h"
#include "kernels/rows/rows.h"
#include "attend.h"
#include "mover.h"
#include "pool.h"
#include "threads.h"
#include "vec.h"

/* One core of a two-core Zen 5 machine reads KV at 24 GB/s from memory, and a batch of nothing
 * takes 2 us; round figures of coppice-bench attention there: they weigh a wait, they promise
 * nothing. Weights are read as fast. */
#define CPU_READ_NS_PER_BYTE 0.042
#define CPU_FIXED_NS 2000.0
#define CPU_UNSEEN 2.0 /* cores half as fast as those that these are of */

struct backend {
	struct pool pool;
	struct pool_pages pages; /* those of the last job's shape; none: n_pages is 0 */
	struct work_shape pages_shape;
	struct threads *threads; /* owned */
	struct attend attend; /* of jobs that are done at once; programs have their own */
	const struct vec *vec;
	const struct rows_ops *rows;
	float *leg_state, *leg_part; /* owned, [leg_room]: of all rows, and of those of a leg */
	size_t leg_room;
	struct array masses; /* of an estimate */
	struct mover *mover; /* owned; NULL: nothing was ever pinned */
	uint64_t last_id;
	struct backend_counters counters;
};

#endif
