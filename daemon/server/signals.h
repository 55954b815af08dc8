/*
 * signals.h - SIGTERM and SIGINT stop the daemon, a second one at once; SIGHUP is answered in the
 * log.
 */
#ifndef COPPICED_SIGNALS_H
#define COPPICED_SIGNALS_H

#include "daemon/loop/loop.h"

struct server;

struct signals {
	int fd; /* owned */
	struct loop_op op;
};

/* Before the first thread starts, so that all inherit it: they come through the descriptor
 * alone. */
void signals_block(void);
/* While the loop does not run yet and this thread waits for long: may SIGTERM and SIGINT end the
 * process at once? */
void signals_end(bool may);
/* 0 or -errno. */
int signals_init(struct signals *signals, struct server *server);
void signals_done(struct signals *signals);

#endif
