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

/* The last step: of bytes that fit. */
static void packet_send(struct session *session, const Coppice__Reply *reply, const int *fds,
			uint32_t n_fds)
{
	uint8_t *packet = session->home->packet;
	size_t bytes = coppice__reply__get_packed_size(reply);
	int r;

	assert(bytes <= CHANNEL_MAX_BYTES);
	coppice__reply__pack(reply, packet);
	r = channel_send(session->fd, packet, bytes, fds, n_fds, MSG_DONTWAIT);
	if (r == -EAGAIN)
		session_end(session, "it does not read its replies");
	else if (r < 0)
		session_end(session, "a reply cannot be sent: %s", strerror(-r));
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
	packet_send(session, &reply, NULL, 0);
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

void reply_send(struct session *session, const Coppice__Reply *reply, const int *fds,
		uint32_t n_fds)
{
	size_t bytes = coppice__reply__get_packed_size(reply);

	if (session->state == SESSION_ENDING)
		return;
	if (bytes > CHANNEL_MAX_BYTES)
		reply_error(session, reply->id, -EMSGSIZE, NULL,
			    "The answer is too long for a message: %zu bytes.", bytes);
	else
		packet_send(session, reply, fds, n_fds);
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

void reply_done(struct request *request)
{
	Coppice__Reply reply = reply_to(request);

	if (!reply_failed(request))
		reply_send(request->session, &reply, NULL, 0);
}
