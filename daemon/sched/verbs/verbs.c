/* verbs.c - see verbs.h. A verb returns its code and, where that is not 0, has filled message and
 * field. */
#include "verbs.h"

#include "daemon/sched/core/doorbell.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/step/lanes.h"
#include "daemon/base/log.h"
#include "models.h"
#include "daemon/sched/step/input_wait.h"
#include "refuse.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/step/step_end.h"
#include "daemon/sched/seq/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVICT_NODES_A_TURN 64 /* between two batches */

/* ---- sessions ------------------------------------------------------------------------------- */

static int session_add(struct sched *s, struct sched_request *rq)
{
	struct sched_session *session = calloc(1, sizeof(*session));

	if (!session)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	if (doorbell_add(&s->doorbell, rq->in.session_add.bell_fd) < 0) {
		free(session);
		return refuse(rq, -ENOMEM, NULL, "The daemon cannot listen for one more bell.");
	}
	session->models = calloc(s->core.config->max_models, sizeof(struct sched_model *));
	session->arenas = calloc(s->core.config->max_arenas + 1, sizeof(*session->arenas));
	if (!session->models || !session->arenas) {
		doorbell_remove(&s->doorbell, rq->in.session_add.bell_fd);
		free(session->models);
		free(session->arenas);
		free(session);
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	}
	session->id = rq->in.session_add.id;
	session->domain = rq->in.session_add.domain;
	session->bell_fd = rq->in.session_add.bell_fd;
	LIST_INSERT_HEAD(&s->sessions, session, link);
	s->n_sessions++;
	rq->out.session = session;
	return 0;
}

/* The step that the lane holds ends, wherever it is. */
static void stop_step(struct sched *s, struct sched_lane *lane, struct outcome outcome)
{
	streamed_forget(&s->streamed, lane);
	step_cancel(&s->core, lane, outcome);
}

static void shut_lane_down(struct sched *s, struct sched_lane *lane, struct outcome outcome)
{
	streamed_forget(&s->streamed, lane);
	lane_shut_down(&s->lanes, lane, outcome);
}

static void close_seq(struct sched *s, struct sched_seq *seq)
{
	uint32_t part = step_part_of(seq);

	if (part != UINT32_MAX)
		stop_step(s, seq->lane, outcome_bad(-ECANCELED, ABI_STALE_SEQ, part));
	wait_cancel(&s->waits, seq);
	pace_forget(&s->core, seq);
	seq_free(&s->core, seq);
}

static void arena_let_go(struct sched *s, struct sched_arena *arena)
{
	if (arena->device)
		s->core.ops->arena_free(s->core.backend, arena->base);
	else
		s->core.ops->arena_detach(s->core.backend, arena->base, arena->bytes);
	*arena = (struct sched_arena){0};
}

/* Host arenas, and with them or later those of the device. Returns whether some of these are
 * left. */
static bool let_arenas_go(struct sched *s, struct sched_session *session, bool keep_device)
{
	bool kept = false;

	for (uint32_t i = 1; i <= s->core.config->max_arenas; i++) {
		struct sched_arena *arena = &session->arenas[i];

		if (!arena->base)
			continue;
		if (arena->device && keep_device)
			kept = true;
		else
			arena_let_go(s, arena);
	}
	return kept;
}

/* What is open ends for the reason that came first. */
static struct outcome ending(const struct sched *s)
{
	return core_failed(&s->core) ? outcome_bad(-EIO, ABI_BACKEND_FAILED, 0)
				     : outcome_bad(-ESHUTDOWN, ABI_SESSION_ENDED, 0);
}

static void session_strip(struct sched *s, struct sched_session *session)
{
	struct sched_seq *seq;
	struct sched_lane *lane;

	LIST_FOREACH (lane, &session->lanes, session_link)
		shut_lane_down(s, lane, ending(s));
	while ((seq = LIST_FIRST(&session->seqs)))
		close_seq(s, seq);
	while ((lane = LIST_FIRST(&session->lanes)))
		lane_remove(&s->lanes, lane);
	for (uint32_t i = 0; i < s->core.config->max_models; i++) {
		if (session->models[i])
			model_unuse(s, session->models[i]);
	}
	doorbell_remove(&s->doorbell, session->bell_fd);
	LIST_REMOVE(session, link);
	s->n_sessions--;
	session->ended = true;
	LIST_INSERT_HEAD(&s->ended_sessions, session, link);
}

