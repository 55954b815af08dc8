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

/* 0 or -errno. */
int signals_init(struct signals *signals, struct server *server);
void signals_done(struct signals *signals);

#endif
