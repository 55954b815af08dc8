/*
 * request.c - requests on their way to the scheduler and back.
 */
#include "request.h"

#include "reply.h"
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void request_init(struct request *request, struct server *server, struct session *session,
		  enum sched_verb verb, request_done done)
{
	*request = (struct request){
		.server = server,
		.session = session,
		.done = done,
		.sched.verb = verb,
		.sched.cookie = request,
	};
	if (session) {
		request->sched.session = session->sched;
		request->sched.privileged = session->privileged;
	}
}

static struct request *request_new(struct session *session, uint64_t id, enum sched_verb verb,
				   request_done done)
{
	struct request *request = malloc(sizeof(*request));

	if (!request)
		return NULL;
	request_init(request, session->server, session, verb, done);
	request->sched.id = id;
	request->on_heap = true;
	return request;
}

struct request *request_begin(struct session *s, uint64_t id, enum sched_verb verb,
			      request_done done)
{
	struct request *request;

	if (s->n_requests >= REQUEST_MAX_PER_SESSION) {
		reply_error(s, id, -EBUSY, NULL,
			    "%u requests of this session are under way already: wait for one.",
			    s->n_requests);
		return NULL;
	}
	request = request_new(s, id, verb, done);
	if (!request)
		reply_error(s, id, -ENOMEM, NULL, "The daemon is out of memory.");
	return request;
}

struct request *request_begin_lent(struct session *s, uint64_t id, enum sched_verb verb,
				   request_done done, size_t bytes)
{
	struct request *request = request_begin(s, id, verb, done);

	if (!request)
		return NULL;
	request->lent = calloc(1, bytes);
	if (request->lent)
		return request;
	reply_error(s, id, -ENOMEM, NULL, "The daemon is out of memory.");
	request_free(request);
	return NULL;
}

void request_free(struct request *request)
{
	if (!request)
		return;
	for (uint32_t i = 0; i < request->n_fds; i++)
		close(request->fds[i]);
	free(request->lent);
	free(request);
}

void request_post(struct request *request)
{
	if (request->session)
		request->session->n_requests++;
	sched_post(request->server->parts.sched, &request->sched);
}

void request_over(struct request *request)
{
	struct session *session = request->session;
	bool on_heap = request->on_heap;

	request->again = false;
	request->done(request);
	if (request->again) {
		sched_post(request->server->parts.sched, &request->sched);
		return;
	}
	if (on_heap)
		request_free(request);
	if (session) {
		session->n_requests--;
		session_settle(session);
	}
}
