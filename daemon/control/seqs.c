/*
 * seqs.c - the verbs of sequences: seq_open, seq_wait, seq_length, seq_close.
 *
 * Token ids lie in an arena, which the client may write at any time: they are looked at once, when
 * they are copied. Open and wait have one answer, what of the prompt is there.
 */
#include "seqs.h"

#include "arenas.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/step/step_end.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include "kvstore/base/reserve.h"
#include "proto/arith.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX_NS UINT64_C(3600000000000)

/* Of open and wait. */
static void match_send(struct request *request, uint64_t handle, const struct store_match *match)
{
	Coppice__Reply reply = reply_to(request);
	Coppice__SeqReply seq = COPPICE__SEQ_REPLY__INIT;
	int code = request->sched.code;

	if (code != -ETIMEDOUT && reply_failed(request))
		return;
	seq.seq = handle;
	seq.cached = match->cached;
	seq.pending = match->pending;
	seq.claimed = match->claimed;
	reply.seq = &seq;
	reply.code = code;
	if (code != 0)
		reply.message = request->sched.message[0]
					? request->sched.message
					: (char *)"The tokens are still being computed.";
	reply_send(request->session, &reply);
}

/* Where the token ids lie, or NULL after a reply that says what is wrong. */
static const uint32_t *tokens_find(struct session *s, uint64_t id, const Coppice__SeqOpen *m)
{
	const struct config *config = s->home->config;
	const struct shm *arena = arena_find(s, m->arena, SHM_READY);
	uint64_t bytes = (uint64_t)m->n_tokens * sizeof(uint32_t);

	if (!arena)
		reply_error(s, id, -ENOENT, "arena", "There is no arena %u in this session.",
			    m->arena);
	else if (!arena->map)
		reply_error(s, id, -EINVAL, "arena",
			    "Arena %u is device memory: token ids lie in host memory.", m->arena);
	else if (m->n_tokens == 0)
		reply_error(s, id, -EINVAL, "n_tokens", "A prompt has at least one token.");
	else if (m->n_tokens > config->max_seq_tokens)
		reply_error(s, id, -E2BIG, "n_tokens",
			    "A prompt of %u tokens is too long: at most %u are taken.", m->n_tokens,
			    config->max_seq_tokens);
	else if (m->offset % sizeof(uint32_t))
		reply_error(s, id, -EINVAL, "offset",
			    "Token ids lie at multiples of 4 bytes, not at %" PRIu64 ".",
			    m->offset);
	else if (m->offset > arena->bytes || bytes > arena->bytes - m->offset)
		reply_error(s, id, -ERANGE, "offset",
			    "%u token ids at %" PRIu64
			    " reach beyond arena %u, which has %zu bytes.",
			    m->n_tokens, m->offset, m->arena, arena->bytes);
	else if (!shm_is_there(arena, m->offset, bytes))
		reply_error(s, id, -EBUSY, "arena",
			    "Arena %u has pages that are swapped out: they are being fetched, ask "
			    "again.",
			    m->arena);
	else
		return (const uint32_t *)((const char *)arena->map + m->offset);
	return NULL;
}

/* Copies that the scheduler has not taken yet are memory too: no more of it than of what it has
 * taken. */
struct prompt_room prompt_room(const struct session *s)
{
	const struct config *config = s->home->config;
	uint64_t all = 0, domain = 0, left;
	const struct session *other;

	TAILQ_FOREACH (other, &s->home->list, entry) {
		all += other->prompt_bytes;
		domain += other->peer.uid == s->peer.uid ? other->prompt_bytes : 0;
	}
	left = config->prompt_bytes - all;
	if (!s->privileged)
		left = reserve_room(reserve_of(config->prompt_bytes, config->domain_prompt_bytes),
				    domain, left);
	return (struct prompt_room){config->domain_prompt_bytes - domain, left};
}

