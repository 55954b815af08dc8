/*
 * job.h - all steps of one model and layer in a batch, as the backend wants them: the tree of their
 * paths, a plan, and where their tensors lie. Tree and plan are kept from batch to batch: the next
 * layer's are the same, and so, but for one token more at the end of each sequence, are the next
 * token's. Where lanes take turns, those of each turn are kept.
 */
#ifndef COPPICED_JOB_H
#define COPPICED_JOB_H

#include "daemon/sched/core/state.h"

struct batch;
struct sched;

/* A query as it was planned: as long as all this is so, the plan holds. */
struct batch_planned {
	uint64_t handle;
	uint64_t path_version;
	uint32_t n_tokens; /* before the new ones */
	uint32_t n_new;
};

/* Arrays grow, and are kept from batch to batch. */
struct batch_job {
	struct sched_model *model;
	uint32_t layer;
	uint32_t n_lanes;
	struct work_tree tree;
	struct work_list list; /* owned */
	struct plan_config plan;
	struct work_node *nodes; /* owned, as the arrays below */
	struct work_slice *slices;
	struct work_query *queries;
	struct backend_io *io;
	uint32_t nodes_room, slices_room, queries_room, io_room;
	uint64_t plan_id; /* of the list above */
	bool advanced; /* the plan has tokens that tree and list lack */
	bool ends_soon; /* the plan has room for few more */
	struct backend_io *since; /* owned: slots of a token that came meanwhile */
	uint32_t since_room;
	struct batch_planned *planned; /* owned: whom tree and list are for, in order of queries */
	uint32_t planned_room, n_planned;
	uint64_t used; /* grows with each use; 0: nothing is kept */
};

/* The batch's next, for which there is room, with what is kept of the model, or else was used
 * longest ago: what others keep stays. */
struct batch_job *job_choose(struct batch *b, const struct sched_model *model);
/* Of this model and layer, without steps; what is kept of an earlier use stays if it is of the same
 * model. */
void job_init(struct sched *s, struct batch_job *job, struct sched_model *model, uint32_t layer);
/* For those of the batch's steps that are the job's, or the slice that the batch is. 0, -ENOMEM, or
 * the planner's. */
int job_make(struct sched *s, struct batch_job *job);
/* Of one whose plan is made ahead: are its sequences still where it may serve their next tokens? */
bool job_may_serve(const struct sched *s, const struct batch_job *job);
/* Its tree alone, and a number for the plan to come. 0 or -ENOMEM. */
int job_make_tree(struct sched *s, struct batch_job *job);
/* Borrows from the job. */
struct backend_job job_for_backend(const struct sched *s, const struct batch_job *job);
void job_done(struct batch_job *job);

#endif
