/*
 * aside.c - a call is under way from begin until the thread has made it: end waits for that, and
 * the thread waits for the next one, or the end of its owner.
 */
#include "aside.h"

#include "kernels/thread.h"

/* Under the lock, which it leaves meanwhile. */
static void make_call(struct aside *a)
{
	pthread_mutex_unlock(&a->lock);
	a->call(a->arg);
	pthread_mutex_lock(&a->lock);
	atomic_store(&a->under_way, false);
	pthread_cond_broadcast(&a->changed);
}

static void *aside_main(void *arg)
{
	struct aside *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->over) {
		if (aside_is_under_way(a))
			make_call(a);
		else
			pthread_cond_wait(&a->changed, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

void aside_init(struct aside *a, const char *name)
{
	*a = (struct aside){.name = name};
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
}

void aside_done(struct aside *a)
{
	if (a->there) {
		aside_end(a);
		pthread_mutex_lock(&a->lock);
		a->over = true;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
		pthread_join(a->thread, NULL);
	}
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
}

void aside_begin(struct aside *a, void (*call)(void *arg), void *arg)
{
	if (!a->there)
		a->there = thread_start(a->name, aside_main, a, &a->thread) == 0;
	if (!a->there) {
		call(arg);
		return;
	}
	aside_end(a);
	pthread_mutex_lock(&a->lock);
	a->call = call;
	a->arg = arg;
	atomic_store(&a->under_way, true);
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void aside_end(struct aside *a)
{
	if (!aside_is_under_way(a))
		return;
	pthread_mutex_lock(&a->lock);
	while (aside_is_under_way(a))
		pthread_cond_wait(&a->changed, &a->lock);
	pthread_mutex_unlock(&a->lock);
}
