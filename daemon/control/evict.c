/*
 * evict.c - the verb evict: pages that nobody uses leave the pool at somebody's wish, and where it
 * is so wished, also those that pins keep.
 *
 * The scheduler evicts a bounded number at a time, between batches, and is asked again while pages
 * go and more are wanted: a step waits for one such turn at most.
 */
#include "daemon/base/log.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define EVICT_NODES_A_TURN 64 /* between two batches */

static void evict_answer(struct request *request)
{
	uint64_t *wanted = &request->sched.in.evict.n_pages; /* 0: all */
	uint64_t gone = request->sched.out.evict.n_pages;
	Coppice__Reply reply = reply_to(request);
	Coppice__EvictReply evict = COPPICE__EVICT_REPLY__INIT;

	if (reply_failed(request))
		return;
	request->n_pages += gone;
	if (request->sched.out.evict.more && (*wanted == 0 || gone < *wanted) &&
	    request->session->state != SESSION_ENDING) {
		*wanted -= *wanted ? gone : 0;
		request->again = true;
		return;
	}
	log_info("session %" PRIu64 " evicts: %" PRIu64 " pages%s%s, and ends %" PRIu64 " pins",
		 request->session->id, request->n_pages,
		 request->sched.in.evict.model[0] ? " of " : "", request->sched.in.evict.model,
		 request->sched.out.evict.n_pins);
	evict.n_pages = request->n_pages;
	evict.has_n_pins = true;
	evict.n_pins = request->sched.out.evict.n_pins;
	reply.evict = &evict;
	reply_send(request->session, &reply);
}

static void evict_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Evict *m = message;
	struct request *request;

	if (!request_may_rule(s, id, "evict"))
		return;
	if (m->model && strlen(m->model) >= sizeof(request->sched.in.evict.model)) {
		reply_error(s, id, -EINVAL, "model", "A model's name has at most 127 bytes.");
		return;
	}
	request = request_begin(s, id, &verb_evict);
	if (!request)
		return;
	if (m->model)
		strcpy(request->sched.in.evict.model, m->model);
	request->sched.in.evict.n_pages = m->n_pages;
	request->sched.in.evict.pinned = m->pinned;
	request_post(request);
}

/* One turn of it; the poster asks again while pages go and are wanted. */
static int evict_serve(struct sched *s, struct sched_request *rq)
{
	uint64_t want = rq->in.evict.n_pages ? rq->in.evict.n_pages : UINT32_MAX;
	const char *name = rq->in.evict.model[0] ? rq->in.evict.model : NULL;

	/* A model that nobody has open goes with its last page, in an earlier turn. */
	if (name && !rq->out.evict.more && !store_has_model(s->core.store, name))
		return refuse(rq, -ENOENT, "model", "No model is called \"%s\".", name);
	want = want < UINT32_MAX ? want : UINT32_MAX;
	rq->out.evict.n_pages =
		store_evict(s->core.store, name, (uint32_t)want, EVICT_NODES_A_TURN);
	rq->out.evict.more = rq->out.evict.n_pages > 0 || s->tiers.busy;
	if (!rq->out.evict.more && rq->in.evict.pinned && store_unpin_oldest(s->core.store, name)) {
		rq->out.evict.n_pins++;
		rq->out.evict.more = true;
	}
	return 0;
}

const struct verb verb_evict = {.begin = evict_begin, .serve = evict_serve, .answer = evict_answer};