/* NULL, or what is left of it. */
static struct sched_session *session_end(struct sched *s, struct sched_session *session,
					 bool keep_device)
{
	if (!session->ended)
		session_strip(s, session);
	if (let_arenas_go(s, session, keep_device))
		return session;
	LIST_REMOVE(session, link);
	free(session->models);
	free(session->arenas);
	free(session);
	return NULL;
}

void verbs_end_all(struct sched *s)
{
	struct sched_session *session;

	while ((session = LIST_FIRST(&s->sessions)))
		session_end(s, session, false);
	while ((session = LIST_FIRST(&s->ended_sessions)))
		session_end(s, session, false);
}

/* ---- arenas, lanes -------------------------------------------------------------------------- */

/* Once: what it costs is not to be looked for in the daemon. */
static void warn_of_time_slices(struct sched *s, const struct backend_arena *arena)
{
	if (!arena->time_sliced || s->warned_of_time_slices)
		return;
	s->warned_of_time_slices = true;
	log_warning("a client works on the GPU and there is no MPS: the GPU goes round between its "
		    "process and this one, which costs about 300 us a step (296 us measured on an "
		    "H200; 20 us under MPS); start nvidia-cuda-mps-control -d first, then daemon "
		    "and clients, if these trust each other");
}

static int device_arena_make(struct sched *s, struct sched_request *rq, uint64_t *ret_base)
{
	struct backend_arena arena = {0};
	int r = -ENOTSUP;

	memcpy(arena.device, rq->in.arena.device, sizeof(arena.device));
	if (s->core.ops->arena_new)
		r = s->core.ops->arena_new(s->core.backend, rq->in.arena.bytes, &arena);
	if (r == -ENOTSUP)
		return refuse(rq, -EOPNOTSUPP, "kind",
			      "The %s backend has no device memory: use a host arena, or a daemon "
			      "with backend = cuda, of several GPUs such as reach each other.",
			      s->core.ops->name);
	if (r == -ENODEV)
		return refuse(rq, r, "device",
			      "No GPU of that UUID is among the daemon's devices.");
	if (r == -ENOMEM)
		return refuse(
			rq, r, "bytes",
			"The GPU has no %llu MiB to spare beside the KV pool: free arenas, or "
			"give the daemon a smaller pool.",
			(unsigned long long)rq->in.arena.bytes >> 20);
	if (r < 0)
		return refuse(rq, r, NULL, "The %s backend could not share device memory.",
			      s->core.ops->name);
	warn_of_time_slices(s, &arena);
	*ret_base = arena.base;
	rq->out.arena = arena;
	return 0;
}

static int host_arena_reach(struct sched *s, struct sched_request *rq, uint64_t *ret_base)
{
	int r = s->core.ops->arena_attach(s->core.backend, rq->in.arena.base, rq->in.arena.bytes,
					  ret_base);

	if (r < 0)
		return refuse(rq, r, "bytes", "The %s backend could not reach the arena's memory.",
			      s->core.ops->name);
	return 0;
}

static int arena_add(struct sched *s, struct sched_request *rq)
{
	struct sched_session *session = rq->session;
	uint32_t number = rq->in.arena.arena;
	bool device = !rq->in.arena.base;
	uint64_t base;

	assert(number >= 1 && number <= s->core.config->max_arenas &&
	       !session->arenas[number].base);
	int r = device ? device_arena_make(s, rq, &base) : host_arena_reach(s, rq, &base);

	if (r < 0)
		return r;
	session->arenas[number] = (struct sched_arena){base, rq->in.arena.bytes, device};
	session->n_arenas++;
	session->arena_bytes += rq->in.arena.bytes;
	return 0;
}

static bool uses_arena(const struct step *step, uint32_t arena)
{
	if (step->word_arena == arena)
		return true;
	for (uint32_t i = 0; i < step->n_parts; i++) {
		if (step->parts[i].arena_in == arena || step->parts[i].arena_out == arena)
			return true;
	}
	return false;
}

