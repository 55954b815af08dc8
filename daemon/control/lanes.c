/*
 * lanes.c - the verbs lane_new and lane_free: the ring by which a client hands in its entries.
 *
 * A lane's memory is made here and lent to the scheduler. The guardian hears of a lane before the
 * client does: from then on a stream may wait on it.
 */
#include "lanes.h"

#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/begin.h"
#include "daemon/session/guardian_link.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <string.h>

/* Fills the header; the version, which says that the rest may be read, last. */
static void lane_header(struct abi_lane *lane, uint32_t number, uint64_t generation)
{
	lane->magic = ABI_LANE_MAGIC;
	lane->lane = number;
	lane->generation = generation;
	lane->bytes = sizeof(*lane);
	/* Pairs with the client's acquire of version. */
	atomic_store_explicit(&lane->version, ABI_VERSION, memory_order_release);
}

static uint32_t lane_fds(const struct shm *lane)
{
	return (lane->fd >= 0) + (lane->notify_fd >= 0);
}

static void lane_drop(struct session *session, struct shm *lane)
{
	session->n_shm_fds -= lane_fds(lane);
	guardian_link_forget(session->home->guardian, session, lane);
	shm_done(lane);
}

/* The segment and, if asked for, the completion descriptor; both ends' descriptors are in the
 * request or segment. */
static int lane_make(struct shm *lane, struct request *request, bool notify)
{
	bool guarded = request->home->config->guardian_socket[0];
	int memory, completions;
	int r = shm_new(lane, "coppice-lane", sizeof(struct abi_lane), &memory);

	if (r < 0)
		return r;
	request_carry(request, memory);
	if (guarded)
		r = shm_keep_fd(lane, memory);
	if (r == 0 && notify) {
		r = shm_notify_new(lane, &completions);
		if (r == 0)
			request_carry(request, completions);
	}
	request->session->n_shm_fds += lane_fds(lane);
	if (r < 0)
		lane_drop(request->session, lane);
	return r;
}

static void new_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneNew *m = message;
	uint32_t max_lanes = s->home->config->max_lanes;
	uint32_t number = shm_find_free(s->lanes, max_lanes);
	struct request *request;
	struct lane_call *call;
	struct shm *lane;
	int r;

	if (number == 0) {
		reply_error(s, id, -EDQUOT, NULL,
			    "The session has %u lanes, as many as it may (max_lanes): free some.",
			    max_lanes);
		return;
	}
	if (!request_may_carry(s, id))
		return;
	request = request_begin(s, id, &verb_lane_new, sizeof(*call));
	if (!request)
		return;
	lane = &s->lanes[number - 1];
	r = lane_make(lane, request, m->notify);
	if (r < 0) {
		reply_error(s, id, r, NULL, "The lane's memory could not be had: %s.",
			    strerror(-r));
		request_free(request);
		return;
	}
	lane_header(lane->map, number, s->home->board->generation);
	call = request->sched.room;
	*call = (struct lane_call){number, lane->map, lane->notify_fd};
	request_post(request);
}

static struct shm *lane_of(const struct request *request)
{
	const struct lane_call *call = request->sched.room;

	return &request->session->lanes[call->lane - 1];
}

static int free_serve(struct sched *s, struct sched_request *rq)
{
	const struct lane_call *call = rq->room;
	struct sched_lane *lane = session_lane(rq->session, call->lane);

	assert(lane);
	session_remove_lane(s, lane);
	return 0;
}

/* The client never hears of it. */
static void undo_answer(struct request *request)
{
	lane_drop(request->session, lane_of(request));
	reply_undone(request);
}

static const struct verb undo = {.serve = free_serve, .answer = undo_answer};

static void new_answer(struct request *request)
{
	const struct lane_call *call = request->sched.room;
	struct shm *shm = lane_of(request);
	Coppice__Reply reply = reply_to(request);
	Coppice__LaneReply lane = COPPICE__LANE_REPLY__INIT;
	int r;

	if (reply_failed(request)) {
		lane_drop(request->session, shm);
		return;
	}
	shm->state = SHM_READY;
	if (shm->fd >= 0) /* before the client can put a stream on it */
		guardian_link_look(request->home->guardian);
	lane.lane = call->lane;
	lane.bytes = shm->bytes;
	lane.generation = request->home->board->generation;
	reply.lane = &lane;
	r = reply_send_fds(request->session, &reply, request->fds, request->n_fds);
	if (r < 0)
		request_undo(request, &undo, r);
}

static int new_serve(struct sched *s, struct sched_request *rq)
{
	const struct lane_call *call = rq->room;

	if (lane_add(&s->lanes, rq->session, call->lane, call->shared, call->notify_fd) < 0)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	return 0;
}

const struct verb verb_lane_new = {.begin = new_begin, .serve = new_serve, .answer = new_answer};

/* ---- free ---- */

static void free_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneFree *m = message;
	struct shm *lane = shm_find(s->lanes, s->home->config->max_lanes, m->lane);
	struct request *request;
	struct lane_call *call;

	if (!lane) {
		reply_error(s, id, -ENOENT, "lane", "There is no lane %u in this session.",
			    m->lane);
		return;
	}
	request = request_begin(s, id, &verb_lane_free, sizeof(*call));
	if (!request)
		return;
	lane->state = SHM_REMOVING;
	call = request->sched.room;
	call->lane = m->lane;
	request_post(request);
}

static void free_answer(struct request *request)
{
	if (request->sched.code == 0)
		lane_drop(request->session, lane_of(request));
	else
		lane_of(request)->state = SHM_READY;
	reply_done(request);
}

const struct verb verb_lane_free = {.begin = free_begin,
				    .serve = free_serve,
				    .answer = free_answer};
