/*
 * job_wide.c - rows for who has not come, so that a plan which has them is not made anew.
 *
 * Where many decode together somebody is late with nearly every token. To plan for the others alone
 * takes longer than his row does: the row of his last token once more, which nobody wants, and
 * whose K and V are there. A plan that is as large as before is no better for who stays away for
 * good, as his sequence goes sooner or later; until then another one is made ahead.
 */
#include "job_wide.h"

#include "job_tree.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"
#include "daemon/sched/core/turns.h"

/* NULL: it is gone, or has no last token that may be computed again. */
static struct sched_seq *absent_seq(const struct plans *p, const struct plan_query *planned)
{
	struct sched_seq *seq = handle_seq(&p->core->seqs, planned->handle);

	if (!seq || seq->draft || store_seq_n_live(seq->store) > 0 ||
	    store_seq_n_tokens(seq->store) == 0)
		return NULL;
	return seq;
}

/* Its last token once more. */
static struct plan_query last_query(const struct sched_seq *seq, uint64_t handle)
{
	struct store_seq_view view = store_seq_view(seq->store);

	return (struct plan_query){.handle = handle,
				   .path_version = view.path_version,
				   .n_tokens = view.n_tokens - 1,
				   .n_new = 1,
				   .n_last = view.n_last};
}

static bool is_here(const struct batch_job *job, uint32_t part, const struct plan_query *planned)
{
	return part < job->n_parts && job->queries[part].handle == planned->handle;
}

static bool is_absent_as_planned(const struct plans *p, const struct plan_query *planned)
{
	const struct sched_seq *seq = absent_seq(p, planned);
	struct plan_query now;

	if (!seq)
		return false;
	now = last_query(seq, planned->handle);
	return plan_query_fit(planned, &now, PLAN_LATER) != PLAN_FITS_NOT;
}

/* Are the job's own sequences all in the plan, in order, and the plan's others such as may be
 * added, all of them where the plan can serve them? */
static bool serves_all(const struct plans *p, const struct batch_job *job, const struct plan *plan)
{
	uint32_t part = 0;

	for (uint32_t q = 0; q < plan->n_planned; q++) {
		const struct plan_query *planned = &plan->planned[q];

		if (!is_here(job, part, planned)) {
			if (!is_absent_as_planned(p, planned))
				return false;
			continue;
		}
		if (plan_query_fit(planned, &job->queries[part++], PLAN_LATER) == PLAN_FITS_NOT)
			return false;
	}
	return part == job->n_parts;
}

/* What its row takes beside those that were asked about before. */
static double absent_ns(uint64_t paths, const struct sched_model *m, const struct sched_seq *seq)
{
	struct path_added added = paths_add(paths, seq);
	uint32_t n_tokens = store_seq_n_tokens(seq->store);

	return m->shape.n_layers * (work_ns(m, n_tokens, 0) + work_ns(m, 0, added.n_tokens)) +
	       added.n_nodes * NODE_NS;
}

/* Is there time for the others' rows? All paths are walked for it: of a plan that serves. */
static bool is_worth_it(struct plans *p, const struct batch_job *job, const struct plan *plan)
{
	uint64_t paths = paths_begin(p);
	uint32_t part = 0;
	double ns = 0;

	for (uint32_t i = 0; i < job->n_parts; i++)
		paths_add(paths, job->parts[i]->seq);
	for (uint32_t q = 0; q < plan->n_planned && ns <= job->spare_ns; q++)
		if (is_here(job, part, &plan->planned[q]))
			part++;
		else
			ns += absent_ns(paths, job->model, absent_seq(p, &plan->planned[q]));
	return ns <= job->spare_ns;
}

static int grow(struct batch_job *job, uint32_t n)
{
	if (GROW(job->parts, job->parts_room, n) < 0 ||
	    GROW(job->queries, job->queries_room, n) < 0 || GROW(job->io, job->io_room, n) < 0 ||
	    GROW(job->absent, job->absent_room, n) < 0)
		return -ENOMEM;
	return 0;
}

static void put_absent(const struct plans *p, struct batch_job *job, uint32_t at, uint64_t handle)
{
	struct sched_seq *seq = handle_seq(&p->core->seqs, handle);
	struct step_part *part = &job->absent[job->n_absent++];

	*part = (struct step_part){.seq = seq};
	job->parts[at] = part;
	job->io[at] = (struct backend_io){0};
	job->queries[at] = last_query(seq, handle);
}

bool job_widen(struct plans *p, struct batch_job *job, const struct plan *plan)
{
	uint32_t part = job->n_parts, n = plan->n_planned;

	if (plan->model != job->model || n <= part || n - part > job->spare_rows ||
	    !serves_all(p, job, plan) || !is_worth_it(p, job, plan) || grow(job, n) < 0)
		return false;
	job->n_parts = n;
	for (uint32_t q = n; q-- > 0;) {
		if (part == 0 || job->queries[part - 1].handle != plan->planned[q].handle) {
			put_absent(p, job, q, plan->planned[q].handle);
			continue;
		}
		part--;
		job->parts[q] = job->parts[part];
		job->queries[q] = job->queries[part];
		job->io[q] = job->io[part];
	}
	return true;
}
