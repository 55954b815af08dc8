/*
 * lanes.c - the verbs lane_new, lane_seal and lane_free: the ring by which a client hands in its
 * entries.
 *
 * A lane's memory is made here and lent to the client, who maps it and says so (lane_seal). Then
 * nobody can take its pages away any more, and it is lent to the scheduler, who writes there
 * between steps of others and must not wait for a page. Only who had it mapped by then writes its
 * words: the client and this daemon.
 */
#include "lanes.h"

#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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
	shm_done(lane);
}

static struct shm *lane_of(const struct request *request)
{
	const struct lane_call *call = request->sched.room;

	return &request->session->lanes[call->lane - 1];
}

static struct shm *find_in(struct session *s, uint32_t number, enum shm_state state)
{
	return shm_find_in(s->lanes, s->home->config->max_lanes, number, state);
}

/* ---- new ---- */

/* The segment and, if asked for, the completion descriptor, whose other end is the client's. */
static int lane_make(struct session *s, struct shm *lane, bool notify, int *ret_completions)
{
	int completions = -1;
	int r = shm_new(lane, "coppice-lane", sizeof(struct abi_lane));

	if (r < 0)
		return r;
	lane->filled = true;
	if (notify)
		r = shm_notify_new(lane, &completions);
	if (r < 0) {
		shm_done(lane);
		return r;
	}
	s->n_shm_fds += lane_fds(lane);
	*ret_completions = completions;
	return 0;
}

static int lane_send(struct session *s, uint64_t id, const struct shm *shm, uint32_t number,
		     int completions)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__LaneReply lane = COPPICE__LANE_REPLY__INIT;
	int fds[] = {shm->fd, completions};

	lane.lane = number;
	lane.bytes = shm->bytes;
	lane.generation = s->home->board->generation;
	reply.id = id;
	reply.lane = &lane;
	return reply_send_fds(s, &reply, fds, completions >= 0 ? 2 : 1);
}

/* Made here and now; the scheduler hears of it when it is sealed. */
static void lane_begin(struct session *s, uint64_t id, bool notify, uint32_t number)
{
	struct shm *lane = &s->lanes[number - 1];
	int completions;
	int r = lane_make(s, lane, notify, &completions);

	if (r < 0) {
		reply_error(s, id, r, NULL, "The lane's memory could not be had: %s.",
			    strerror(-r));
		return;
	}
	lane_header(lane->map, number, s->home->board->generation);
	r = lane_send(s, id, lane, number, completions);
	if (completions >= 0)
		close(completions);
	if (r == 0)
		return;
	lane_drop(s, lane);
	reply_unsent(s, id, r);
}

static void new_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneNew *m = message;
	uint32_t max_lanes = s->home->config->max_lanes;
	uint32_t number = shm_find_free(s->lanes, max_lanes);

	if (number == 0)
		reply_error(s, id, -EDQUOT, NULL,
			    "The session has %u lanes, as many as it may (max_lanes): free some.",
			    max_lanes);
	else if (request_may_carry(s, id))
		lane_begin(s, id, m->notify, number);
}

const struct verb verb_lane_new = {.begin = new_begin};

/* ---- seal ---- */

static int seal_serve(struct sched *s, struct sched_request *rq)
{
	const struct lane_call *call = rq->room;

	if (lane_add(&s->lanes, rq->session, call->lane, call->shared, call->notify_fd) < 0)
		return refuse(rq, -ENOMEM, NULL, "The daemon is out of memory.");
	return 0;
}

static void seal_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneSeal *m = message;
	struct shm *lane = find_in(s, m->lane, SHM_NEW);
	struct request *request;
	struct lane_call *call;
	int r;

	if (!lane) {
		reply_error(s, id, -ENOENT, "lane",
			    "There is no lane %u in this session that is to be sealed.", m->lane);
		return;
	}
	r = session_seal(s, lane);
	if (r == -ENODATA)
		reply_error(s, id, r, "lane", "Lane %u has not all of its pages: bring them first.",
			    m->lane);
	else if (r < 0)
		reply_error(s, id, r, "lane", "Lane %u has seals that are not the daemon's: %s.",
			    m->lane, strerror(-r));
	if (r < 0)
		return;
	request = request_begin(s, id, &verb_lane_seal, sizeof(*call));
	if (!request)
		return;
	lane->state = SHM_ADDING;
	call = request->sched.room;
	*call = (struct lane_call){m->lane, lane->map, lane->notify_fd};
	request_post(request);
}

static void seal_answer(struct request *request)
{
	lane_of(request)->state = request->sched.code == 0 ? SHM_READY : SHM_NEW;
	reply_done(request);
}

const struct verb verb_lane_seal = {.begin = seal_begin,
				    .serve = seal_serve,
				    .beside = beside_pass,
				    .answer = seal_answer};

/* ---- free ---- */

static int free_serve(struct sched *s, struct sched_request *rq)
{
	const struct lane_call *call = rq->room;
	struct sched_lane *lane = session_lane(rq->session, call->lane);

	assert(lane);
	return session_remove_lane(s, lane) ? 0 : SCHED_AGAIN;
}

static void reply_freed(struct session *s, uint64_t id)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	reply.id = id;
	reply_send(s, &reply);
}

/* Of one that is not sealed the scheduler knows nothing. */
static void free_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneFree *m = message;
	struct shm *lane = find_in(s, m->lane, SHM_READY);
	struct shm *unsealed = find_in(s, m->lane, SHM_NEW);
	struct request *request;
	struct lane_call *call;

	if (unsealed) {
		lane_drop(s, unsealed);
		reply_freed(s, id);
		return;
	}
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

/* Other lanes of the session may be in the pass. */
static bool free_may_go(const struct sched *s, const struct sched_request *rq)
{
	const struct lane_call *call = rq->room;

	(void)s;
	return session_lane(rq->session, call->lane)->state != STEP_IN_PASS;
}

const struct verb verb_lane_free = {.begin = free_begin,
				    .serve = free_serve,
				    .beside = free_may_go,
				    .answer = free_answer};
