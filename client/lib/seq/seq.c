/*
 * seq.c - opening, awaiting, pinning and closing sequences: what goes over the socket. entry.c has
 * the rest.
 *
 * A prompt's ids go through an arena of the connection's own, which grows as prompts do and is held
 * by one caller at a time: the daemon has copied them when it answers.
 */
#include "seq.h"

#include "client/lib/memory/arena.h"
#include "client/lib/base/clock.h"
#include "client/lib/connection/call.h"
#include "client/lib/lane/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The daemon keeps the time of a wait; this is how much later its answer may come. */
#define WAIT_GRACE_NS (2 * NS_PER_S)

struct coppice_seq *seq_new(struct coppice_lane *lane, uint64_t handle, const struct model *model)
{
	struct coppice_seq *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return NULL;
	seq->lane = lane;
	seq->handle = handle;
	seq->model = *model;
	list_add(&lane->seqs, &seq->link);
	return seq;
}

static void destroy(struct coppice_seq *seq)
{
	list_remove(&seq->link);
	free(seq);
}

void seq_drop_all(struct coppice_lane *lane)
{
	while (!list_is_empty(&lane->seqs))
		destroy(list_object(lane->seqs.next, struct coppice_seq, link));
}

static struct coppice_match match_of(const Coppice__SeqReply *reply)
{
	return (struct coppice_match){
		.cached = reply->cached,
		.pending = reply->pending,
		.claimed = reply->claimed,
	};
}

/* Under prompt_lock: an arena of at least so many bytes, in place of a smaller one. */
static int reserve_prompt(struct coppice *c, size_t bytes)
{
	struct coppice_arena *arena;
	int r;

	if (c->prompt_arena && c->prompt_arena->bytes >= bytes)
		return 0;
	r = coppice_arena_new(c, COPPICE_HOST, bytes, &arena);
	if (r < 0)
		return r;
	coppice_arena_free(c->prompt_arena);
	c->prompt_arena = arena;
	return 0;
}

/* Under prompt_lock: the daemon has copied the ids when it answers. */
static int call_with_prompt(struct coppice *c, struct call *call, const uint32_t *tokens,
			    struct answer *ret)
{
	Coppice__SeqOpen *message = call->request.seq_open;
	size_t bytes = message->n_tokens * sizeof(*tokens);
	int r = reserve_prompt(c, bytes);

	if (r < 0)
		return r;
	memcpy(c->prompt_arena->base, tokens, bytes);
	message->arena = c->prompt_arena->id;
	message->offset = 0;
	return call_daemon(c, call, ret);
}

void seq_release(struct coppice *c, uint64_t handle)
{
	Coppice__SeqClose message = COPPICE__SEQ_CLOSE__INIT;
	struct call call = call_of("coppice_seq_close");

	message.seq = handle;
	call.request.seq_close = &message;
	call_release(c, &call);
}

static int adopt(struct coppice_lane *lane, const Coppice__SeqReply *reply,
		 const struct model *model, struct coppice_seq **ret)
{
	struct coppice_seq *seq = seq_new(lane, reply->seq, model);

	if (!seq) {
		seq_release(lane->c, reply->seq);
		return explain(lane->c->key, -ENOMEM, "coppice_seq_open: out of memory");
	}
	seq->match = match_of(reply);
	*ret = seq;
	return 0;
}

static int check_prompt(struct coppice *c, const uint32_t *tokens, uint32_t n_tokens)
{
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (!tokens || n_tokens == 0)
		return explain(c->key, -EINVAL,
			       "coppice_seq_open: there are no tokens; a prompt has at least one");
	return 0;
}

int coppice_seq_open(struct coppice_lane *lane, uint32_t model_id, const uint32_t *tokens,
		     uint32_t n_tokens, uint64_t salt, struct coppice_seq **ret,
		     struct coppice_match *ret_match)
{
	Coppice__SeqOpen message = COPPICE__SEQ_OPEN__INIT;
	struct call call = call_of("coppice_seq_open");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	struct coppice *c = lane->c;
	struct model model;
	int r = check_prompt(c, tokens, n_tokens);

