/*
 * seq_open.c - opening sequences on prompts, one or many at once.
 *
 * A prompt's ids go through an arena of the connection's own, which grows as prompts do and is held
 * by one caller at a time: the daemon has copied them when it answers. Of many prompts some are on
 * their way together, as far as their ids fit a few MiB; each is answered, in order, before the
 * arena is let go. All are opened or none: who was opened before another failed is closed again.
 * What the daemon cannot take at the moment, as the ids' pages are swapped out or it has as many
 * requests of the connection as it takes, is asked again for a second: then its ids are written
 * anew, which brings the pages back.
 */
#include "client/lib/base/clock.h"
#include "client/lib/base/pace.h"
#include "client/lib/lane/lane.h"
#include "client/lib/memory/arena.h"
#include "seq.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TOGETHER_MAX 32u /* the daemon takes 64 requests of a session at a time */
#define TOGETHER_BYTES ((size_t)4 << 20) /* of ids; one prompt may have more */
#define BUSY_NS NS_PER_S
#define ARENA_MIN_BYTES ((size_t)64 << 10)
/* Up to so many, and then by so many more: prompts often grow by a little. */
#define ARENA_DOUBLED_BYTES ((size_t)2 << 20)

/* What is asked for, and what has come of it. */
struct opening {
	struct coppice_lane *lane;
	const char *what; /* the public function */
	const struct coppice_prompt *prompts; /* [n] */
	uint32_t n;
	struct coppice_seq **seqs; /* [n]; the first n_open are open */
	uint32_t n_open;
	char failure[EXPLAIN_BYTES]; /* the first one's sentence */
};

/* Keeps the sentence while others are closed, which may fail as well. Returns code. */
static int note_failure(struct opening *o, uint32_t i, int code)
{
	const char *sentence = explain_last(o->lane->c->key);

	if (o->n == 1)
		snprintf(o->failure, sizeof(o->failure), "%s", sentence);
	else
		snprintf(o->failure, sizeof(o->failure), "%s (prompt %u of %u)", sentence, i, o->n);
	return code;
}

static int check_prompt(const struct opening *o, const struct coppice_prompt *prompt)
{
	struct coppice *c = o->lane->c;
	struct model model;

	if (!prompt->tokens || prompt->n_tokens == 0)
		return explain(c->key, -EINVAL,
			       "%s: there are no tokens; a prompt has at least one", o->what);
	if (prompt->reserved[0] || prompt->reserved[1])
		return explain(c->key, -EINVAL,
			       "%s: a reserved word is not 0; this library (%s) has no meaning "
			       "for it",
			       o->what, COPPICE_VERSION);
	return model_find(c, prompt->model, &model);
}

static int check_prompts(struct opening *o)
{
	int r = connection_check(o->lane->c);

	if (r < 0)
		return note_failure(o, 0, r);
	for (uint32_t i = 0; i < o->n; i++) {
		r = check_prompt(o, &o->prompts[i]);
		if (r < 0)
			return note_failure(o, i, r);
	}
	return 0;
}

static size_t arena_bytes_for(size_t bytes)
{
	size_t room = ARENA_MIN_BYTES;

	if (bytes > ARENA_DOUBLED_BYTES)
		return round_up(bytes, ARENA_DOUBLED_BYTES);
	while (room < bytes)
		room *= 2;
	return room;
}

/* Under prompt_lock: an arena of at least so many bytes, in place of a smaller one. */
static int reserve_ids(struct coppice *c, size_t bytes)
{
	struct coppice_arena *arena;
	int r;

	if (c->prompt_arena && c->prompt_arena->bytes >= bytes)
		return 0;
	r = arena_new_for_ids(c, arena_bytes_for(bytes), &arena);
	if (r < 0)
		return r;
	coppice_arena_free(c->prompt_arena);
	c->prompt_arena = arena;
	return 0;
}

/* Under prompt_lock: sends a prompt whose ids are to lie at this offset of its arena. */
static int begin(const struct opening *o, const struct coppice_prompt *prompt, size_t offset,
		 struct pending *ret)
{
	struct coppice *c = o->lane->c;
	Coppice__SeqOpen message = COPPICE__SEQ_OPEN__INIT;
	struct call call = call_of(o->what);

	memcpy(c->prompt_arena->base + offset, prompt->tokens,
	       prompt->n_tokens * sizeof(*prompt->tokens));
	message.model = prompt->model;
	message.lane = o->lane->id;
	message.arena = c->prompt_arena->id;
	message.offset = offset;
	message.n_tokens = prompt->n_tokens;
	message.has_salt = prompt->salt != 0;
	message.salt = prompt->salt;
	call.request.seq_open = &message;
	return call_begin(c, &call, ret);
}

static int adopt(struct opening *o, const struct coppice_prompt *prompt,
		 const Coppice__SeqReply *reply, struct coppice_seq **ret)
{
	struct coppice *c = o->lane->c;
	struct model model;
	int r = model_find(c, prompt->model, &model);

	if (r < 0)
		return r;
	*ret = seq_new(o->lane, reply->seq, &model);
	if (!*ret) {
		seq_release(c, reply->seq);
		return explain(c->key, -ENOMEM, "%s: out of memory", o->what);
	}
	(*ret)->match = seq_match_of(reply);
	return 0;
}

