/*
 * batch_ahead.c - plans made before they are needed, on a thread of the caller's: it has a place to
 * make them in, and hands over what is made; whoever submits takes it when it is asked for, and
 * advances it or gives it to the device. See batch_impl.h.
 */
#include "batch_impl.h"

#include <errno.h>
#include <string.h>

static void swap_ahead(struct batch_ahead *a, struct batch_ahead *b)
{
	struct batch_ahead was = *a;

	*a = *b;
	*b = was;
}

int batch_make_ahead(struct batch *b, const struct backend_job *job)
{
	struct batch_ahead *making = &b->ahead.making;
	struct schedule_want want;
	int r;

	if (shape_page_bytes(b->pool, job->shape, NULL, 0) == 0)
		return -EINVAL;
	if (job->plan_id == 0 || job->list->bounded)
		return -ESTALE;
	want = plan_want(b, job, b->all_blocks);
	r = schedule_make(&making->schedule, &want);
	if (!r)
		r = plan_keep_tails(&making->plan, &making->schedule, job_n_rows(job));
	if (r)
		return r;
	making->plan.plan_id = job->plan_id;
	memcpy(&making->plan.shape, job->shape, sizeof(*job->shape));
	pthread_mutex_lock(&b->ahead.lock);
	swap_ahead(&b->ahead.made, making);
	pthread_mutex_unlock(&b->ahead.lock);
	return 0;
}

static bool is_plan_of(const struct batch_ahead *ahead, const struct backend_job *job)
{
	return job->plan_id != 0 && ahead->plan.plan_id == job->plan_id &&
	       memcmp(&ahead->plan.shape, job->shape, sizeof(*job->shape)) == 0;
}

struct batch_ahead *ahead_find(struct batch *b, const struct backend_job *job)
{
	struct batch_ahead *taken = &b->ahead.taken;

	if (is_plan_of(taken, job))
		return taken;
	pthread_mutex_lock(&b->ahead.lock);
	if (is_plan_of(&b->ahead.made, job)) {
		swap_ahead(taken, &b->ahead.made);
		b->ahead.made.plan.plan_id = 0;
	}
	pthread_mutex_unlock(&b->ahead.lock);
	return is_plan_of(taken, job) ? taken : NULL;
}

static void drop_ahead(struct batch_ahead *ahead)
{
	plan_drop_tails(&ahead->plan);
	schedule_done(&ahead->schedule);
}

void ahead_done(struct batch *b)
{
	drop_ahead(&b->ahead.making);
	drop_ahead(&b->ahead.made);
	drop_ahead(&b->ahead.taken);
	pthread_mutex_destroy(&b->ahead.lock);
}

void ahead_take_schedule(struct batch_ahead *ahead, struct schedule *schedule)
{
	struct schedule was = *schedule;

	*schedule = ahead->schedule;
	ahead->schedule = was;
	ahead->plan.plan_id = 0;
}

void ahead_take_tails(struct batch_ahead *ahead, struct batch_plan *plan)
{
	struct batch_plan *from = &ahead->plan;

	plan_drop_tails(plan);
	plan->tails = from->tails;
	plan->n_tails = from->n_tails;
	plan->growth = from->growth;
	from->tails = NULL;
	from->n_tails = 0;
	from->growth = (struct schedule_growth){0};
}
