/*
 * stats.c - what the daemon has counted of this connection.
 *
 * The daemon lists sessions, newest first, each under its number, from any number on down: asked
 * for those from our own on, its first is ours. Pool and drain are of all sessions.
 */
#include "client/lib/base/sized.h"
#include "client/lib/connection/call.h"

static const char what[] = "coppice_stats";

static int ask_session(struct coppice *c, struct coppice_stats *ret)
{
	Coppice__Sessions message = COPPICE__SESSIONS__INIT;
	struct call call = call_of(what);
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	const Coppice__Session *session;
	int r;

	message.has_cursor = 1;
	message.cursor = c->session + 1;
	call.request.sessions = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->sessions || answer.reply->sessions->n_session == 0 ||
	    answer.reply->sessions->session[0]->id != c->session)
		return call_bad_answer(c, what);
	session = answer.reply->sessions->session[0];
	ret->session = session->id;
	ret->n_lanes = session->n_lanes;
	ret->n_seqs = session->n_seqs;
	ret->n_arenas = session->n_arenas;
	ret->arena_bytes = session->arena_bytes;
	ret->n_entries = session->entries;
	ret->n_decode_steps = session->decode_steps;
	ret->tokens_matched = session->tokens_matched;
	ret->tokens_computed = session->tokens_computed;
	ret->weights_bytes_read = session->weights_bytes_read;
	return 0;
}

static int ask_status(struct coppice *c, struct coppice_stats *ret)
{
	Coppice__Status message = COPPICE__STATUS__INIT;
	struct call call = call_of(what);
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	call.request.status = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->status)
		return call_bad_answer(c, what);
	ret->pool_bytes = answer.reply->status->pool_bytes;
	ret->pool_used_bytes = answer.reply->status->pool_bytes_used;
	ret->draining = answer.reply->status->draining;
	return 0;
}

int coppice_stats(struct coppice *c, struct coppice_stats *ret)
{
	struct coppice_stats stats = {0};
	int r = ask_session(c, &stats);

	if (r == 0)
		r = ask_status(c, &stats);
	if (r < 0)
		return r;
	return sized_fill((struct sized_caller){c->key, what}, ret, &stats, sizeof(stats));
}
