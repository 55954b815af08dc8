/*
 * session.c - the life of a connection.
 */
#include "session.h"

#include "control.h"
#include "daemon/base/log.h"
#include "reply.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS UINT64_C(10000000000)
/* Connections beyond the sessions' limits, so that who is refused can be told why. */
#define SPARE_CONNECTIONS 32u
#define SPARE_DOMAIN_CONNECTIONS 8u

static struct loop *loop_of(const struct session *session)
{
	return session->server->parts.loop;
}

static void session_receive(struct session *session)
{
	session->iov = (struct iovec){session->packet, sizeof(session->packet)};
	session->msg = (struct msghdr){.msg_iov = &session->iov, .msg_iovlen = 1};
	loop_recvmsg(loop_of(session), &session->receive, session->fd, &session->msg);
}

static void packet_serve(struct session *session, int result)
{
	if (result == 0) {
		session_end(session, "hang-up");
	} else if (result < 0) {
		session_end(session, "%s", strerror(-result));
	} else if (session->msg.msg_flags & MSG_TRUNC) {
		reply_error(session, 0, -EMSGSIZE, NULL,
			    "the message is longer than %u bytes; the connection ends",
			    CHANNEL_MAX_BYTES);
		session_end(session, "a message of more than %u bytes", CHANNEL_MAX_BYTES);
	} else {
		control_serve(session, session->packet, (size_t)result);
	}
}

static void on_receive(struct loop_op *op, int result)
{
	struct session *session = op->user;

	if (session->state != SESSION_ENDING)
		packet_serve(session, result);
	if (session->state == SESSION_ENDING)
		session_settle(session);
	else if (session->state != SESSION_JOINING)
		session_receive(session);
}

static void end_post(struct session *session);

/* What is left may have become nobody's meanwhile. */
static void on_ended(struct request *request)
{
	struct session *session = request->session;

	session->end_posted = false;
	session->sched = request->sched.out.session;
	if (!session->sched)
		loop_cancel(loop_of(session), &session->gone);
	else if (session->has_left)
		end_post(session);
}

/* Embedded in the session: the end cannot fail for want of memory. */
static void end_post(struct session *session)
{
	request_init(&session->end, session->server, session, SCHED_SESSION_END, on_ended);
	session->end.sched.in.keep_device = !session->has_left;
	session->end_posted = true;
	request_post(&session->end);
}

/* Nobody has the device arenas of an ending session open any more, or is to be waited for. */
static void device_arenas_end(struct session *session)
{
	session->has_left = true;
	loop_cancel(loop_of(session), &session->gone);
	if (session->state == SESSION_ENDING && session->sched && !session->end_posted)
		end_post(session);
}

static void on_gone(struct loop_op *op, int result)
{
	struct session *session = op->user;

	if (result != -ECANCELED)
		session->has_left = true;
	if (result > 0)
		session_end(session, "its process is gone");
	else if (result != -ECANCELED)
		session_end(session, "its process cannot be watched: %s", strerror(-result));
	if (session->has_left)
		device_arenas_end(session);
	session_settle(session);
}

static uint32_t domain_count(const struct server *server, uid_t uid, bool joined)
{
	const struct session *s;
	uint32_t n = 0;

	TAILQ_FOREACH (s, &server->sessions, entry) {
		if (s->peer.uid == uid && (s->joined || !joined))
			n++;
	}
	return n;
}

static uint32_t joined_count(const struct server *server)
{
	const struct session *s;
	uint32_t n = 0;

	TAILQ_FOREACH (s, &server->sessions, entry) {
		if (s->joined)
			n++;
	}
	return n;
}

const char *session_refusal(const struct session *session)
{
	const struct config *config = session->server->parts.config;

	if (session->server->stopping)
		return "the daemon stops";
	if (joined_count(session->server) >= config->max_sessions)
		return "the daemon has as many sessions as it serves (max_sessions)";
	if (domain_count(session->server, session->peer.uid, true) >= config->max_domain_sessions)
		return "this user has as many sessions as one may have (max_domain_sessions)";
	return NULL;
}

static bool is_crowded(const struct server *server, uid_t uid)
{
	const struct config *config = server->parts.config;

	return server->stopping ||
	       server->n_connections >= config->max_sessions + SPARE_CONNECTIONS ||
	       domain_count(server, uid, false) >=
		       config->max_domain_sessions + SPARE_DOMAIN_CONNECTIONS;
}

static struct session *session_alloc(struct server *server)
{
	const struct config *config = server->parts.config;
	struct session *session = malloc(sizeof(*session));

