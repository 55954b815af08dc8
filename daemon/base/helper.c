/* helper.c - the hand-over to a thread and back: `under_way`, under the lock. */
#include "helper.h"

#include "kernels/thread.h"

void helper_init(struct helper *e, const char *name, void (*run)(void *ctx), void *ctx)
{
	*e = (struct helper){.name = name, .run = run, .ctx = ctx};
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
}

static void *helper_main(void *arg)
{
	struct helper *e = arg;

	pthread_mutex_lock(&e->lock);
	while (!e->stopping) {
		if (!helper_is_under_way(e)) {
			pthread_cond_wait(&e->changed, &e->lock);
			continue;
		}
		pthread_mutex_unlock(&e->lock);
		e->run(e->ctx);
		pthread_mutex_lock(&e->lock);
		atomic_store(&e->under_way, false);
		pthread_cond_broadcast(&e->changed);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

void helper_await(struct helper *e)
{
	if (!e->started)
		return;
	pthread_mutex_lock(&e->lock);
	while (helper_is_under_way(e))
		pthread_cond_wait(&e->changed, &e->lock);
	pthread_mutex_unlock(&e->lock);
}

bool helper_start(struct helper *e)
{
	if (!e->started)
		e->started = thread_start(e->name, helper_main, e, &e->thread) == 0;
	if (!e->started)
		return false;
	helper_await(e);
	pthread_mutex_lock(&e->lock);
	atomic_store(&e->under_way, true);
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	return true;
}

void helper_done(struct helper *e)
{
	helper_await(e);
	if (e->started) {
		pthread_mutex_lock(&e->lock);
		e->stopping = true;
		pthread_cond_broadcast(&e->changed);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
	}
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->changed);
}
