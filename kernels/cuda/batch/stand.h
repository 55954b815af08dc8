/*
 * stand.h - a launch that stands on the device before its batch is submitted: that of the next
 * layer under the same plan, whose first kernel, one warp, waits for a call. A call is one write
 * across the bus, and takes neither the processor's time nor the device's for a launch.
 *
 *      batch n - 1 is submitted; the launch for n stands behind it
 *      batch n is submitted:      what was foreseen: tables, then the call
 *                                 anything else: the launch is told to leave; n goes behind it
 *      nobody calls for a while:  the launch leaves by itself
 *
 * A launch that leaves was an empty batch, with an id and a frame. One that had left when it was
 * called is made up for once that is known. None stands while the next batch usually takes long to
 * come.
 */
#ifndef COPPICE_CUDA_STAND_H
#define COPPICE_CUDA_STAND_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "kernels/cuda/attend/layer.h"
#include "kernels/cuda/device/launch.h"

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct batch_need;
struct batch_plan;
struct upload;

/* All zero: none ever stands. */
struct stand {
	struct device_call *calls; /* owned, pinned: each frame's */
	struct device_call *heard; /* owned, device: the last one */
	struct launch_chain chains[2]; /* in turn, as one may be under way */
	bool able; /* the device's launches overlap */

	bool stands; /* a launch does, for batch last_id + 1 */
	const struct batch_plan *plan;
	uint64_t plan_id;
	uint32_t layer, head;
	struct device_attend attend; /* what it does */

	/* of a batch that is not known to have heard its call; 0: there is none */
	uint64_t called_id;
	struct device_inbound called_in;
	struct device_attend called_attend;

	uint64_t done_ns; /* when a batch was last seen to be */
	/* usually, from there to the next submission; 1: of a first layer; 0: not known */
	uint64_t gap_ns[2];
	uint64_t last_plan_id;
	uint32_t n_same; /* batches in a row of that plan */
};

/* Needs the stream. 0 or -ENOMEM. */
MUST_CHECK int stand_init(struct batch *b);
/* When nothing runs any more. */
void stand_done(struct batch *b);

/* A launch stands for the job, the only one of its batch, and the frame has room for tables of so
 * many bytes. */
bool stand_fits(struct batch *b, const struct backend_job *job, const struct batch_need *need,
		size_t host_bytes, size_t device_bytes);
/* Calls the launch that fits, which becomes batch last_id + 1. */
void stand_call(struct batch *b, const struct device_inbound *in);
/* No launch stands from here on, and the batch called last has heard it: before whatever waits for
 * the stream or changes what a launch reads. Waits for a few microseconds at most, if batches
 * before the one that was called are done. 0 or -EIO, which the queue remembers, too. */
MUST_CHECK int stand_leave(struct batch *b);

/* The batch says that it is done: true if it did nothing, its launch having left, and has been
 * launched now; or if that is not known yet. */
bool stand_again(struct batch *b, uint64_t id);
void stand_note_done(struct batch *b);
/* The upload's batch was submitted: of this one job; NULL: of none or several. A launch may stand
 * from here on. */
void stand_next(const struct upload *u, const struct backend_job *job);

#endif
