/*
 * lend.c - the way out of the daemon's memory, which for a backend may be a copy of all of it: so
 * it has a thread of its own, which the table awaits as it does those that load.
 */
#include "lend.h"

#include "table.h"

#include "kernels/thread.h"

#include <errno.h>

/* Under the lock. 0 with *ret: they are LENT; -EINPROGRESS: the caller makes them so, from here to
 * over; -EAGAIN: another does; else how that failed. */
static int begin_locked(struct weights *weights, struct backend_lent *ret)
{
	int r = weights->lend_error;

	if (r < 0) {
		weights->lend_error = 0;
		return r;
	}
	if (weights->lending == WEIGHTS_LENT)
		*ret = weights->lent;
	if (weights->lending != WEIGHTS_HOME)
		return weights->lending == WEIGHTS_LENT ? 0 : -EAGAIN;
	weights->lending = WEIGHTS_MOVING;
	weights->n_refs++;
	weights->home->n_loads++;
	return -EINPROGRESS;
}

static int begin(struct weights *weights, struct backend_lent *ret)
{
	int r;

	pthread_mutex_lock(&weights->home->lock);
	r = begin_locked(weights, ret);
	pthread_mutex_unlock(&weights->home->lock);
	return r;
}

static void over(struct weights *weights, int code, const struct backend_lent *lent)
{
	pthread_mutex_lock(&weights->home->lock);
	weights->lending = code < 0 ? WEIGHTS_HOME : WEIGHTS_LENT;
	weights->lend_error = code;
	if (code == 0)
		weights->lent = *lent;
	pthread_mutex_unlock(&weights->home->lock);
	weights_thread_over(weights);
}

static void *lend_main(void *arg)
{
	struct weights *weights = arg;
	const struct weights_config *config = weights_config(weights);
	struct backend_lent lent = {0};
	int r;

	pthread_setname_np(pthread_self(), "coppice-lend");
	r = config->ops->program->weights_lend(config->backend, weights->content.memory, &lent);
	over(weights, r, &lent);
	return NULL;
}

static int start(struct weights *weights)
{
	pthread_t thread;
	int r = thread_start(NULL, lend_main, weights, &thread);

	if (r < 0)
		over(weights, r, NULL);
	else
		pthread_detach(thread);
	return -EAGAIN;
}

int weights_lend(struct weights *weights, struct backend_lent *ret)
{
	int r;

	if (!weights_config(weights)->ops->program->weights_lend)
		return -EOPNOTSUPP;
	r = begin(weights, ret);
	return r == -EINPROGRESS ? start(weights) : r;
}