	if (r == 0)
		r = model_find(c, model_id, &model);
	if (r < 0)
		return r;
	message.model = model_id;
	message.lane = lane->id;
	message.n_tokens = n_tokens;
	message.has_salt = salt != 0;
	message.salt = salt;
	call.request.seq_open = &message;
	pthread_mutex_lock(&c->prompt_lock);
	r = call_with_prompt(c, &call, tokens, &answer);
	pthread_mutex_unlock(&c->prompt_lock);
	if (r < 0)
		return r;
	if (!answer.reply->seq || answer.reply->seq->seq == 0)
		return call_bad_answer(c, call.what);
	r = adopt(lane, answer.reply->seq, &model, ret);
	if (r == 0 && ret_match)
		*ret_match = (*ret)->match;
	return r;
}

int coppice_seq_wait(struct coppice_seq *seq, uint64_t timeout_ns, struct coppice_match *ret_match)
{
	Coppice__SeqWait message = COPPICE__SEQ_WAIT__INIT;
	struct call call = {
		.what = "coppice_seq_wait",
		.request = COPPICE__REQUEST__INIT,
		.timeout_ns = clock_add_ns(timeout_ns, WAIT_GRACE_NS),
	};
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.seq = seq->handle;
	message.timeout_ns = timeout_ns;
	call.request.seq_wait = &message;
	r = call_daemon(seq->lane->c, &call, &answer);
	if (r < 0 && r != -ETIMEDOUT)
		return r;
	if (answer.reply && answer.reply->seq)
		seq->match = match_of(answer.reply->seq);
	else if (r == 0)
		return call_bad_answer(seq->lane->c, call.what);
	if (ret_match)
		*ret_match = seq->match;
	return r;
}

static int ask_length(struct coppice_seq *seq, const char *what, Coppice__SeqLengthReply *ret)
{
	Coppice__SeqLength message = COPPICE__SEQ_LENGTH__INIT;
	struct call call = call_of(what);
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.seq = seq->handle;
	call.request.seq_length = &message;
	r = call_daemon(seq->lane->c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->seq_length)
		return call_bad_answer(seq->lane->c, what);
	*ret = *answer.reply->seq_length;
	return 0;
}

int coppice_seq_length(struct coppice_seq *seq, uint32_t *ret_n_tokens)
{
	Coppice__SeqLengthReply length;
	int r = ask_length(seq, "coppice_seq_length", &length);

	if (r == 0)
		*ret_n_tokens = length.n_tokens;
	return r;
}

int coppice_seq_live(struct coppice_seq *seq, uint32_t *ret_n_live)
{
	Coppice__SeqLengthReply length;
	int r = ask_length(seq, "coppice_seq_live", &length);

	if (r == 0)
		*ret_n_live = length.n_live;
	return r;
}

void coppice_seq_close(struct coppice_seq *seq)
{
	if (!seq)
		return;
	/* In a forked child all of it goes with the connection. */
	if (connection_is_foreign(seq->lane->c))
		return;
	seq_release(seq->lane->c, seq->handle);
	destroy(seq);
}

int coppice_seq_pin(struct coppice_seq *seq, uint64_t for_ns, uint64_t *ret_pin)
{
	Coppice__SeqPin message = COPPICE__SEQ_PIN__INIT;
	struct call call = call_of("coppice_seq_pin");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.seq = seq->handle;
	message.for_ns = for_ns;
	call.request.seq_pin = &message;
	r = call_daemon(seq->lane->c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->pin)
		return call_bad_answer(seq->lane->c, call.what);
	if (ret_pin)
		*ret_pin = answer.reply->pin->pin;
	return 0;
}

int coppice_unpin(struct coppice *c, uint64_t pin)
{
	Coppice__Unpin message = COPPICE__UNPIN__INIT;
	struct call call = call_of("coppice_unpin");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.pin = pin;
	call.request.unpin = &message;
	return call_daemon(c, &call, &answer);
}
