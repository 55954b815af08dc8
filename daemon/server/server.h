/*
 * server.h - the loop thread's side of the daemon: who is connected, what is under way, when to
 * stop.
 *
 *      listener --> connection --> control --> request --> scheduler
 *                        ^                        |
 *                        +------- answer <--------+  server.c reaps
 *
 * One thread, the loop's.
 */
#ifndef COPPICED_SERVER_H
#define COPPICED_SERVER_H

#include "proto/must_check.h"
#include "daemon/control/control.h"
#include "daemon/session/session.h"
#include "listen.h"
#include "service.h"
#include "signals.h"

/* What the server is made of; all borrowed until server_done. */
struct server_parts {
	const struct config *config;
	struct loop *loop;
	struct sched *sched;
	const struct abi_board *board;
	int board_fd;
	const char *backend_name;
	struct weights_table *weights; /* NULL: the backend holds none */
};

struct server {
	struct sessions sessions;
	struct listener listener;
	struct service service;
	struct shm_pages pages;
	struct signals signals;
	struct loop_op answers; /* the scheduler's reply descriptor */
	struct loop_op grace;
	bool forced; /* stopped with things still under way: leave without tearing down */
	int status; /* exit status */
	struct unpack_arena unpack; /* the message being served */
};

/* Takes the listener over. 0 or -errno (said in the log). */
MUST_CHECK int server_init(struct server *server, const struct server_parts *parts,
			   struct listener *listener);
void server_done(struct server *server);
/* Serves until told to stop by a signal or by a failure. Returns the exit status; see also forced.
 * Blocks. */
MUST_CHECK int server_run(struct server *server);

#endif
