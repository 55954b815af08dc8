/*
 * aside.c - a call is there from begin until the thread has made it: end waits for that, and the
 * thread waits for the next one, or the end of its owner.
 */
#include "aside.h"

#include "kernels/thread.h"

#include <stddef.h>

/* Under the lock, which it leaves meanwhile. */
static void make_call(struct aside *a)
{
	pthread_mutex_unlock(&a->lock);
	a->call(a->arg);
	pthread_mutex_lock(&a->lock);
	a->call = NULL;
	pthread_cond_broadcast(&a->changed);
}

static void *aside_main(void *arg)
{
	struct aside *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->over) {
		if (a->call)
			make_call(a);
		else
			pthread_cond_wait(&a->changed, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

void aside_init(struct aside *a)
{
	*a = (struct aside){0};
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	a->there = thread_start(NULL, aside_main, a, &a->thread) == 0;
}

void aside_done(struct aside *a)
{
	if (a->there) {
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
	if (!a->there) {
		call(arg);
		return;
	}
	pthread_mutex_lock(&a->lock);
	a->call = call;
	a->arg = arg;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void aside_end(struct aside *a)
{
	pthread_mutex_lock(&a->lock);
	while (a->call)
		pthread_cond_wait(&a->changed, &a->lock);
	pthread_mutex_unlock(&a->lock);
}
