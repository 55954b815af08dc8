/*
 * pins.c - the verbs of pins: seq_pin, node_pin, unpin, pins.
 *
 * A pin keeps a path in the pool for a time. Whoever has a sequence may pin it; a node is
 * anybody's, so that only root and the daemon's own user pin one.
 */
#include "pins.h"

#include "daemon/base/units.h"
#include "daemon/config/quota.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <stdio.h>

/* unit_ns: in which who asks thinks of it; 0: it is not known. */
static bool pin_check(struct session *s, uint64_t id, uint64_t for_ns, uint64_t unit_ns)
{
	uint64_t max_ms = s->home->config->max_pin_ms;

	if (for_ns > 0 && for_ns <= max_ms * 1000000u)
		return true;
	if (for_ns == 0)
		reply_error(s, id, -EINVAL, "for_ns", "A pin that holds for no time is none.");
	else
		reply_error(s, id, -EINVAL, "for_ns",
			    "A pin holds for at most %s (max_pin_ms), not for %s.",
			    units_time(max_ms * 1000000u, unit_ns).text,
			    for_ns == UINT64_MAX ? "ever" : units_time(for_ns, unit_ns).text);
	return false;
}

static void pin_answer(struct request *request)
{
	const struct pin_call *call = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__PinReply pin = COPPICE__PIN_REPLY__INIT;

	if (reply_failed(request))
		return;
	pin.pin = call->pin;
	reply.pin = &pin;
	reply_send(request->session, &reply);
}

static void pin_post(struct session *s, uint64_t id, const struct verb *verb, struct pin_call call)
{
	struct request *request = request_begin(s, id, verb, sizeof(call));

	if (!request)
		return;
	*(struct pin_call *)request->sched.room = call;
	request_post(request);
}

static void seq_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqPin *m = message;

	if (pin_check(s, id, m->for_ns, 0))
		pin_post(s, id, &verb_seq_pin,
			 (struct pin_call){.what = m->seq, .for_ns = m->for_ns});
}

static int pin_refuse(struct sched *s, struct sched_request *rq, int error)
{
	if (error == -EBUSY)
		return refuse(rq, error, "seq",
			      "The sequence has an extension: ask again when its tokens are "
			      "computed.");
	if (error != -EDQUOT)
		return refuse_by_store(rq, error);
	return refuse(rq, error, NULL,
		      "Pins of one user may keep %s, a part of the pool (domain_pin_percent): "
		      "unpin some.",
		      size_text(quota_pin_bytes(s->core.config), 0).text);
}

static int seq_serve(struct sched *s, struct sched_request *rq)
{
	struct pin_call *call = rq->room;
	struct sched_seq *seq = request_seq(s, rq, call->what);

	if (!seq)
		return rq->code;
	int r = store_seq_pin(seq->store, s->core.now_ns + call->for_ns, &call->pin);

	return r < 0 ? pin_refuse(s, rq, r) : 0;
}

const struct verb verb_seq_pin = {.begin = seq_begin,
				  .serve = seq_serve,
				  .beside = beside_pass,
				  .answer = pin_answer};

static void node_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__NodePin *m = message;

	if (request_may_rule(s, id, "pin") && pin_check(s, id, m->for_ns, m->unit_ns))
		pin_post(s, id, &verb_node_pin,
			 (struct pin_call){.what = m->node, .for_ns = m->for_ns});
}

static int node_serve(struct sched *s, struct sched_request *rq)
{
	struct pin_call *call = rq->room;
	int r = store_node_pin(s->core.store, call->what, s->core.now_ns + call->for_ns,
			       &call->pin);

	if (r == -ENOENT)
		return refuse(rq, r, "node", "The tree has no node %llu.",
			      (unsigned long long)call->what);
	return r < 0 ? pin_refuse(s, rq, r) : 0;
}

const struct verb verb_node_pin = {.begin = node_begin,
				   .serve = node_serve,
				   .beside = beside_pass,
				   .answer = pin_answer};

/* The room is a pin's id, an uint64_t. */

static void unpin_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Unpin *m = message;
	struct request *request = request_begin(s, id, &verb_unpin, sizeof(m->pin));

	if (!request)
		return;
	*(uint64_t *)request->sched.room = m->pin;
	request_post(request);
}

static int unpin_serve(struct sched *s, struct sched_request *rq)
{
	uint64_t domain = rq->privileged ? UINT64_MAX : rq->session->domain;
	const uint64_t *pin = rq->room;

	if (store_unpin(s->core.store, *pin, domain, s->core.now_ns) < 0)
		return refuse(rq, -ENOENT, "pin", "There is no pin %llu: it may be over.",
			      (unsigned long long)*pin);
	return 0;
}

const struct verb verb_unpin = {.begin = unpin_begin,
				.serve = unpin_serve,
				.beside = beside_pass,
				.answer = reply_done};

/* ---- the list ---- */

#define PINS_PAGE 128u

/* A page: what is asked and what is answered. */
struct pins_page {
	uint64_t cursor;
	uint32_t n;
	uint64_t now_ns; /* when it was made */
	struct store_pin_info pins[PINS_PAGE];
	char models[PINS_PAGE][128]; /* the pins' models; the store's may go */
};

static void pins_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Pins *m = message;
	struct request *request = request_begin(s, id, &verb_pins, sizeof(struct pins_page));
	struct pins_page *page;

	if (!request)
		return;
	page = request->sched.room;
	page->cursor = m->cursor;
	request_post(request);
}

static int pins_serve(struct sched *s, struct sched_request *rq)
{
	uint64_t domain = rq->privileged ? UINT64_MAX : rq->session->domain;
	struct pins_page *page = rq->room;

	page->now_ns = s->core.now_ns;
	page->n = store_pins(s->core.store, domain, &page->cursor, page->pins, PINS_PAGE);
	for (uint32_t i = 0; i < page->n; i++) {
		snprintf(page->models[i], sizeof(page->models[i]), "%s", page->pins[i].model);
		page->pins[i].model = page->models[i];
	}
	return 0;
}

static void pin_row(Coppice__Pin *to, const struct store_pin_info *from, uint64_t now_ns)
{
	coppice__pin__init(to);
	to->pin = from->id;
	to->node = from->node_id;
	to->model = (char *)from->model;
	to->domain = from->domain;
	to->n_tokens = from->n_tokens;
	to->n_bytes = from->bytes;
	to->left_ns = from->until_ns > now_ns ? from->until_ns - now_ns : 0;
}

/* A row takes at most 210 bytes, so that PINS_PAGE of them always fit a packet. */
static void pins_answer(struct request *request)
{
	const struct pins_page *page = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__PinsReply pins = COPPICE__PINS_REPLY__INIT;
	Coppice__Pin rows[PINS_PAGE], *pointers[PINS_PAGE];

	if (reply_failed(request))
		return;
	for (uint32_t i = 0; i < page->n; i++) {
		pin_row(&rows[i], &page->pins[i], page->now_ns);
		pointers[i] = &rows[i];
	}
	pins.n_pin = page->n;
	pins.pin = pointers;
	pins.cursor = page->cursor;
	reply.pins = &pins;
	reply_send(request->session, &reply);
}

const struct verb verb_pins = {.begin = pins_begin,
			       .serve = pins_serve,
			       .large = true,
			       .beside = beside_pass,
			       .answer = pins_answer};
