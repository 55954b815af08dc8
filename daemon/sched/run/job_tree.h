/*
 * job_tree.h - the tree of a job's paths as the planner wants it, in a plan of the cache, and what
 * paths have in common.
 */
#ifndef COPPICED_JOB_TREE_H
#define COPPICED_JOB_TREE_H

#include "job.h"

/* Of all steps of the job, without who is absent, and a number for the plan to come. 0 or -ENOMEM,
 * as below. */
MUST_CHECK int tree_make(struct plans *p, struct plan *plan, const struct batch_job *job);
/* The same of each part's last row alone, as if the others had been there before: where the parts
 * come again, each for the next token, the plan takes that in. */
MUST_CHECK int tree_make_of_last(struct plans *p, struct plan *plan, const struct batch_job *job);
/* Of rows to come, as if what is live now were there. */
MUST_CHECK int tree_make_next(struct plans *p, struct plan *plan, const struct batch_job *job,
			      const struct next_job *next);
/* Of the slice's rows alone; not yet lent. */
MUST_CHECK int tree_make_slice(struct plans *p, struct plan *plan, const struct batch_job *job,
			       const struct slice *slice);
/* Tokens [first, first + count) of a run of slices, behind the tree's; or one by one. */
MUST_CHECK int tree_add_tokens(struct plan *plan, const struct store_slice *slices, uint32_t first,
			       uint32_t count);
MUST_CHECK int tree_add_each_token(struct plan *plan, const struct store_slice *slices,
				   uint32_t first, uint32_t count);
/* Its arrays may have moved. */
void tree_lend(struct plan *plan);

/* What paths have in common: a number for those that are to be counted together. */
static inline uint64_t paths_begin(struct plans *p)
{
	return ++p->n_trees;
}

/* Of the sequence's path what no path of this number had before. */
struct path_added {
	uint32_t n_tokens, n_nodes;
};
struct path_added paths_add(uint64_t paths, const struct sched_seq *seq);
/* The same, and nothing is added; of more than so many nodes one more. */
struct path_added paths_look(uint64_t paths, const struct sched_seq *seq, uint32_t most_nodes);
/* How long the part's path takes beside others', to read and to plan: nothing where it only
 * appends. */
double part_path_ns(uint64_t paths, const struct sched_model *model, const struct step_part *part);

#endif
