/*
 * listen.h - the control socket: made by the daemon, or handed over by a service manager.
 */
#ifndef COPPICED_LISTEN_H
#define COPPICED_LISTEN_H

#include "proto/must_check.h"
#include "daemon/config/config.h"
#include "daemon/loop/loop.h"

struct sessions;

struct listener {
	struct sessions *home; /* borrowed */
	int fd; /* owned */
	char path[108]; /* removed at the end; empty: the socket is the service manager's */
	struct loop_op accept;
	struct loop_op pause; /* after accept failed */
};

/* From the service manager if it gave one, else made at config->socket_path. 0 or -errno, said in
 * the log. */
MUST_CHECK int listener_open(struct listener *listener, const struct config *config);
void listener_start(struct listener *listener, struct sessions *home);
void listener_stop(struct listener *listener); /* no more connections */
void listener_done(struct listener *listener); /* of one never opened, too */

#endif
