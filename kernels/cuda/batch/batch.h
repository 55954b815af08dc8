/*
 * batch.h - batches on their way through the device: schedules kept per plan, tables of addresses,
 * launches.
 *
 * Everything runs on one stream, the kernels of a job as one launch. A batch takes a frame: pinned
 * memory for what goes up with it and a clock that the device writes when it is done; there are
 * few, so that whoever submits faster than the device computes waits for the oldest.
 */
#ifndef COPPICE_CUDA_BATCH_H
#define COPPICE_CUDA_BATCH_H

#include "kernels/backend.h"
#include "kernels/cuda/attend/append.h"
#include "kernels/cuda/attend/attend.h"
#include "kernels/cuda/device/code.h"
#include "kernels/cuda/device/hosts.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/queue.h"
#include "kernels/cuda/peers/peer.h"
#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/schedule/schedule.h"
#include "schedule_cache.h"
#include "stand.h"

#include <pthread.h>

#define BATCH_FRAMES 8u
/* The stream keeps batches in order: the next but one begins when this one has ended. */
#define BATCH_STAGED 2u
#define BATCH_PLANS 16u
/* Of device memory, that plans take together: before one gets its memory, others that the batch at
 * hand has not used are freed, those first that were used longest ago. A larger one is there by
 * itself. */
#define BATCH_PLANS_BYTES (UINT64_C(96) << 20)
/* Of both, what plans have that no id names, which are sent again if they are wanted again: those
 * of decode are made anew. */
#define BATCH_UNNAMED (BATCH_PLANS / 2)
#define BATCH_UNNAMED_BYTES (BATCH_PLANS_BYTES / 2)
#define BATCH_UNNAMED_PATIENCE 64u /* uses of plans, after which nobody asks for one again */

struct batch_frame {
	struct queue_buffer host; /* owned */
	struct queue_buffer *device; /* borrowed: of the batch's staged, in turn */
	struct device_clock *clock; /* borrowed from the batch's */
	uint64_t id; /* of the batch that is in it; 0: none was yet */
	uint64_t begun_ns; /* when it was seen to have; 0: not yet */
	/* what comes before attention takes so long where it comes across the bus */
	uint64_t bus_ns;
	bool counted;
};

/* A schedule on the device. */
struct batch_plan {
	uint64_t plan_id; /* 0: none names it */
	uint64_t schedule_id; /* of the cache's schedule that the device has; 0: of none */
	struct work_shape shape;
	struct queue_buffer device; /* owned */
	struct device_attend attend; /* without what changes from job to job */
	uint32_t n_parts;
	uint64_t n_kv_blocks;
	uint64_t used; /* when it was last; 0: nobody asks for it again */
	/* owned, [n_tails]: of the list's rows; none: it cannot be advanced */
	struct schedule_tail *tails;
	uint32_t n_tails;
	struct schedule_growth growth; /* by tokens taken in: what the device does not know yet */
	uint64_t arrays[SCHEDULE_N_ARRAYS]; /* where they lie */
};

/* A plan before its first batch: a schedule that the device does not have yet, and a plan without
 * memory that may have been advanced. */
struct batch_ahead {
	struct batch_plan plan;
	struct schedule schedule; /* owned */
};

struct batch_need; /* batch_impl.h */

struct batch {
	struct queue queue;
	struct pool *pool;
	struct batch_frame frames[BATCH_FRAMES];
	struct queue_buffer staged[BATCH_STAGED]; /* owned, device */
	struct device_clock *clocks; /* owned, pinned: of the frames */
	struct device_tells *tells; /* owned, pinned: of the frames */
	struct launch_chain chain;
	/* owned, grows: what the jobs of the batch that is being made need */
	struct batch_need *needs;
	uint32_t needs_room;
	uint32_t n_looks; /* at the clock of a batch under way */
	struct batch_plan plans[BATCH_PLANS];
	struct queue_buffer parts; /* owned, device: partials and their statistics */
	struct {
		struct queue_buffer work_tiles, schedules, tables; /* owned, device */
	} chosen; /* of jobs of chosen blocks */
	struct schedule schedule;
	struct schedule_cache schedules; /* of jobs that have no plan id */
	struct {
		struct batch_ahead making; /* whoever prepares */
		struct batch_ahead made; /* under the lock */
		struct batch_ahead taken; /* whoever submits: the last that was asked for */
		pthread_mutex_t lock;
	} ahead;
	uint32_t *ticket; /* owned, device */
	/* what is read there is staged: once, many at a time, before attention */
	struct hosts hosts;
	const struct costs *costs;
	struct schedule_choice choice; /* of the planner's, where it is not its own */
	uint32_t n_blocks; /* of attention, at the moment */
	uint32_t all_blocks; /* where copies leave it all multiprocessors */
	enum code code; /* for the device */
	uint64_t last_id, done_id;
	uint64_t uses; /* of plans */
	uint64_t uses_before; /* the batch at hand */
	struct backend_counters counters;
	struct stand stand;
	struct peer *peer; /* owned; NULL: the device has met no other */
	struct device_attend last; /* of the last batch's only job that attended */
	struct device_exchange last_exchange; /* behind it; n_rows 0: none */
	/* before it; its tables are there until eight batches later */
	struct device_inbound last_in;
	uint32_t n_last; /* such jobs of it */
};

/* 0, -ENOMEM, -EIO. */
MUST_CHECK int batch_init(struct batch *b, struct pool *pool, enum code code, uint32_t n_blocks);
/* Waits for what is running, which of a device that has met others is to have settled
 * (peer_await_end). */
void batch_done(struct batch *b);

/* As backend_ops say. */
MUST_CHECK int batch_submit(struct batch *b, const struct backend_batch *batch, uint64_t *ret_id);
MUST_CHECK int batch_advance(struct batch *b, const struct backend_job *job);
MUST_CHECK int batch_make_ahead(struct batch *b, const struct backend_job *job);
MUST_CHECK int batch_conclude(struct batch *b);
MUST_CHECK int batch_abandon(struct batch *b, bool it_has);
MUST_CHECK int batch_completed(struct batch *b, uint64_t *ret_id);
bool batch_settled(struct batch *b, uint64_t id);
bool batch_is_ending(const struct batch *b, uint64_t id);
MUST_CHECK int batch_move(struct batch *b, const struct work_shape *shape,
			  const struct backend_move *moves, uint32_t n);

#endif
