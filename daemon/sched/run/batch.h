/*
 * batch.h - from parked steps to the backend: the tree of their paths, a plan, one job per model
 * and layer.
 *
 *      parked steps --batch_add--> jobs --batch_submit--> backend --batch_poll--> finished steps
 *
 * One batch at a time is in flight. A batch is either decode (all chosen steps, whole) or one slice
 * of one prefill step, so that prefill never delays decode by more than a slice.
 */
#ifndef COPPICED_BATCH_H
#define COPPICED_BATCH_H

#include "job.h"
#include "plan_ahead.h"
#include "sparse.h"

struct sched_lane;

struct batch {
	struct batch_job *jobs; /* owned */
	uint32_t n_jobs, jobs_room;
	struct backend_job *backend_jobs; /* owned */
	uint32_t backend_jobs_room;
	struct sched_lane **lanes; /* owned: whose steps the batch holds */
	uint32_t n_lanes, lanes_room;
	bool prefill; /* one slice of lanes[0]'s step */
	uint32_t slice_part, slice_row, slice_rows; /* prefill: which rows */
	bool in_flight;
	uint64_t id; /* the backend's */
	/* of its lanes, as many as there is room for */
	struct backend_tell tells[BACKEND_TELLS_MAX];
	/* when to tell its lanes' streams that they are soon done, unless the backend says;
	 * UINT64_MAX: they know */
	uint64_t soon_ns;
	uint64_t last_plan; /* ids given to plans */
	uint64_t uses; /* of jobs' plans */
	struct renewal renewal;
	struct sparse sparse;
	uint64_t mark; /* stamps store nodes with their index in a job's tree */
};

/* Adds a lane's parked decode step; 0 or -ENOMEM (nothing added). */
int batch_add(struct sched *s, struct sched_lane *lane);
/* Makes the next slice of a lane's parked prefill step the batch. 0 or -ENOMEM. */
int batch_add_slice(struct sched *s, struct sched_lane *lane);
/* Plans and starts what was added. A fault fails the batch's steps; then nothing is in flight. */
void batch_submit(struct sched *s);
/* Finishes the batch if the backend has. Returns whether it is finished. */
bool batch_poll(struct sched *s);
/* The backend is gone: the steps of the batch fail. */
void batch_fail(struct sched *s);
/* The model is about to go: nothing planned for it is kept. */
void batch_forget_model(struct batch *b, const struct sched_model *model);
void batch_done(struct batch *b);

#endif
