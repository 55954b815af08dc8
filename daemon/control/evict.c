/*
 * evict.c - the verb evict: pages that nobody uses leave the pool at somebody's wish, and where it
 * is so wished, also those that pins keep.
 *
 * The scheduler evicts a bounded number at a time, between batches, and is asked again while pages
 * go and more are wanted: a step waits for one such turn at most.
 */
#include "evict.h"

#include "daemon/base/log_user.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"
#include "proto/arith.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define EVICT_NODES_A_TURN 64 /* between two batches */

static void evict_answer(struct request *request)
{
	struct evict_call *call = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__EvictReply evict = COPPICE__EVICT_REPLY__INIT;

	if (reply_failed(request))
		return;
	call->n_gone_in_all += call->n_gone;
	if (call->more && (call->n_pages == 0 || call->n_gone < call->n_pages) &&
	    request->session->state != SESSION_ENDING) {
		call->n_pages -= call->n_pages ? call->n_gone : 0;
		request->again = true;
		return;
	}
	log_user(request->session->peer.uid,
		 "session %" PRIu64 " evicts: %" PRIu64 " pages%s%s, and ends %" PRIu64 " pins",
		 request->session->id, call->n_gone_in_all, call->model[0] ? " of " : "",
		 call->model, call->n_pins);
	evict.n_pages = call->n_gone_in_all;
	evict.has_n_pins = true;
	evict.n_pins = call->n_pins;
	reply.evict = &evict;
	reply_send(request->session, &reply);
}

static void evict_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Evict *m = message;
	struct request *request;
	struct evict_call *call;

	if (!request_may_rule(s, id, "evict"))
		return;
	if (m->model && strlen(m->model) >= sizeof(call->model)) {
		reply_error(s, id, -EINVAL, "model", "A model's name has at most 127 bytes.");
		return;
	}
	request = request_begin(s, id, &verb_evict, sizeof(*call));
	if (!request)
		return;
	call = request->sched.room;
	if (m->model)
		strcpy(call->model, m->model);
	call->n_pages = m->n_pages;
	call->pinned = m->pinned;
	request_post(request);
}

/* One turn of it; the poster asks again while pages go and are wanted. */
static int evict_serve(struct sched *s, struct sched_request *rq)
{
	struct evict_call *call = rq->room;
	uint64_t want = call->n_pages ? call->n_pages : UINT32_MAX;
	const char *name = call->model[0] ? call->model : NULL;

	/* A model that nobody has open goes with its last page, in an earlier turn. */
	if (name && !call->more && !store_has_model(s->core.store, name))
		return refuse(rq, -ENOENT, "model", "No model is called \"%s\".", name);
	want = min_u64(want, UINT32_MAX);
	call->n_gone = store_evict(s->core.store, name, (uint32_t)want, EVICT_NODES_A_TURN);
	call->more = call->n_gone > 0 || s->tiers.busy || store_has_idle(s->core.store, name);
	if (!call->more && call->pinned && store_unpin_oldest(s->core.store, name)) {
		call->n_pins++;
		call->more = true;
	}
	return 0;
}

const struct verb verb_evict = {.begin = evict_begin,
				.serve = evict_serve,
				.beside = beside_segments,
				.answer = evict_answer};