/* Parked steps that use it fail rather than read what is not mapped any more. */
static void fail_steps_with(struct sched *s, struct sched_session *session, uint32_t arena)
{
	struct sched_lane *lane;

	LIST_FOREACH (lane, &session->lanes, session_link) {
		if (lane->state != STEP_FREE && uses_arena(&lane->step, arena))
			stop_step(s, lane, outcome_bad(-ECANCELED, ABI_BAD_ARENA, 0));
	}
}

static int arena_remove(struct sched *s, struct sched_request *rq)
{
	struct sched_arena *arena = &rq->session->arenas[rq->in.arena.arena];

	fail_steps_with(s, rq->session, rq->in.arena.arena);
	rq->session->n_arenas--;
	rq->session->arena_bytes -= arena->bytes;
	arena_let_go(s, arena);
	return 0;
}

static struct sched_lane *find_lane(struct sched_session *session, uint32_t number)
{
	struct sched_lane *lane;

	LIST_FOREACH (lane, &session->lanes, session_link) {
		if (lane->number == number)
			return lane;
	}
	return NULL;
}

static int lane_verb_add(struct sched *s, struct sched_request *rq)
{
	if (lane_add(&s->lanes, rq->session, rq->in.lane.lane, rq->in.lane.shared,
		     rq->in.lane.notify_fd) < 0)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	return 0;
}

