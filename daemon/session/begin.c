/*
 * begin.c - requests of clients: as many as a session may have, and no more memory than there is.
 *
 * An answer may want its request posted once more (it asks for a long thing in bounded turns): the
 * session's count of requests stays then, as it has not been answered.
 */
#include "begin.h"

#include "life.h"
#include "reply.h"

#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

/* With its room, one piece of memory. */
struct begun {
	struct request request;
	alignas(max_align_t) unsigned char room[];
};

static bool may_begin(struct session *s, uint64_t id, const struct verb *verb)
{
	bool is_full = s->n_requests >= REQUEST_MAX_PER_SESSION;

	if (!is_full && !(verb->large && s->n_large >= REQUEST_MAX_LARGE))
		return true;
	reply_error(s, id, -EBUSY, NULL,
		    "%u requests %sof this session are under way already: wait for one.",
		    is_full ? s->n_requests : s->n_large, is_full ? "" : "for lists or programs ");
	return false;
}

struct request *request_begin(struct session *s, uint64_t id, const struct verb *verb,
			      size_t room_bytes)
{
	struct begun *begun;

	if (!may_begin(s, id, verb))
		return NULL;
	begun = calloc(1, sizeof(*begun) + room_bytes);
	if (!begun) {
		reply_error(s, id, -ENOMEM, NULL, "The daemon is out of memory.");
		return NULL;
	}
	request_init(&begun->request, verb, s->home, s);
	begun->request.sched.id = id;
	begun->request.sched.room = begun->room;
	begun->request.on_heap = true;
	s->n_large += verb->large;
	return &begun->request;
}

bool request_may_rule(struct session *s, uint64_t id, const char *verb)
{
	if (s->privileged)
		return true;
	reply_error(s, id, -EPERM, NULL, "%s is for root and the daemon's own user.", verb);
	return false;
}

bool request_may_carry(struct session *s, uint64_t id)
{
	const char *refusal = session_fds_refusal(s);

	if (!refusal)
		return true;
	reply_error(s, id, -EBUSY, NULL, "No descriptors for you: %s.", refusal);
	return false;
}

void request_hold(struct request *request)
{
	request->held = true;
	request->session->n_requests++;
}

void request_go_on(struct request *request)
{
	request->held = false;
	sched_post(request->home->sched, &request->sched);
}

static void on_back(struct errand *errand)
{
	request_over(errand->of);
}

void request_back(struct request *request)
{
	if (!request->session) {
		request_over(request);
		return;
	}
	request->back = (struct errand){.serve = on_back, .of = request};
	errand_add(request->session->user, &request->back);
}

void request_over(struct request *request)
{
	struct session *session = request->session;
	bool on_heap = request->on_heap;

	request->again = request->held = false;
	request->verb->answer(request);
	if (request->held)
		return;
	if (request->again) {
		sched_post(request->home->sched, &request->sched);
		return;
	}
	if (on_heap)
		request_free(request);
	if (session) {
		session->n_requests--;
		session_free_if_over(session);
	}
}
