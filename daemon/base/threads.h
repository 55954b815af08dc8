/*
 * threads.h - signals and threads: SIGTERM, SIGINT and SIGHUP are read from a descriptor by the
 * loop, so no thread may take them.
 */
#ifndef COPPICED_THREADS_H
#define COPPICED_THREADS_H

#include "proto/must_check.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* The signals that a descriptor is read for. */
void threads_signals(sigset_t *ret);
/* Before the first thread starts, so that all inherit it. SIGPIPE is ignored from then on. */
void threads_block_signals(void);
/* Starts a thread that takes no signal at all, whatever the caller's mask. 0 or -errno. */
MUST_CHECK int threads_start(pthread_t *ret, void *(*body)(void *), void *arg);
/* While the loop does not run yet and this thread waits for long: may SIGTERM and SIGINT end the
 * process at once? */
void threads_let_end(bool may);

#endif