static int end(struct opening *o, const struct coppice_prompt *prompt, struct pending *pending,
	       struct coppice_seq **ret)
{
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r = call_end(o->lane->c, pending, COPPICE_FOREVER, &answer);

	if (r < 0)
		return r;
	if (!answer.reply->seq || answer.reply->seq->seq == 0)
		return call_bad_answer(o->lane->c, o->what);
	return adopt(o, prompt, answer.reply->seq, ret);
}

static size_t bytes_of(const struct coppice_prompt *prompt)
{
	return prompt->n_tokens * sizeof(*prompt->tokens);
}

/* How many of the prompts from n_open on are to be on their way together, and their bytes. */
static uint32_t choose(const struct opening *o, size_t *ret_bytes)
{
	uint32_t left = o->n - o->n_open, most = min_u32(left, TOGETHER_MAX);
	size_t bytes = bytes_of(&o->prompts[o->n_open]);
	uint32_t n = 1;

	while (n < most && bytes + bytes_of(&o->prompts[o->n_open + n]) <= TOGETHER_BYTES)
		bytes += bytes_of(&o->prompts[o->n_open + n++]);
	*ret_bytes = bytes;
	return n;
}

/* Takes all answers, the failures' too; the first failure counts, and nothing behind it. */
static int end_some(struct opening *o, struct pending *pending, uint32_t n, int r)
{
	uint32_t first = o->n_open;

	for (uint32_t i = 0; i < n; i++) {
		struct coppice_seq *seq;

		if (r < 0) {
			if (end(o, &o->prompts[first + i], &pending[i], &seq) == 0)
				coppice_seq_close(seq);
			continue;
		}
		r = end(o, &o->prompts[first + i], &pending[i], &seq);
		if (r < 0)
			note_failure(o, first + i, r);
		else
			o->seqs[o->n_open++] = seq;
	}
	return r;
}

/* Under prompt_lock. */
static int open_some(struct opening *o)
{
	struct pending pending[TOGETHER_MAX];
	size_t bytes, offset = 0;
	uint32_t n = choose(o, &bytes), n_begun = 0;
	int r = reserve_ids(o->lane->c, bytes);

	while (r == 0 && n_begun < n) {
		const struct coppice_prompt *prompt = &o->prompts[o->n_open + n_begun];

		r = begin(o, prompt, offset, &pending[n_begun]);
		if (r == 0)
			n_begun++;
		offset += bytes_of(prompt);
	}
	if (r < 0)
		note_failure(o, o->n_open + n_begun, r);
	return end_some(o, pending, n_begun, r);
}

/* Under prompt_lock: has it been less than BUSY_NS since the daemon was first busy? pace: zeroed
 * before that. */
static bool wait_while_busy(struct pace *pace)
{
	if (!pace->deadline_ns)
		*pace = pace_begin(BUSY_NS);
	return pace_sleep(pace);
}

static int open_all(struct opening *o)
{
	struct coppice *c = o->lane->c;
	struct pace pace = {0};
	int r = check_prompts(o);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->prompt_lock);
	while (o->n_open < o->n) {
		uint32_t n_open = o->n_open;

		r = open_some(o);
		if (o->n_open > n_open)
			pace = (struct pace){0};
		if (r < 0 && (r != -EBUSY || !wait_while_busy(&pace)))
			break;
	}
	pthread_mutex_unlock(&c->prompt_lock);
	return r;
}

/* None is open afterwards, and the sentence is that of the first failure. */
static int undo(struct opening *o, int code)
{
	while (o->n_open) {
		coppice_seq_close(o->seqs[--o->n_open]);
		o->seqs[o->n_open] = NULL;
	}
	return explain(o->lane->c->key, code, "%s", o->failure);
}

int coppice_seq_open_many(struct coppice_lane *lane, const struct coppice_prompt *prompts,
			  uint32_t n, struct coppice_seq **ret, struct coppice_match *ret_matches)
{
	struct opening o = {
		.lane = lane,
		.what = "coppice_seq_open_many",
		.prompts = prompts,
		.n = n,
		.seqs = ret,
	};
	int r = open_all(&o);

	if (r < 0)
		return undo(&o, r);
	for (uint32_t i = 0; ret_matches && i < n; i++)
		ret_matches[i] = ret[i]->match;
	return 0;
}

int coppice_seq_open(struct coppice_lane *lane, uint32_t model, const uint32_t *tokens,
		     uint32_t n_tokens, uint64_t salt, struct coppice_seq **ret,
		     struct coppice_match *ret_match)
{
	struct coppice_prompt prompt = {
		.model = model,
		.n_tokens = n_tokens,
		.tokens = tokens,
		.salt = salt,
	};
	struct opening o = {
		.lane = lane,
		.what = "coppice_seq_open",
		.prompts = &prompt,
		.n = 1,
		.seqs = ret,
	};
	int r = open_all(&o);

	if (r == 0 && ret_match)
		*ret_match = (*ret)->match;
	return r;
}
