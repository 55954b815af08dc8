/*
 * sessions.c - what ends together, in its order: lanes fail their entries, sequences close, lanes
 * go, models are let go of, the doorbell is not listened to any more; arenas last, as entries may
 * use them until then.
 */
#include "sessions.h"

#include "daemon/sched/core/doorbell.h"
#include "daemon/sched/core/users.h"
#include "daemon/sched/seq/evicted.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/seq/wait.h"
#include "daemon/sched/step/lanes.h"
#include "daemon/sched/step/step_end.h"
#include "models.h"
#include "refuse.h"
#include "proto/clock.h"

#include <errno.h>
#include <stdlib.h>

/* Drivers take their time over each. */
#define ARENAS_A_TURN 4u
/* So many sequences are closed in a turn, and more until so much has passed: each walks its path,
 * and frees what of its prompt nobody computed. */
#define CLOSE_AT_LEAST 8u
#define CLOSE_NS NS_PER_MS

/* One that is half-built, too. */
static void session_free(struct sched_session *session)
{
	if (!session)
		return;
	user_unref(session->user);
	free(session->models);
	free(session->arenas);
	free(session);
}

/* Newest first: the verb sessions goes by it. Who connected earlier may say hello later. */
static void session_insert(struct sched *s, struct sched_session *session)
{
	struct sched_session *at = LIST_FIRST(&s->sessions);

	if (!at || at->id < session->id) {
		LIST_INSERT_HEAD(&s->sessions, session, link);
		return;
	}
	while (LIST_NEXT(at, link) && LIST_NEXT(at, link)->id > session->id)
		at = LIST_NEXT(at, link);
	LIST_INSERT_AFTER(at, session, link);
}

int sched_session_add(struct sched *s, struct sched_request *rq)
{
	struct session_add_call *call = rq->room;
	struct sched_session *session = calloc(1, sizeof(*session));

	if (session) {
		session->models = calloc(s->core.config->max_models, sizeof(struct sched_model *));
		session->arenas = calloc(s->core.config->max_arenas + 1, sizeof(*session->arenas));
		session->user = user_ref(&s->core, call->domain);
	}
	if (!session || !session->models || !session->arenas || !session->user) {
		session_free(session);
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	}
	if (doorbell_add(&s->doorbell, call->doorbell_fd) < 0) {
		session_free(session);
		return refuse(rq, -ENOMEM, NULL, "The daemon cannot listen for one more doorbell.");
	}
	session->id = call->id;
	session->domain = call->domain;
	session->doorbell_fd = call->doorbell_fd;
	session_insert(s, session);
	s->n_sessions++;
	call->session = session;
	return 0;
}

void session_stop_step(struct sched *s, struct sched_lane *lane, struct outcome outcome)
{
	streamed_forget(&s->streamed, lane);
	step_cancel(&s->core, lane, outcome);
}

static void shut_lane_down(struct sched *s, struct sched_lane *lane, struct outcome outcome)
{
	streamed_forget(&s->streamed, lane);
	lane_shut_down(&s->lanes, lane, outcome);
}

void session_close_seq(struct sched *s, struct sched_seq *seq)
{
	uint32_t part = step_part_of(seq);

	if (part != UINT32_MAX)
		session_stop_step(s, seq->lane, outcome_bad(-ECANCELED, ABI_STALE_SEQ, part));
	wait_cancel(&s->waits, seq);
	pace_forget(&s->core, seq);
	seq_free(&s->core, seq);
}

/* The pieces by which it was attached, the last first. */
static bool detach_some(struct sched *s, struct sched_arena *arena)
{
	uint64_t until_ns = core_clock(&s->core) + CLOSE_NS;

	while (arena->bytes > 0) {
		uint64_t at = (arena->bytes - 1) / SCHED_ARENA_PIECE * SCHED_ARENA_PIECE;

		s->core.ops->arena_detach(s->core.backend, arena->base + at, arena->bytes - at);
		arena->bytes = at;
		if (core_clock(&s->core) >= until_ns)
			break;
	}
	return arena->bytes == 0;
}

bool session_drop_arena(struct sched *s, struct sched_arena *arena)
{
	arena->number = 0;
	if (arena->device)
		s->core.ops->arena_free(s->core.backend, arena->base);
	else if (!detach_some(s, arena))
		return false;
	*arena = (struct sched_arena){0};
	return true;
}