static int lane_verb_remove(struct sched *s, struct sched_request *rq)
{
	struct sched_lane *lane = find_lane(rq->session, rq->in.lane.lane);
	struct sched_seq *seq, *next;

	assert(lane);
	shut_lane_down(s, lane, ending(s));
	for (seq = LIST_FIRST(&rq->session->seqs); seq; seq = next) {
		next = LIST_NEXT(seq, link);
		if (seq->lane == lane)
			close_seq(s, seq);
	}
	lane_remove(&s->lanes, lane);
	return 0;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static int refuse_store(struct sched_request *rq, int r)
{
	switch (r) {
	case -ENOSPC:
		return refuse(
			rq, r, NULL,
			"The KV pool is full and nothing in it may be evicted: close or unpin "
			"sequences, or give the daemon a larger pool.");
	case -EDQUOT:
		return refuse(rq, r, NULL,
			      "Your domain holds as much KV as it may: close or unpin sequences.");
	case -EUSERS:
		return refuse(
			rq, r, NULL,
			"Your domain has as many pins as it may (max_domain_pins): unpin some.");
	default:
		return refuse(rq, r, NULL, "The store refuses: %s.", strerror(-r));
	}
}

static int seq_verb_open(struct sched *s, struct sched_request *rq)
{
	struct sched_session *session = rq->session;
	uint32_t number = rq->in.open.model;
	struct seq_open open = {.session = session,
				.lane = find_lane(session, rq->in.open.lane),
				.tokens = rq->in.open.tokens,
				.n_tokens = rq->in.open.n_tokens,
				.salt = rq->in.open.salt};
	struct sched_seq *seq;

	if (s->core.draining)
		return refuse(rq, -ESHUTDOWN, NULL,
			      "The daemon is draining: it takes no new sequences.");
	if (number < 1 || number > s->core.config->max_models || !session->models[number - 1])
		return refuse(rq, -ENOENT, "model",
			      "There is no model %u in this session: open it first.", number);
	if (!open.lane)
		return refuse(rq, -ENOENT, "lane", "There is no lane %u in this session.",
			      rq->in.open.lane);
	if (open.n_tokens > s->core.config->max_seq_tokens)
		return refuse(rq, -E2BIG, "n_tokens",
			      "A prompt of %u tokens is too long: at most %u are taken.",
			      open.n_tokens, s->core.config->max_seq_tokens);
	if (session->n_seqs >= s->core.config->max_seqs)
		return refuse(rq, -EUSERS, NULL,
			      "The session has %u sequences, as many as it may: close some.",
			      session->n_seqs);
	if (!seq_prompts_fit(&s->core, session, open.n_tokens * sizeof(uint32_t)))
		return refuse(rq, -EDQUOT, "n_tokens",
			      "The session's prompts that are not computed yet may take %llu bytes "
			      "(max_arena_bytes): compute some first, or close them.",
			      (unsigned long long)s->core.config->max_arena_bytes);
	open.model = session->models[number - 1];
	int r = seq_open(&s->core, &open, &seq, &rq->out.seq.match);

	if (r < 0)
		return refuse_store(rq, r);
	rq->out.seq.seq = seq->handle;
	return 0;
}

/* The session's sequence that the request names, or NULL and a refusal. */
static struct sched_seq *find_seq(struct sched *s, struct sched_request *rq)
{
	struct sched_seq *seq = handle_find(&s->core.seqs, rq->session, rq->in.seq.seq);

	if (!seq)
		refuse(rq, -ESTALE, "seq", "No open sequence of this session has that handle.");
	return seq;
}

static int seq_verb_length(struct sched *s, struct sched_request *rq)
{
	struct sched_seq *seq = find_seq(s, rq);

	if (!seq)
		return rq->code;
	rq->out.length.n_tokens = store_seq_n_tokens(seq->store);
	rq->out.length.n_live = store_seq_n_live(seq->store);
	return 0;
}

static int seq_verb_close(struct sched *s, struct sched_request *rq)
{
	struct sched_seq *seq = find_seq(s, rq);

	if (!seq)
		return rq->code;
	close_seq(s, seq);
	return 0;
}

static uint64_t pin_until(const struct sched *s, uint64_t for_ns)
{
	uint64_t most = s->core.config->max_pin_ms * UINT64_C(1000000);

	return s->core.now_ns + (for_ns < most ? for_ns : most);
}

static int seq_verb_pin(struct sched *s, struct sched_request *rq)
{
	struct sched_seq *seq = find_seq(s, rq);

	if (!seq)
		return rq->code;
	int r = store_seq_pin(seq->store, pin_until(s, rq->in.seq.for_ns), &rq->out.pin);

	return r < 0 ? refuse_store(rq, r) : 0;
}

static int node_verb_pin(struct sched *s, struct sched_request *rq)
{
	int r = store_node_pin(s->core.store, rq->in.node_pin.node,
			       pin_until(s, rq->in.node_pin.for_ns), &rq->out.pin);

	if (r == -ENOENT)
		return refuse(rq, r, "node", "The tree has no node %llu.",
			      (unsigned long long)rq->in.node_pin.node);
	return r < 0 ? refuse_store(rq, r) : 0;
}

static int verb_unpin(struct sched *s, struct sched_request *rq)
{
	uint64_t domain = rq->privileged ? UINT64_MAX : rq->session->domain;

	if (store_unpin(s->core.store, rq->in.pin, domain, s->core.now_ns) < 0)
		return refuse(rq, -ENOENT, "pin", "There is no pin %llu: it may be over.",
			      (unsigned long long)rq->in.pin);
	return 0;
}

/* ---- reports -------------------------------------------------------------------------------- */

static int verb_status(struct sched *s, struct sched_request *rq)
{
	struct sched_status *out = rq->out.status;

	*out = s->core.stats;
	store_stats(s->core.store, &out->store);
	store_tiers_stats(s->core.store, &out->tiers);
	out->has_tiers = s->tiers.on;
	out->n_streamed = s->streamed.n_done;
	out->staged_bytes = s->streamed.staged_bytes;
	s->core.ops->counters(s->core.backend, &out->backend);
	out->n_sessions = s->n_sessions;
	out->n_lanes = s->lanes.n;
	out->n_input_waits = input_wait_n(&s->input_wait);
	for (uint32_t i = 0; i < out->store.n_devices && i < GROUP_DEVICES_MAX; i++)
		out->device_page_bytes[i] = store_device_bytes(s->core.store, i);
	out->draining = s->core.draining;
	return 0;
}

static int verb_tree(struct sched *s, struct sched_request *rq)
{
	uint64_t domain = rq->privileged || !rq->session ? UINT64_MAX : rq->session->domain;

	rq->out.tree.cursor = rq->in.cursor;
	rq->out.tree.n = store_walk(s->core.store, domain, &rq->out.tree.cursor, rq->out.tree.nodes,
				    SCHED_TREE_PAGE);
	if (!rq->out.tree.n)
		rq->out.tree.cursor = 0;
	for (uint32_t i = 0; i < rq->out.tree.n; i++) {
		strcpy(rq->out.tree.names[i], rq->out.tree.nodes[i].model);
		rq->out.tree.nodes[i].model = rq->out.tree.names[i];
	}
	return 0;
}

static struct sched_session_info session_info(const struct sched_session *session)
{
	return (struct sched_session_info){.id = session->id,
					   .n_lanes = session->n_lanes,
					   .n_seqs = session->n_seqs,
					   .n_arenas = session->n_arenas,
					   .arena_bytes = session->arena_bytes,
					   .entries = session->entries,
					   .decode_steps = session->decode_steps,
					   .tokens_matched = session->tokens_matched,
					   .tokens_computed = session->tokens_computed};
}

/* Newest first; the cursor is the id of the last one told. */
static int verb_sessions(struct sched *s, struct sched_request *rq)
{
	const struct sched_session *session;
	bool more = false;

	rq->out.sessions.n = 0;
	LIST_FOREACH (session, &s->sessions, link) {
		if (rq->in.cursor && session->id >= rq->in.cursor)
			continue;
		if (!rq->privileged && rq->session && session->domain != rq->session->domain)
			continue;
		more = rq->out.sessions.n == SCHED_SESSIONS_PAGE;
		if (more)
			break;
		rq->out.sessions.infos[rq->out.sessions.n++] = session_info(session);
	}
	rq->out.sessions.cursor = more ? rq->out.sessions.infos[SCHED_SESSIONS_PAGE - 1].id : 0;
	return 0;
}

/* One turn of it; the poster asks again while pages go and are wanted. */
static int verb_evict(struct sched *s, struct sched_request *rq)
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
	return 0;
}

