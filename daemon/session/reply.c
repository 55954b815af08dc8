/*
 * reply.c - from a reply's struct to a packet on the socket.
 *
 * Sending has no way back into itself: a reply that does not fit becomes an error that does, and
 * both go out through the same last step.
 */
#include "reply.h"

#include "life.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Is this about descriptors, and not about the packet or its reader? */
static bool is_of_fds(int code)
{
	return code != -EAGAIN && code != -EPIPE && code != -ECONNRESET && code != -ENOTCONN;
}

/* The last step: of bytes that fit. 0, or why descriptors cannot be sent. */
static int packet_send(struct session *session, const Coppice__Reply *reply, const int *fds,
		       uint32_t n_fds)
{
	uint8_t *packet = session->home->packet;
	size_t bytes = coppice__reply__get_packed_size(reply);
	int r;

	assert(bytes <= CHANNEL_MAX_BYTES);
	coppice__reply__pack(reply, packet);
	r = channel_send(session->fd, packet, bytes, &(struct channel_fds){fds, n_fds},
			 MSG_DONTWAIT);
	if (r == 0)
		unread_add(&session->unread, n_fds > 0);
	else if (n_fds > 0 && is_of_fds(r))
		return r;
	else if (r == -EAGAIN)
		session_end(session, "it does not read its replies");
	else
		session_end(session, "a reply cannot be sent: %s", strerror(-r));
	return 0;
}

static void error_send(struct session *session, uint64_t id, int code, const char *field,
		       const char *sentence)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	if (session->state == SESSION_ENDING)
		return;
	reply.id = id;
	reply.code = code;
	reply.message = (char *)sentence;
	reply.field = (char *)field;
	(void)packet_send(session, &reply, NULL, 0);
}

void reply_error(struct session *session, uint64_t id, int code, const char *field,
		 const char *sentence, ...)
{
	char text[240];
	va_list args;

	va_start(args, sentence);
	vsnprintf(text, sizeof(text), sentence, args);
	va_end(args);
	error_send(session, id, code, field, text);
}

static int any_send(struct session *session, const Coppice__Reply *reply, const int *fds,
		    uint32_t n_fds)
{
	size_t bytes = coppice__reply__get_packed_size(reply);

	if (session->state == SESSION_ENDING)
		return 0;
	if (bytes <= CHANNEL_MAX_BYTES)
		return packet_send(session, reply, fds, n_fds);
	reply_error(session, reply->id, -EMSGSIZE, NULL,
		    "The answer is too long for a message: %zu bytes.", bytes);
	return 0;
}

int reply_send_fds(struct session *session, const Coppice__Reply *reply, const int *fds,
		   uint32_t n_fds)
{
	return any_send(session, reply, fds, n_fds);
}

void reply_send(struct session *session, const Coppice__Reply *reply)
{
	(void)any_send(session, reply, NULL, 0);
}

bool reply_failed(const struct request *request)
{
	const struct sched_request *answer = &request->sched;

	if (answer->code == 0)
		return false;
	error_send(request->session, answer->id, answer->code, answer->field,
		   answer->message[0] ? answer->message : strerror(-answer->code));
	return true;
}

Coppice__Reply reply_to(const struct request *request)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	reply.id = request->sched.id;
	return reply;
}

void reply_unsent(struct session *session, uint64_t id, int why)
{
	reply_error(session, id, why, NULL,
		    "The kernel does not let the answer's descriptors go (%s): ask again later.",
		    strerror(-why));
}

void reply_done(struct request *request)
{
	Coppice__Reply reply = reply_to(request);

	if (!reply_failed(request))
		reply_send(request->session, &reply);
}
