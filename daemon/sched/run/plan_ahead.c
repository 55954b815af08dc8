/* plan_ahead.c - see plan_ahead.h. */
#include "plan_ahead.h"

#include "daemon/base/threads.h"
#include "daemon/sched/sched_impl.h"

#include <sys/prctl.h>

#define TURN_USES 1024u /* of plans, after which who has not taken one will not */

void renewal_init(struct renewal *r)
{
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
}

static int make_plan(const struct renewal *r, struct batch_job *job)
{
	int result = plan_make(&job->plan, &job->tree, &job->list);
	const struct backend_job planned = {.shape = &job->model->shape,
					    .tree = &job->tree,
					    .list = &job->list,
					    .plan_id = job->plan_id};

	return result < 0 ? result : r->ops->prepare(r->backend, &planned);
}

static void *renewal_main(void *arg)
{
	struct renewal *r = arg;

	prctl(PR_SET_NAME, "coppice-plan");
	pthread_mutex_lock(&r->lock);
	while (!r->stopping) {
		if (atomic_load(&r->state) != RENEWAL_MAKING) {
			pthread_cond_wait(&r->changed, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		int result = make_plan(r, &r->job);

		pthread_mutex_lock(&r->lock);
		atomic_store(&r->state, result < 0 ? RENEWAL_NONE : RENEWAL_MADE);
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* Without a thread batches make their plans themselves. */
static bool start_thread(struct renewal *r, struct sched *s)
{
	r->ops = s->ops;
	r->backend = s->backend;
	r->started = threads_start(&r->thread, renewal_main, r) == 0;
	return r->started;
}

/* What has been made is for other lanes, whose turn comes. */
static bool is_spoken_for(const struct sched *s, const struct renewal *r,
			  const struct batch_job *job)
{
	return atomic_load(&r->state) == RENEWAL_MADE &&
	       r->job.planned[0].handle != job->planned[0].handle &&
	       s->batch.uses - r->begun < TURN_USES && job_may_serve(s, &r->job);
}

void renewal_begin(struct sched *s, const struct batch_job *job)
{
	struct renewal *r = &s->batch.renewal;

	if (!s->ops->prepare || atomic_load(&r->state) == RENEWAL_MAKING ||
	    is_spoken_for(s, r, job))
		return;
	r->begun = s->batch.uses;
	atomic_store(&r->state, RENEWAL_NONE);
	job_init(s, &r->job, job->model, job->layer);
	if (job_make_tree(s, &r->job) < 0 || (!r->started && !start_thread(r, s)))
		return;
	pthread_mutex_lock(&r->lock);
	atomic_store(&r->state, RENEWAL_MAKING);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

struct batch_job *renewal_made(struct renewal *r)
{
	return atomic_load(&r->state) == RENEWAL_MADE ? &r->job : NULL;
}

void renewal_taken(struct renewal *r)
{
	r->n_taken++;
	atomic_store(&r->state, RENEWAL_NONE);
}

static void await_thread(struct renewal *r)
{
	if (!r->started)
		return;
	pthread_mutex_lock(&r->lock);
	while (atomic_load(&r->state) == RENEWAL_MAKING)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

void renewal_forget_model(struct renewal *r, const struct sched_model *model)
{
	if (r->job.model != model)
		return;
	await_thread(r);
	atomic_store(&r->state, RENEWAL_NONE);
	r->job.model = NULL;
}

void renewal_done(struct renewal *r)
{
	await_thread(r);
	if (r->started) {
		pthread_mutex_lock(&r->lock);
		r->stopping = true;
		pthread_cond_broadcast(&r->changed);
		pthread_mutex_unlock(&r->lock);
		pthread_join(r->thread, NULL);
	}
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->changed);
	job_done(&r->job);
}
