/*
 * pins.c - the verbs of pins: seq_pin, node_pin, unpin.
 *
 * A pin keeps a path in the pool for a time. Whoever has a sequence may pin it; a node is anybody's,
 * so that only root and the daemon's own user pin one.
 */
#include "daemon/base/units.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>

static bool pin_check(struct session *s, uint64_t id, uint64_t for_ns)
{
	uint64_t max_ms = s->home->config->max_pin_ms;

	if (for_ns > 0 && for_ns <= max_ms * 1000000u)
		return true;
	if (for_ns == 0)
		reply_error(s, id, -EINVAL, "for_ns", "A pin that holds for no time is none.");
	else
		reply_error(s, id, -EINVAL, "for_ns",
			    "A pin holds for at most %s (max_pin_ms), not for %s.",
			    units_time(max_ms * 1000000u).text, units_time(for_ns).text);
	return false;
}

static void pin_answer(struct request *request)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__PinReply pin = COPPICE__PIN_REPLY__INIT;

	if (reply_failed(request))
		return;
	pin.pin = request->sched.out.pin;
	reply.pin = &pin;
	reply_send(request->session, &reply, NULL, 0);
}

static void seq_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqPin *m = message;
	struct request *request;

	if (!pin_check(s, id, m->for_ns))
		return;
	request = request_begin(s, id, &verb_seq_pin);
	if (!request)
		return;
	request->sched.in.seq.seq = m->seq;
	request->sched.in.seq.for_ns = m->for_ns;
	request_post(request);
}

const struct verb verb_seq_pin = {.begin = seq_begin, .sched = SCHED_SEQ_PIN, .answer = pin_answer};

static void node_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__NodePin *m = message;
	struct request *request;

	if (!request_may_rule(s, id, "node_pin") || !pin_check(s, id, m->for_ns))
		return;
	request = request_begin(s, id, &verb_node_pin);
	if (!request)
		return;
	request->sched.in.node_pin.node = m->node;
	request->sched.in.node_pin.for_ns = m->for_ns;
	request_post(request);
}

const struct verb verb_node_pin = {.begin = node_begin,
				   .sched = SCHED_NODE_PIN,
				   .answer = pin_answer};

static void unpin_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Unpin *m = message;
	struct request *request = request_begin(s, id, &verb_unpin);

	if (!request)
		return;
	request->sched.in.pin = m->pin;
	request_post(request);
}

const struct verb verb_unpin = {.begin = unpin_begin, .sched = SCHED_UNPIN, .answer = reply_done};