	if (!session)
		return NULL;
	*session = (struct session){
		.server = server,
		.fd = -1,
		.peer.pidfd = -1,
		.bell_fd = -1,
		.connected_ns = server_now_ns(),
		.receive = {.callback = on_receive, .user = session},
		.gone = {.callback = on_gone, .user = session},
		.arenas = calloc(config->max_arenas, sizeof(struct segment)),
		.lanes = calloc(config->max_lanes, sizeof(struct segment)),
	};
	if (session->arenas && session->lanes)
		return session;
	free(session->arenas);
	free(session->lanes);
	free(session);
	return NULL;
}

/* What the client has sent and nobody will read is taken off the socket: closing it unread would
 * cost the client the last reply. After shutdown nothing follows, so this ends. */
static void socket_close(int fd)
{
	char byte;

	shutdown(fd, SHUT_RDWR);
	while (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
		continue;
	close(fd);
}

static void session_free(struct session *session)
{
	const struct config *config = session->server->parts.config;

	if (session->fd >= 0)
		socket_close(session->fd);
	if (session->bell_fd >= 0)
		close(session->bell_fd);
	if (session->peer.pidfd >= 0)
		close(session->peer.pidfd);
	for (uint32_t i = 0; i < config->max_arenas; i++)
		segment_done(&session->arenas[i]);
	for (uint32_t i = 0; i < config->max_lanes; i++) {
		guardian_link_forget(&session->server->guardian, session, &session->lanes[i]);
		segment_done(&session->lanes[i]);
	}
	free(session->arenas);
	free(session->lanes);
	free(session);
}

void session_new(struct server *server, int fd)
{
	struct session *session = session_alloc(server);
	int r;

	if (!session) {
		log_warning("a connection is refused: no memory");
		close(fd);
		return;
	}
	session->fd = fd;
	r = channel_peer(fd, &session->peer);
	if (r < 0 || is_crowded(server, session->peer.uid)) {
		if (r < 0)
			log_info("a connection is refused: %s", strerror(-r));
		session_free(session);
		return;
	}
	session->id = ++server->last_session;
	session->privileged = session->peer.uid == 0 || session->peer.uid == geteuid();
	TAILQ_INSERT_TAIL(&server->sessions, session, entry);
	server->n_connections++;
	session_receive(session);
	if (session->peer.pidfd >= 0)
		loop_poll(server->parts.loop, &session->gone, session->peer.pidfd, POLLIN);
}

void session_opened(struct session *session, struct sched_session *sched)
{
	session->sched = sched;
	if (session->state == SESSION_ENDING) {
		if (sched)
			end_post(session);
		return;
	}
	if (!sched) {
		session_end(session, "the scheduler did not take it");
		return;
	}
	session->state = SESSION_OPEN;
	log_debug("session %" PRIu64 " (%s, pid %d, uid %u) joined", session->id, session->name,
		  session->peer.pid, session->peer.uid);
	session_receive(session);
}

void session_end(struct session *session, const char *why, ...)
{
	char text[160];
	va_list args;

	if (session->state == SESSION_ENDING) {
		if (session->server->stopping)
			device_arenas_end(session);
		return;
	}
	session->state = SESSION_ENDING;
	/* Without a pidfd there is nothing to wait for. */
	if (session->device_bytes == 0 || session->peer.pidfd < 0 || session->server->stopping)
		session->has_left = true;
	va_start(args, why);
	vsnprintf(text, sizeof(text), why, args);
	va_end(args);
	log_debug("session %" PRIu64 " (%s, pid %d, uid %u) ends: %s", session->id, session->name,
		  session->peer.pid, session->peer.uid, text);
	shutdown(session->fd, SHUT_RDWR);
	loop_cancel(loop_of(session), &session->receive);
	if (session->has_left)
		loop_cancel(loop_of(session), &session->gone);
	if (session->sched)
		end_post(session);
}

void session_settle(struct session *session)
{
	struct server *server = session->server;

	if (session->state != SESSION_ENDING || session->receive.live || session->gone.live ||
	    session->n_requests > 0 || session->sched)
		return;
	server->device_bytes -= session->device_bytes;
	TAILQ_REMOVE(&server->sessions, session, entry);
	session_free(session);
	server_session_gone(server);
}

struct session *session_find(const struct server *server, uint64_t id)
{
	struct session *s;

	TAILQ_FOREACH (s, &server->sessions, entry) {
		if (s->id == id)
			return s;
	}
	return NULL;
}

void sessions_expire(struct server *server)
{
	uint64_t now_ns = server_now_ns();
	struct session *s, *next;

	for (s = TAILQ_FIRST(&server->sessions); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		if (s->state == SESSION_CONNECTED && now_ns - s->connected_ns > HELLO_NS) {
			session_end(s, "no hello within 10 s");
			session_settle(s);
		}
	}
}
