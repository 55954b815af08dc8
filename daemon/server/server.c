/*
 * server.c - start, stop, and the way back from the scheduler.
 */
#include "server.h"

#include "daemon/base/log.h"
#include "request.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(5000000000)

uint64_t server_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void on_answers(struct loop_op *op, int result)
{
	struct server *server = op->user;
	struct sched_request *answer;
	uint64_t n;

	if (result < 0) {
		log_error("the scheduler's answers cannot be waited for: %s", strerror(-result));
		server_stop(server, 1);
		return;
	}
	if (read(sched_reply_fd(server->parts.sched), &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_warning("the scheduler's descriptor cannot be read: %s", strerror(errno));
	while ((answer = sched_reap(server->parts.sched)))
		request_over(answer->cookie);
	if (sched_failed(server->parts.sched) && !server->stopping) {
		log_error("leaving, to be started anew");
		server_stop(server, 1);
	}
}

static void on_grace(struct loop_op *op, int result)
{
	struct server *server = op->user;

	if (result < 0)
		return;
	log_error("%u sessions did not end within 5 s; leaving without them",
		  server->n_connections);
	server->status = 1;
	server->forced = true;
	loop_stop(server->parts.loop);
}

int server_init(struct server *server, const struct server_parts *parts, struct listener *listener)
{
	int r;

	*server = (struct server){.parts = *parts, .started_ns = server_now_ns()};
	TAILQ_INIT(&server->sessions);
	server->answers = (struct loop_op){.callback = on_answers, .user = server};
	server->grace = (struct loop_op){.callback = on_grace, .user = server};
	r = signals_init(&server->signals, server);
	if (r < 0) {
		log_error("signals cannot be had as a descriptor: %s", strerror(-r));
		return r;
	}
	server->listener = *listener;
	listener->fd = -1;
	listener_start(&server->listener, server);
	service_init(&server->service, server);
	guardian_link_init(&server->guardian, server);
	loop_poll(parts->loop, &server->answers, sched_reply_fd(parts->sched), POLLIN);
	return 0;
}

void server_done(struct server *server)
{
	listener_done(&server->listener);
	guardian_link_done(&server->guardian);
	signals_done(&server->signals);
}

int server_run(struct server *server)
{
	int r;

	service_ready();
	r = loop_run(server->parts.loop);
	if (r < 0) {
		log_error("the event loop failed: %s", strerror(-r));
		server->forced = true;
		return 1;
	}
	return server->status;
}

void server_stop(struct server *server, int status)
{
	struct session *s, *next;

	if (server->status == 0)
		server->status = status;
	if (server->stopping) {
		server->forced = true;
		loop_stop(server->parts.loop);
		return;
	}
	server->stopping = true;
	service_stopping(&server->service);
	listener_stop(&server->listener);
	for (s = TAILQ_FIRST(&server->sessions); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		session_end(s, "the daemon stops");
		session_settle(s);
	}
	loop_timer(server->parts.loop, &server->grace, GRACE_NS, 0);
	if (server->n_connections == 0)
		loop_stop(server->parts.loop);
}

void server_session_gone(struct server *server)
{
	server->n_connections--;
	if (server->stopping && server->n_connections == 0)
		loop_stop(server->parts.loop);
}
