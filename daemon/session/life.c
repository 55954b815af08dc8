/*
 * life.c - the first and the last things of a session, and its process.
 *
 * Whatever ends it comes to session_end once. From then on two things are waited for: the loop's
 * last callbacks, and the scheduler, which ends its part when the end is posted. Device arenas may
 * be open in the client's process, and weights: while it lives they stay. For the arenas the end is
 * posted twice.
 */
#include "life.h"

#include "proto/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/log_user.h"
#include "daemon/base/uid.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/weights/weights.h"
#include "request.h"

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

/* ---- the end ---- */

struct session_ending {
	struct request request;
	struct session_end_call call;
};

static void end_post(struct session *session);

/* The client's process has weights open, which stay until it is gone. */
static bool has_open_weights(const struct session *session)
{
	for (uint32_t i = 0; i < session->home->config->max_weights; i++)
		if (session->weights[i].is_open)
			return true;
	return false;
}

/* What is left may have become nobody's meanwhile. */
static void on_ended(struct request *request)
{
	struct session *session = request->session;
	const struct session_end_call *call = request->sched.room;

	session->end_posted = false;
	session->sched = call->session;
	if (!session->sched && (session->has_left || !has_open_weights(session)))
		loop_cancel(session->home->loop, &session->gone);
	else if (session->sched && (call->more || session->has_left))
		end_post(session);
}

static void end_post(struct session *session)
{
	static const struct verb verb = {.serve = sched_session_end,
					 .beside = beside_segments_of_others,
					 .answer = on_ended};
	struct session_ending *end = session->end;

	request_init(&end->request, &verb, session->home, session);
	end->call = (struct session_end_call){.keep_device = !session->has_left};
	end->request.sched.room = &end->call;
	session->end_posted = true;
	request_post(&end->request);
}

/* Nobody has the device arenas of an ending session open any more, or is to be waited for. */
static void device_arenas_end(struct session *session)
{
	session->has_left = true;
	loop_cancel(session->home->loop, &session->gone);
	if (session->state == SESSION_ENDING && session->sched && !session->end_posted)
		end_post(session);
}

/* Nobody waits for these pages any more. */
static void fills_stop(struct session *session)
{
	for (uint32_t i = 0; i < session->home->config->max_arenas; i++)
		shm_fill_stop(&session->arenas[i]);
}

static void end_say(const struct session *session, const char *why)
{
	if (session->joined)
		log_user(session->peer.uid, "session %" PRIu64 " (%s, pid %d, uid %u) ends: %s",
			 session->id, session->name, session->peer.pid, session->peer.uid, why);
	else
		log_debug("connection %" PRIu64 " (pid %d, uid %u) ends: %s", session->id,
			  session->peer.pid, session->peer.uid, why);
}

void session_end(struct session *session, const char *why, ...)
{
	struct sessions *home = session->home;
	char text[160];
	va_list args;

	if (session->state == SESSION_ENDING)
		return;
	session->state = SESSION_ENDING;
	fills_stop(session);
	/* Without a pidfd there is nothing to wait for. */
	if ((session->device_bytes == 0 && !has_open_weights(session)) || session->peer.pidfd < 0 ||
	    home->stopping)
		session->has_left = true;
	va_start(args, why);
	vsnprintf(text, sizeof(text), why, args);
	va_end(args);
	end_say(session, text);
	shutdown(session->fd, SHUT_RDWR);
	loop_cancel(home->loop, &session->receive);
	if (session->has_left)
		loop_cancel(home->loop, &session->gone);
	if (session->sched)
		end_post(session);
}

/* What the client has sent and nobody will read is taken off the socket: closing it unread would
 * cost the client the last reply, and what keeps its end of the socket open may be among it. After
 * shutdown nothing follows, so this ends. */
