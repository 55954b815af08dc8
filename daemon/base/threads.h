/*
 * threads.h - signals and threads: SIGTERM, SIGINT and SIGHUP are read from a descriptor by the
 * loop, so no thread may take them.
 */
#ifndef COPPICED_THREADS_H
#define COPPICED_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* The signals that a descriptor is read for. */
void threads_signals(sigset_t *ret);
/* Before the first thread starts, so that all inherit it. SIGPIPE is ignored from then on. */
void threads_block_signals(void);
/* While the loop does not run yet and this thread waits for long: may SIGTERM and SIGINT end the
 * process at once? */
void threads_let_end(bool may);

#endif
