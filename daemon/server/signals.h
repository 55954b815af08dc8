/*
 * signals.h - SIGTERM and SIGINT stop the daemon, a second one at once; SIGHUP is answered in the
 * log.
 */
#ifndef COPPICED_SIGNALS_H
#define COPPICED_SIGNALS_H

#include "proto/must_check.h"
#include "daemon/loop/loop.h"

struct signals {
	int fd; /* owned */
	struct loop_op op;
	/* A signal says to stop; NULL: signals cannot be waited for any more. */
	void (*stop)(void *user, const char *signal);
	void *user; /* borrowed */
};

/* They are blocked (base/threads.h), so that they come through the descriptor alone. 0 or
 * -errno. */
MUST_CHECK int signals_init(struct signals *signals, struct loop *loop,
			    void (*stop)(void *user, const char *signal), void *user);
void signals_done(struct signals *signals);

#endif
