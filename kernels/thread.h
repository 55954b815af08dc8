/*
 * thread.h - how a thread begins: with all signals blocked, as they are for threads that expect
 * them, and with a name that tools show.
 */
#ifndef COPPICE_KERNELS_THREAD_H
#define COPPICE_KERNELS_THREAD_H

#include "proto/must_check.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Whatever the caller's mask. name: 15 characters at most; NULL: the thread names itself. 0 or
 * -errno. */
MUST_CHECK static inline int thread_start(const char *name, void *(*body)(void *), void *arg,
					  pthread_t *ret)
{
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, NULL, body, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return -r;
	if (name)
		pthread_setname_np(thread, name);
	*ret = thread;
	return 0;
}

#endif