static int serve(struct sched *s, struct sched_request *rq)
{
	switch (rq->verb) {
	case SCHED_SESSION_ADD:
		return session_add(s, rq);
	case SCHED_SESSION_END:
		rq->out.session = session_end(s, rq->session, rq->in.keep_device);
		return 0;
	case SCHED_MODEL_OPEN:
		return model_open(s, rq);
	case SCHED_ARENA_ADD:
		return arena_add(s, rq);
	case SCHED_ARENA_REMOVE:
		return arena_remove(s, rq);
	case SCHED_LANE_ADD:
		return lane_verb_add(s, rq);
	case SCHED_LANE_REMOVE:
		return lane_verb_remove(s, rq);
	case SCHED_SEQ_OPEN:
		return seq_verb_open(s, rq);
	case SCHED_SEQ_LENGTH:
		return seq_verb_length(s, rq);
	case SCHED_SEQ_CLOSE:
		return seq_verb_close(s, rq);
	case SCHED_SEQ_PIN:
		return seq_verb_pin(s, rq);
	case SCHED_UNPIN:
		return verb_unpin(s, rq);
	case SCHED_NODE_PIN:
		return node_verb_pin(s, rq);
	case SCHED_STATUS:
		return verb_status(s, rq);
	case SCHED_TREE:
		return verb_tree(s, rq);
	case SCHED_SESSIONS:
		return verb_sessions(s, rq);
	case SCHED_MODELS:
		return model_list(s, rq);
	case SCHED_EVICT:
		return verb_evict(s, rq);
	case SCHED_DRAIN:
		s->core.draining = rq->in.drain;
		return 0;
	default: /* SCHED_PROBE: that it comes back is the answer */
		if (s->core.ops->fault && s->core.ops->fault(s->core.backend))
			core_fail(&s->core);
		return 0;
	}
}

/* Returns whether the request is the scheduler's to answer later. */
static bool serve_wait(struct sched *s, struct sched_request *rq)
{
	struct sched_seq *seq = find_seq(s, rq);

	if (!seq)
		return false;
	if (wait_begin(&s->waits, seq, rq) == 0)
		return true;
	refuse(rq, -EBUSY, "seq", "Somebody waits for this sequence already.");
	return false;
}

void verbs_serve(struct sched *s, struct sched_request *rq)
{
	if (rq->verb == SCHED_SEQ_WAIT) {
		if (serve_wait(s, rq))
			return;
	} else {
		rq->code = serve(s, rq);
	}
	requests_answer(&s->core.requests, rq);
}