static bool prompt_may_go(struct session *s, uint64_t id, uint64_t bytes)
{
	const struct config *config = s->home->config;
	struct prompt_room room = prompt_room(s);

	if (bytes > room.domain_bytes)
		reply_error(s, id, -EDQUOT, "n_tokens",
			    "Prompts of yours that are being opened may take %" PRIu64
			    " bytes (domain_prompt_bytes): wait for some.",
			    config->domain_prompt_bytes);
	else if (bytes > room.all_bytes)
		reply_error(s, id, -EDQUOT, "n_tokens",
			    "Prompts of all users that are being opened take up their %" PRIu64
			    " bytes (prompt_bytes), of whose last tenth a user gets no more than "
			    "he leaves: try again later.",
			    config->prompt_bytes);
	else
		return true;
	return false;
}

/* The only look at them. NULL: it has been answered. */
static uint32_t *tokens_copy(struct session *s, uint64_t id, const uint32_t *tokens, uint64_t bytes)
{
	uint32_t *copy = malloc(bytes);

	if (copy)
		memcpy(copy, tokens, bytes);
	else
		reply_error(s, id, -ENOMEM, NULL, "The daemon is out of memory.");
	return copy;
}

static void open_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqOpen *m = message;
	const uint32_t *tokens = tokens_find(s, id, m);
	uint64_t bytes = m->n_tokens * (uint64_t)sizeof(uint32_t);
	struct request *request;
	struct seq_open_call *call;
	uint32_t *copy;

	if (!tokens || !prompt_may_go(s, id, bytes))
		return;
	request = request_begin(s, id, &verb_seq_open, sizeof(*call));
	if (!request)
		return;
	copy = tokens_copy(s, id, tokens, bytes);
	if (!copy) {
		request_free(request);
		return;
	}
	s->prompt_bytes += bytes;
	call = request->sched.room;
	*call = (struct seq_open_call){.model = m->model,
				       .lane = m->lane,
				       .tokens = copy,
				       .n_tokens = m->n_tokens,
				       .salt = m->salt};
	request_post(request);
}

/* Of its user, or of all. */
static int refuse_prompt(struct sched_request *rq, const struct config *config, int r)
{
	if (r == -EDQUOT)
		return refuse(
			rq, -EDQUOT, "n_tokens",
			"Token ids of your prompts that are not computed yet may take %" PRIu64
			" bytes (domain_prompt_bytes): compute some first, or close them.",
			config->domain_prompt_bytes);
	return refuse(rq, -EDQUOT, "n_tokens",
		      "Token ids of all users' prompts that are not computed yet take up their "
		      "%" PRIu64 " bytes (prompt_bytes), of whose last tenth a user gets no more "
		      "than he leaves: try again later.",
		      config->prompt_bytes);
}

static void open_answer(struct request *request)
{
	const struct seq_open_call *call = request->sched.room;

	request->session->prompt_bytes -= call->n_tokens * (uint64_t)sizeof(uint32_t);
	free(call->tokens);
	match_send(request, call->seq, &call->match);
}

static int open_serve(struct sched *s, struct sched_request *rq)
{
	struct seq_open_call *call = rq->room;
	struct sched_session *session = rq->session;
	uint32_t number = call->model;
	struct seq_open open = {.session = session,
				.lane = session_lane(session, call->lane),
				.tokens = &call->tokens,
				.n_tokens = call->n_tokens,
				.salt = call->salt};
	struct sched_seq *seq;

	if (s->core.draining)
		return refuse(rq, -ESHUTDOWN, NULL,
			      "The daemon is draining: it takes no new sequences.");
	if (number < 1 || number > s->core.config->max_models || !session->models[number - 1])
		return refuse(rq, -ENOENT, "model",
			      "There is no model %u in this session: open it first.", number);
	if (!open.lane)
		return refuse(rq, -ENOENT, "lane", "There is no lane %u in this session.",
			      call->lane);
	if (session->n_seqs >= s->core.config->max_seqs)
		return refuse(rq, -EUSERS, NULL,
			      "The session has %u sequences, as many as it may (max_seqs): "
			      "close some.",
			      session->n_seqs);
	open.model = session->models[number - 1];
	int r = seq_open(&s->core, &open, &seq, &call->match);

	if (r == -EDQUOT || r == -ENOBUFS)
		return refuse_prompt(rq, s->core.config, r);
	if (r < 0)
		return refuse_by_store(rq, r);
	call->seq = seq->handle;
	return 0;
}

