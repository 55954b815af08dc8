/*
 * drain.c - the verb drain: no new sequences, so that the daemon empties; and back.
 */
#include "daemon/base/log.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <inttypes.h>

/* The room is whether to drain, a bool. */

static void drain_answer(struct request *request)
{
	const bool *drain = request->sched.room;

	if (request->sched.code == 0)
		log_info("session %" PRIu64 ": %s", request->session->id,
			 *drain ? "the daemon drains: it takes no new sequences"
				: "the daemon takes new sequences again");
	reply_done(request);
}

static void drain_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Drain *m = message;
	struct request *request;
	bool *drain;

	if (!request_may_rule(s, id, "drain"))
		return;
	request = request_begin(s, id, &verb_drain, sizeof(*drain));
	if (!request)
		return;
	drain = request->sched.room;
	*drain = !m->off;
	request_post(request);
}

static int drain_serve(struct sched *s, struct sched_request *rq)
{
	const bool *drain = rq->room;

	s->core.draining = *drain;
	return 0;
}

const struct verb verb_drain = {.begin = drain_begin,
				.serve = drain_serve,
				.beside = beside_pass,
				.answer = drain_answer};
