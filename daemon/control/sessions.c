/*
 * sessions.c - the verb sessions: who is there, and what each has and has done.
 *
 * The scheduler has the figures, the loop the names; sessions that are ending are left out.
 */
#include "sessions.h"

#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

/* Those of prompts' ids too, of which the scheduler does not know. */
static uint32_t n_arenas(const struct session *session)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < session->home->config->max_arenas; i++)
		n += session->arenas[i].state != SHM_FREE;
	return n;
}

static void session_row(Coppice__Session *to, const struct session_info *from,
			struct session *session)
{
	coppice__session__init(to);
	to->id = from->id;
	to->pid = (uint32_t)session->peer.pid;
	to->uid = session->peer.uid;
	to->name = session->name;
	to->n_lanes = from->n_lanes;
	to->n_seqs = from->n_seqs;
	to->n_arenas = n_arenas(session);
	to->arena_bytes = session->arena_bytes + session->device_bytes;
	to->entries = from->entries;
	to->tokens_matched = from->tokens_matched;
	to->tokens_computed = from->tokens_computed;
	to->decode_steps = from->decode_steps;
	to->has_backend_ns = true;
	to->backend_ns = from->backend_ns;
	to->has_weights_bytes_read = true;
	to->weights_bytes_read = from->weights_bytes_read;
}

static void sessions_answer(struct request *request)
{
	const struct sessions_page *page = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__SessionsReply sessions = COPPICE__SESSIONS_REPLY__INIT;
	Coppice__Session rows[SESSIONS_PAGE], *pointers[SESSIONS_PAGE];

	if (reply_failed(request))
		return;
	for (uint32_t i = 0; i < page->n; i++) {
		struct session *session = session_find(request->home, page->infos[i].id);
		size_t n = sessions.n_session;

		if (!session || session->state == SESSION_ENDING)
			continue;
		session_row(&rows[n], &page->infos[i], session);
		pointers[n] = &rows[n];
		sessions.n_session++;
	}
	sessions.cursor = page->cursor;
	sessions.session = pointers;
	reply.sessions = &sessions;
	reply_send(request->session, &reply);
}

static void sessions_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Sessions *m = message;
	struct request *request =
		request_begin(s, id, &verb_sessions, sizeof(struct sessions_page));
	struct sessions_page *page;

	if (!request)
		return;
	page = request->sched.room;
	page->cursor = m->cursor;
	request_post(request);
}

static struct session_info session_info(const struct sched_session *session)
{
	return (struct session_info){.id = session->id,
				     .n_lanes = session->n_lanes,
				     .n_seqs = session->n_seqs,
				     .entries = session->entries,
				     .decode_steps = session->decode_steps,
				     .tokens_matched = session->tokens_matched,
				     .tokens_computed = session->tokens_computed,
				     .backend_ns = (uint64_t)session->backend_ns,
				     .weights_bytes_read = session->weights_bytes_read};
}

/* Newest first; the cursor is the id of the last one told. */
static int sessions_serve(struct sched *s, struct sched_request *rq)
{
	struct sessions_page *page = rq->room;
	const struct sched_session *session;
	bool more = false;

	page->n = 0;
	LIST_FOREACH (session, &s->sessions, link) {
		if (page->cursor && session->id >= page->cursor)
			continue;
		if (!rq->privileged && rq->session && session->domain != rq->session->domain)
			continue;
		more = page->n == SESSIONS_PAGE;
		if (more)
			break;
		page->infos[page->n++] = session_info(session);
	}
	page->cursor = more ? page->infos[SESSIONS_PAGE - 1].id : 0;
	return 0;
}

const struct verb verb_sessions = {.begin = sessions_begin,
				   .serve = sessions_serve,
				   .beside = beside_pass,
				   .answer = sessions_answer};