/* Those of the lane, or of all lanes. False: there are more, for a later turn. */
static bool close_seqs(struct sched *s, struct sched_session *session,
		       const struct sched_lane *lane)
{
	uint64_t until_ns = core_clock(&s->core) + CLOSE_NS;
	struct sched_seq *seq, *next;
	uint32_t n = 0;

	for (seq = LIST_FIRST(&session->seqs); seq; seq = next) {
		next = LIST_NEXT(seq, link);
		if (lane && seq->lane != lane)
			continue;
		if (n++ >= CLOSE_AT_LEAST && core_clock(&s->core) >= until_ns)
			return false;
		session_close_seq(s, seq);
	}
	return true;
}

enum session_left { LEFT_NONE, LEFT_DEVICE_ARENAS, LEFT_MORE };

/* Host arenas, and with them or later those of the device: a few at a time. Returns what is
 * left. */
static enum session_left drop_arenas(struct sched *s, struct sched_session *session,
				     bool keep_device)
{
	uint64_t until_ns = core_clock(&s->core) + CLOSE_NS;
	enum session_left left = LEFT_NONE;
	uint32_t n = 0;

	for (uint32_t i = 1; i <= s->core.config->max_arenas; i++) {
		struct sched_arena *arena = &session->arenas[i];

		if (!arena->base)
			continue;
		if (arena->device && keep_device)
			left = LEFT_DEVICE_ARENAS;
		else if (n == ARENAS_A_TURN || (n > 0 && core_clock(&s->core) >= until_ns) ||
			 !session_drop_arena(s, arena))
			return LEFT_MORE;
		else
			n++;
	}
	return left;
}

/* What is open ends for the reason that came first. */
static struct outcome ending(const struct sched *s)
{
	return core_failed(&s->core) ? outcome_bad(-EIO, ABI_BACKEND_FAILED, 0)
				     : outcome_bad(-ESHUTDOWN, ABI_SESSION_ENDED, 0);
}

/* Its memory outlives it, and whoever has that may write on: what comes now is nobody's. */
static void stop_lane(struct sched *s, struct sched_lane *lane)
{
	shut_lane_down(s, lane, ending(s));
	lane->broken = true;
}

/* False: there is more of it, for a later turn. */
static bool session_strip(struct sched *s, struct sched_session *session)
{
	struct sched_lane *lane;

	LIST_FOREACH (lane, &session->lanes, session_link)
		stop_lane(s, lane);
	if (!close_seqs(s, session, NULL))
		return false;
	while ((lane = LIST_FIRST(&session->lanes)))
		lane_remove(&s->lanes, lane);
	for (uint32_t i = 0; i < s->core.config->max_models; i++) {
		if (session->models[i])
			model_unuse(s, session->models[i]);
	}
	doorbell_remove(&s->doorbell, session->doorbell_fd);
	evicted_say(&s->core, session);
	LIST_REMOVE(session, link);
	s->n_sessions--;
	session->ended = true;
	LIST_INSERT_HEAD(&s->ended_sessions, session, link);
	return true;
}

/* Unless something is left of it, it is no more. */
static enum session_left end(struct sched *s, struct sched_session *session, bool keep_device)
{
	if (!session->ended && !session_strip(s, session))
		return LEFT_MORE;
	enum session_left left = drop_arenas(s, session, keep_device);

	if (left != LEFT_NONE)
		return left;
	LIST_REMOVE(session, link);
	session_free(session);
	return LEFT_NONE;
}

void sessions_end_all(struct sched *s)
{
	struct sched_session *session;

	while ((session = LIST_FIRST(&s->sessions)))
		end(s, session, false);
	while ((session = LIST_FIRST(&s->ended_sessions)))
		end(s, session, false);
}

int sched_session_end(struct sched *s, struct sched_request *rq)
{
	struct session_end_call *call = rq->room;
	enum session_left left = end(s, rq->session, call->keep_device);

	call->session = left == LEFT_NONE ? NULL : rq->session;
	call->more = left == LEFT_MORE;
	return 0;
}

struct sched_lane *session_lane(struct sched_session *session, uint32_t number)
{
	struct sched_lane *lane;

	LIST_FOREACH (lane, &session->lanes, session_link) {
		if (lane->number == number)
			return lane;
	}
	return NULL;
}

bool session_remove_lane(struct sched *s, struct sched_lane *lane)
{
	stop_lane(s, lane);
	if (!close_seqs(s, lane->session, lane))
		return false;
	lane_remove(&s->lanes, lane);
	return true;
}

int sched_probe(struct sched *s, struct sched_request *rq)
{
	(void)rq;
	if (s->core.ops->fault && s->core.ops->fault(s->core.backend))
		core_fail(&s->core);
	return 0;
}
