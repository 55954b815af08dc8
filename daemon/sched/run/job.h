/*
 * job.h - all steps of one model and layer in a batch, as the backend wants them: the tree of their
 * paths, a plan, and where their tensors lie.
 */
#ifndef COPPICED_JOB_H
#define COPPICED_JOB_H

#include "plan_ahead.h"
#include "plan_cache.h"

/* How jobs come by their plans. */
struct plans {
	struct sched_core *core; /* borrowed */
	struct plan_cache cache;
	struct plan_ahead ahead;
	uint64_t n_trees; /* made, ever: tells nodes of the tree being made from others */
	/* of the tree being made: what each query's path adds, from its end up, and where that
	 * ends; owned */
	struct store_node **path;
	uint32_t *ends;
	uint32_t n_path, path_room, n_ends, ends_room;
};

/* Arrays grow, and are kept from batch to batch. */
struct batch_job {
	struct sched_model *model;
	uint32_t layer;
	struct plan_config config; /* the model's */
	struct sched_lane **lanes; /* owned; borrowed lanes */
	/* of the parts of all its steps, in order of lanes; owned, as the arrays below */
	const struct step_part **parts;
	struct plan_query *queries;
	struct backend_io *io;
	struct backend_io *since; /* slots of a token that came meanwhile */
	struct work_slice *cut; /* where rows of drafts lie whose others are in other jobs */
	uint64_t paths; /* run/fit.c: number of its paths */
	bool weighed; /* something of it was */
	uint32_t n_lanes, n_parts;
	uint32_t n_walked; /* nodes of paths, for a plan that was made now */
	uint32_t n_cut;
	uint32_t lanes_room, parts_room, queries_room, io_room, since_room, cut_room;
	struct plan *plan; /* borrowed from the cache while the batch is under way; NULL: none */
	/* Of a program: rows of sequences that no step brings may take so much, where a kept plan
	 * has them; 0: there are none. */
	double spare_ns;
	uint32_t spare_rows;
	struct step_part *absent; /* owned, the parts that stand for these, of no new tokens */
	uint32_t n_absent, absent_room;
};

/* Rows [row, row + n_rows) of a part. */
struct part_rows {
	const struct step_part *part;
	uint32_t row, n_rows;
};

/* What of a step a batch has: run/slice.h. */
struct slice {
	struct part_rows *rows; /* owned, of one part after the other */
	uint32_t n, room;
	double ns; /* that it is modelled to take */
	bool chooses; /* the blocks that its rows see: sparse prefill */
};

/* Rows of a sequence that a job to come has, behind those that are live now. */
struct next_rows {
	const struct sched_seq *seq;
	uint32_t n_rows;
	uint32_t first_slot, n_slots; /* where they are to lie, of all that are foreseen */
	/* their place in the job */
	uint64_t lane;
	uint32_t part;
};

/* What such a job has; arrays grow. */
struct next_job {
	struct next_rows *rows; /* owned, in order of their places */
	struct store_slice *slots; /* owned */
	uint32_t n_rows, rows_room, n_slots, slots_room;
	struct store_foresight foresight; /* where the next of them will lie */
};

void plans_init(struct plans *p, struct sched_core *core);
void plans_forget_model(struct plans *p, const struct sched_model *model);
void plans_done(struct plans *p);

/* A lane's step is the job's; of a job that has none its model and layer are the job's too. 0 or
 * -ENOMEM, nothing added. */
MUST_CHECK int job_add(const struct sched_core *core, struct batch_job *job,
		       struct sched_lane *lane);
/* A batch's jobs as the backend is to have them, which borrow from these: by plans that were made
 * ahead, or are kept, or are made now. Nothing may change in the store from here to the end of the
 * batch. 0, -ENOMEM, or the planner's. */
MUST_CHECK int jobs_plan(struct plans *p, struct batch_job *jobs, uint32_t n_jobs,
			 struct backend_job *ret_jobs);
/* The same of one that is a slice, whose plan nobody keeps. */
MUST_CHECK int job_plan_slice(struct plans *p, struct batch_job *job, const struct slice *slice,
			      struct backend_job *ret_job);
/* The batch was submitted, and the job's plan ends soon: the one to follow is begun. */
void job_plan_ahead(struct plans *p, struct batch_job *job);
/* The job was submitted, and all of its parts, which are no drafts, are expected to come again for
 * one token each: a plan for that is begun. */
void job_foresee(struct plans *p, struct batch_job *job);
/* While the job is under way: a plan for what is to come next, of the same model, is begun. It
 * serves if that comes so, and lies where it was foreseen. */
void job_foresee_next(struct plans *p, const struct batch_job *job, const struct next_job *next);
void job_done(struct batch_job *job);

/* The job is to see these blocks alone, if the backend makes of them what it needs by itself.
 * False: it does not, and the job is as it was. */
bool job_see_chosen(const struct sched_core *core, struct backend_job *job,
		    const struct backend_chosen *chosen);

/* Some KV heads, and the blocks that they see: of each query of the tree its own. */
struct job_heads {
	uint32_t head, n_heads;
	const struct select_query *seen;
	uint32_t block_tokens;
	const struct plan_config *config;
	struct work_list *list; /* which is made */
};

/* The part of a job that is these heads'. 0, -ENOMEM, or the planner's. */
MUST_CHECK int job_for_heads(const struct backend_job *whole, const struct job_heads *heads,
			     struct backend_job *ret);

/* What the planner is to know of the host, or the device. */
void job_config(const struct sched_core *core, const struct work_shape *shape,
		enum plan_policy policy, struct plan_config *ret);

#endif
