/*
 * server.c - start, stop, and the way back from the scheduler.
 *
 * A stop ends all sessions and then the loop. It is given five seconds: what hangs then (a device,
 * a client's process) is left behind, and a second signal does not wait for them either.
 */
#include "server.h"

#include "proto/clock.h"
#include "daemon/base/log.h"
#include "daemon/session/begin.h"
#include "daemon/session/life.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(5000000000)

/* Ends all sessions, then the loop. A second call ends the loop at once. */
static void stop(struct server *server, int status)
{
	struct sessions *sessions = &server->sessions;

	if (server->status == 0)
		server->status = status;
	if (sessions->stopping) {
		server->forced = true;
		loop_stop(sessions->loop);
		return;
	}
	service_stopping(&server->service);
	listener_stop(&server->listener);
	loop_timer(sessions->loop, &server->grace, GRACE_NS, 0);
	sessions_stop(sessions);
	if (sessions->n_connections == 0)
		loop_stop(sessions->loop);
}

static void on_emptied(struct sessions *sessions)
{
	loop_stop(sessions->loop);
}

static void on_signal(void *user, const char *signal)
{
	struct server *server = user;

	if (signal && server->sessions.stopping)
		log_warning("%s again: leaving at once", signal);
	else if (signal)
		log_info("%s: stopping", signal);
	stop(server, signal ? 0 : 1);
}

static void on_answers(struct loop_op *op, int result)
{
	struct server *server = op->user;
	struct sched *sched = server->sessions.sched;
	struct sched_request *answer;
	uint64_t n;

	if (result < 0) {
		log_error("the scheduler's answers cannot be waited for: %s", strerror(-result));
		stop(server, 1);
		return;
	}
	if (read(sched_reply_fd(sched), &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_warning("the scheduler's descriptor cannot be read: %s", strerror(errno));
	while ((answer = sched_reap(sched)))
		request_back(answer->cookie);
	if (sched_failed(sched) && !server->sessions.stopping) {
		log_error("leaving, to be started anew");
		stop(server, 1);
	}
}

static void on_grace(struct loop_op *op, int result)
{
	struct server *server = op->user;

	if (result < 0)
		return;
	log_error("%u sessions did not end within 5 s; leaving without them",
		  server->sessions.n_connections);
	server->status = 1;
	server->forced = true;
	loop_stop(server->sessions.loop);
}

static void sessions_init(struct server *server, const struct server_parts *parts)
{
	server->sessions = (struct sessions){
		.config = parts->config,
		.loop = parts->loop,
		.sched = parts->sched,
		.board = parts->board,
		.board_fd = parts->board_fd,
		.backend_name = parts->backend_name,
		.pages = &server->pages,
		.weights = parts->weights,
		.unpack = &server->unpack,
		.emptied = on_emptied,
		.started_ns = clock_now_ns(),
	};
	TAILQ_INIT(&server->sessions.list);
	errands_init(&server->sessions.errands, parts->loop);
	lent_init(&server->sessions.lent);
}

/* What there may be beside those that the daemon has itself: the lowest free one is above them. */
static uint64_t fds_for_clients(int listener_fd)
{
	struct rlimit limit;
	int lowest = fcntl(listener_fd, F_DUPFD_CLOEXEC, 0);

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || lowest < 0)
		return 0;
	close(lowest);
	return limit.rlim_cur < (rlim_t)lowest ? 0 : limit.rlim_cur - (rlim_t)lowest;
}

int server_init(struct server *server, const struct server_parts *parts, struct listener *listener)
{
	int r;

	*server = (struct server){
		.answers = {.callback = on_answers, .user = server},
		.grace = {.callback = on_grace, .user = server},
	};
	sessions_init(server, parts);
	server->sessions.max_fds = fds_for_clients(listener->fd);
	r = signals_init(&server->signals, parts->loop, on_signal, server);
	if (r < 0) {
		log_error("signals cannot be had as a descriptor: %s", strerror(-r));
		lent_done(&server->sessions.lent);
		return r;
	}
	r = shm_pages_init(&server->pages, parts->loop);
	if (r < 0) {
		log_error("no thread for the pages of arenas: %s", strerror(-r));
		lent_done(&server->sessions.lent);
		signals_done(&server->signals);
		return r;
	}
	server->listener = *listener;
	listener->fd = -1;
	listener_start(&server->listener, &server->sessions);
	service_init(&server->service, &server->sessions);
	loop_poll(parts->loop, &server->answers, sched_reply_fd(parts->sched), POLLIN);
	return 0;
}

void server_done(struct server *server)
{
	listener_done(&server->listener);
	shm_pages_done(&server->pages);
	lent_done(&server->sessions.lent);
	signals_done(&server->signals);
}

int server_run(struct server *server)
{
	int r;

	service_ready();
	r = loop_run(server->sessions.loop);
	if (r < 0) {
		log_error("the event loop failed: %s", strerror(-r));
		server->forced = true;
		return 1;
	}
	return server->status;
}