static void socket_drain(int fd)
{
	char byte;

	shutdown(fd, SHUT_RDWR);
	while (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
		continue;
}

static void on_arena_dropped(struct shm_chore *chore)
{
	struct session *session = chore->user;

	session->n_drops--;
	session_free_if_over(session);
}

/* Takes back what is still there of its arenas. Returns whether nothing is under way any more. */
static bool arenas_are_gone(struct session *session)
{
	uint32_t n = session->home->config->max_arenas;

	for (uint32_t i = 0; i < n; i++) {
		struct shm *arena = &session->arenas[i];

		if (!arena->map)
			continue;
		arena->chore.done = on_arena_dropped;
		arena->chore.user = session;
		session->n_drops++;
		shm_drop(arena, session->home->pages, session->peer.uid);
	}
	if (session->n_drops > 0)
		return false;
	session->arena_bytes = 0;
	return true;
}

static void shared_memory_free(struct session *session)
{
	const struct config *config = session->home->config;

	for (uint32_t i = 0; session->arenas && i < config->max_arenas; i++)
		shm_done(&session->arenas[i]);
	for (uint32_t i = 0; session->lanes && i < config->max_lanes; i++)
		shm_done(&session->lanes[i]);
	session->n_shm_fds = 0;
}

static void weights_release(struct session *session)
{
	for (uint32_t i = 0; session->weights && i < session->home->config->max_weights; i++) {
		weights_unref(session->weights[i].held);
		session->weights[i] = (struct held_weights){0};
	}
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* All but its socket, by which is told what its client has read, and its place. */
static void session_strip(struct session *session)
{
	socket_drain(session->fd);
	fd_close(&session->doorbell_fd);
	fd_close(&session->peer.pidfd);
	shared_memory_free(session);
	weights_release(session);
}

static void session_free(struct session *session)
{
	session_strip(session);
	fd_close(&session->fd);
	errands_user_unref(session->user);
	free(session->arenas);
	free(session->lanes);
	free(session->weights);
	free(session->end);
	free(session);
}

/* What is kept of its device arenas counts on. */
static void loans_end(struct session *session)
{
	for (uint32_t i = 0; i < session->home->config->max_arenas; i++) {
		lent_end(&session->home->lent, session->arenas[i].loan);
		session->arenas[i].loan = NULL;
	}
	session->device_bytes = 0;
}

void session_free_if_over(struct session *session)
{
	struct sessions *home = session->home;

	if (session->state != SESSION_ENDING || session->receive.live || session->arrived.waits ||
	    session->gone.live || session->n_requests > 0 || session->sched)
		return;
	if (!arenas_are_gone(session))
		return;
	loans_end(session);
	session_strip(session);
	if (!home->stopping && unread_fds(&session->unread, session->fd) > 0)
		return;
	TAILQ_REMOVE(&home->list, session, entry);
	session_free(session);
	home->n_connections--;
	if (home->stopping && home->n_connections == 0)
		home->emptied(home);
}

/* ---- the beginning ---- */

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
	session_free_if_over(session);
}

/* Takes fd over, also where there is no memory. */
static struct session *session_alloc(struct sessions *home, int fd, loop_callback on_packet)
{
	struct session *session = malloc(sizeof(*session));

	if (!session) {
		close(fd);
		return NULL;
	}
	*session = (struct session){
		.home = home,
		.fd = fd,
		.peer.pidfd = -1,
		.doorbell_fd = -1,
		.connected_ns = clock_now_ns(),
		.receive = {.callback = on_packet, .user = session},
		.gone = {.callback = on_gone, .user = session},
		.end = malloc(sizeof(*session->end)),
		.arenas = calloc(home->config->max_arenas, sizeof(struct shm)),
		.lanes = calloc(home->config->max_lanes, sizeof(struct shm)),
		.weights = calloc(home->config->max_weights, sizeof(struct held_weights)),
	};
	if (session->end && session->arenas && session->lanes && session->weights)
		return session;
	session_free(session);
	return NULL;
}

void session_new(struct sessions *sessions, int fd, loop_callback on_packet)
{
	struct session *session = session_alloc(sessions, fd, on_packet);
	int r;

	if (!session) {
		log_warning("a connection is refused: no memory");
		return;
	}
	r = channel_peer(fd, &session->peer);
	if (r == 0) {
		session->user = errands_user_ref(&sessions->errands, session->peer.uid);
		r = session->user ? 0 : -ENOMEM;
	}
	session->privileged = uid_is_privileged(session->peer.uid);
	if (r < 0 || sessions_are_crowded(sessions, session)) {
		if (r < 0)
			log_user(session->peer.uid, "a connection is refused: %s", strerror(-r));
		session_free(session);
		return;
	}
	session->id = ++sessions->last_id;
	TAILQ_INSERT_TAIL(&sessions->list, session, entry);
	sessions->n_connections++;
	session_receive(session);
	if (session->peer.pidfd >= 0)
		loop_poll(sessions->loop, &session->gone, session->peer.pidfd, POLLIN);
}

void session_receive(struct session *session)
{
	session->iov = (struct iovec){session->packet, sizeof(session->packet)};
	session->msg = (struct msghdr){.msg_iov = &session->iov, .msg_iovlen = 1};
	loop_recvmsg(session->home->loop, &session->receive, session->fd, &session->msg);
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
	log_user(session->peer.uid, "session %" PRIu64 " (%s, pid %d, uid %u) joins", session->id,
		 session->name, session->peer.pid, session->peer.uid);
	session_receive(session);
}

/* ---- all of them ---- */

void sessions_expire(struct sessions *sessions)
{
	uint64_t now_ns = clock_now_ns();
	struct session *s, *next;

	for (s = TAILQ_FIRST(&sessions->list); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		if (s->state == SESSION_CONNECTED && now_ns - s->connected_ns > HELLO_NS)
			session_end(s, "no hello within 10 s");
		session_free_if_over(s);
	}
}

void sessions_stop(struct sessions *sessions)
{
	struct session *s, *next;

	sessions->stopping = true;
	shm_pages_hurry(sessions->pages);
	for (s = TAILQ_FIRST(&sessions->list); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		if (s->state == SESSION_ENDING)
			device_arenas_end(s);
		else
			session_end(s, "the daemon stops");
		session_free_if_over(s);
	}
}