const struct verb verb_seq_open = {.begin = open_begin,
				   .serve = open_serve,
				   .beside = beside_pass,
				   .answer = open_answer};

static void wait_ask(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqWait *m = message;
	struct seq_wait_call *call;
	struct request *request = request_begin(s, id, &verb_seq_wait, sizeof(*call));

	if (!request)
		return;
	call = request->sched.room;
	call->seq = m->seq;
	call->for_ns = min_u64(m->timeout_ns, WAIT_MAX_NS);
	request_post(request);
}

static void wait_answer(struct request *request)
{
	const struct seq_wait_call *call = request->sched.room;

	match_send(request, call->seq, &call->match);
}

static int wait_serve(struct sched *s, struct sched_request *rq)
{
	const struct seq_wait_call *call = rq->room;
	struct sched_seq *seq = request_seq(s, rq, call->seq);

	if (!seq)
		return rq->code;
	if (wait_begin(&s->waits, seq, rq) == 0)
		return SCHED_LATER;
	return refuse(rq, -EBUSY, "seq", "Somebody waits for this sequence already.");
}

const struct verb verb_seq_wait = {.begin = wait_ask,
				   .serve = wait_serve,
				   .beside = beside_pass,
				   .answer = wait_answer};

static void length_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqLength *m = message;
	struct seq_length_call *call;
	struct request *request = request_begin(s, id, &verb_seq_length, sizeof(*call));

	if (!request)
		return;
	call = request->sched.room;
	call->seq = m->seq;
	request_post(request);
}

static void length_answer(struct request *request)
{
	const struct seq_length_call *call = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__SeqLengthReply length = COPPICE__SEQ_LENGTH_REPLY__INIT;

	if (reply_failed(request))
		return;
	length.n_tokens = call->n_tokens;
	length.n_live = call->n_live;
	reply.seq_length = &length;
	reply_send(request->session, &reply);
}

static int length_serve(struct sched *s, struct sched_request *rq)
{
	struct seq_length_call *call = rq->room;
	struct sched_seq *seq = request_seq(s, rq, call->seq);

	if (!seq)
		return rq->code;
	call->n_tokens = store_seq_n_tokens(seq->store);
	call->n_live = store_seq_n_live(seq->store);
	return 0;
}

const struct verb verb_seq_length = {.begin = length_begin,
				     .serve = length_serve,
				     .beside = beside_pass,
				     .answer = length_answer};

/* The room is a sequence's handle, an uint64_t. */

static void close_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__SeqClose *m = message;
	struct request *request = request_begin(s, id, &verb_seq_close, sizeof(m->seq));

	if (!request)
		return;
	*(uint64_t *)request->sched.room = m->seq;
	request_post(request);
}

static int close_serve(struct sched *s, struct sched_request *rq)
{
	const uint64_t *handle = rq->room;
	struct sched_seq *seq = request_seq(s, rq, *handle);

	if (!seq)
		return rq->code;
	session_close_seq(s, seq);
	return 0;
}

/* The pass has the sequences of its entries, not all of their lanes. */
static bool close_may_go(const struct sched *s, const struct sched_request *rq)
{
	const uint64_t *handle = rq->room;
	const struct sched_seq *seq = handle_find(&s->core.seqs, rq->session, *handle);

	return !seq || seq->lane->state != STEP_IN_PASS || step_part_of(seq) == UINT32_MAX;
}

const struct verb verb_seq_close = {.begin = close_begin,
				    .serve = close_serve,
				    .beside = close_may_go,
				    .answer = reply_done};
