/*
 * batch.h - from runnable steps to the backend: one job per model and layer.
 *
 *      RUNNABLE --batch_add--> jobs --batch_submit--> backend --batch_poll--> steps finished
 *
 * One batch at a time is in flight. A batch is either decode (chosen steps, whole) or one slice of
 * one step, prefill or decode that was cut. Neither takes longer than the budget, as far as that
 * can be cut (run/slice.h).
 */
#ifndef COPPICED_BATCH_H
#define COPPICED_BATCH_H

#include "slice.h"
#include "sparse.h"

struct batch {
	struct sched_core *core; /* borrowed */
	struct batch_job *jobs; /* owned */
	uint32_t n_jobs, jobs_room;
	struct backend_job *backend_jobs; /* owned */
	uint32_t backend_jobs_room;
	double alone_ns; /* of its steps, if they shared nothing */
	double ns; /* that it is modelled to take */
	double device_ns; /* of that, without plans that were made for it */
	uint64_t begun_ns; /* when it had been submitted; 0: it is too short to learn from */
	uint64_t busy_ns; /* the backend's, before that */
	uint64_t chose_ns; /* so long its blocks were chosen, before that */
	bool sliced; /* it is this slice of jobs[0]'s only step */
	struct slice slice;
	bool in_flight;
	uint64_t id; /* the backend's */
	/* of its lanes, as many as there is room for */
	struct backend_tell device_words[BACKEND_TELLS_MAX];
	/* when to announce to its lanes' streams that they are soon done, unless the backend says;
	 * UINT64_MAX: they know */
	uint64_t soon_ns;
	uint64_t n_met; /* decode jobs ever: seq/pace.h */
	struct plans plans;
	struct sparse sparse;
};

void batch_init(struct batch *b, struct sched_core *core);
/* Adds a lane's runnable decode step; 0 or -ENOMEM (nothing added). */
MUST_CHECK int batch_add(struct batch *b, struct sched_lane *lane);
/* None of its steps stays in it, which are runnable as before. */
void batch_empty(struct batch *b);
/* Makes the next slice of a lane's step the batch. 0 or -ENOMEM. */
MUST_CHECK int batch_add_slice(struct batch *b, struct sched_lane *lane);
/* Plans and starts what was added. A fault fails the batch's steps; then nothing is in flight. */
void batch_submit(struct batch *b);
/* Finishes the batch if the backend has. Returns whether it is finished. */
bool batch_poll(struct batch *b);
/* The backend is gone: the steps of the batch fail. */
void batch_fail(struct batch *b);
/* The model is about to go: nothing planned for it is kept. */
void batch_forget_model(struct batch *b, const struct sched_model *model);
void batch_done(struct batch *b);

#endif
