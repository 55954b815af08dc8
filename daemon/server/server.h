/*
 * server.h - the loop thread's side of the daemon: who is connected, what is under way, when to
 * stop.
 *
 *      listener --> session --> control --> request --> scheduler
 *                      ^                       |
 *                      +------- reply <--------+  server_reap
 *
 * One thread, the loop's.
 */
#ifndef COPPICED_SERVER_H
#define COPPICED_SERVER_H

#include "control.h"
#include "guardian_link.h"
#include "listen.h"
#include "daemon/loop/loop.h"
#include "daemon/sched/sched.h"
#include "service.h"
#include "session.h"
#include "signals.h"

/* What the server is made of; all borrowed until server_done. */
struct server_parts {
	const struct config *config;
	struct loop *loop;
	struct sched *sched;
	const struct abi_board *board;
	int board_fd;
	const char *backend_name;
};

struct server {
	struct server_parts parts;
	struct listener listener;
	struct service service;
	struct guardian_link guardian;
	struct signals signals;
	struct loop_op answers; /* the scheduler's reply descriptor */
	struct loop_op grace;
	struct session_list sessions;
	uint32_t n_connections;
	uint64_t device_bytes; /* of device arenas, those of ending sessions too */
	uint64_t last_session;
	uint64_t started_ns;
	bool stopping;
	bool forced; /* stopped with things still under way: leave without tearing down */
	int status; /* exit status */
	uint8_t packet[CHANNEL_MAX_BYTES]; /* the reply being packed */
	struct unpack_arena unpack; /* the message being served */
};

/* Takes the listener over. 0 or -errno (said in the log). */
int server_init(struct server *server, const struct server_parts *parts, struct listener *listener);
void server_done(struct server *server);
/* Serves until told to stop by a signal or by a failure. Returns the exit status; see also forced.
 * Blocks. */
int server_run(struct server *server);

/* Ends all sessions, then the loop. A second call ends the loop at once. */
void server_stop(struct server *server, int status);
/* A session is gone for good; the last one lets a stopping server end. */
void server_session_gone(struct server *server);

/* CLOCK_MONOTONIC */
uint64_t server_now_ns(void);

#endif
