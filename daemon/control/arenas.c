/*
 * arenas.c - the verbs arena_new, arena_seal and arena_free: memory for inputs and outputs.
 *
 * Host memory is made here and lent to the client, who maps it, brings its pages and says so
 * (arena_seal): so the kernel charges them to him, for as long as he keeps them, and not to the
 * daemon. Then nobody can take them away any more; all are mapped here, and it is lent to the
 * scheduler, whose batches wait for no page. What has ids of prompts alone no batch needs: it is
 * ready at once, and small, so that a client's first prompt is not late for it, and is mapped
 * meanwhile, so that its owner cannot have its pages swapped out. Device memory is the scheduler's,
 * and only its room is counted here.
 * What an arena takes counts from the moment it is asked for, so that many at once cannot pass a
 * limit together, until its pages are free; of device memory until nobody has its descriptor. How
 * much a user may have is arena_room.c's.
 */
#include "arenas.h"
#include "arena_room.h"

#include "daemon/base/log.h"
#include "daemon/sched/core/arena_number.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/refuse.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "proto/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/types.h>

#define IDS_GRAIN_BYTES (UINT64_C(64) << 10)
#define REACH_NS (2 * NS_PER_MS) /* of a turn, to make memory reachable */
#define OPEN_ARENAS_MAX 16u /* not sealed, of a session: so many threads may make one at once */

static bool has_ids(const Coppice__ArenaNew *m)
{
	return m->kind == ARENA_HOST && m->has_ids && m->ids;
}

static uint64_t grain_of(const Coppice__ArenaNew *m)
{
	return has_ids(m) ? IDS_GRAIN_BYTES : ARENA_GRAIN_BYTES;
}

static bool arena_check(struct session *s, uint64_t id, const Coppice__ArenaNew *m, uint32_t number)
{
	const struct config *config = s->home->config;
	struct arena_room room = arena_room(s, m->kind, m->bytes);
	uint64_t grain = grain_of(m);

	if (m->kind > ARENA_DEVICE)
		reply_error(s, id, -EINVAL, "kind",
			    "Arenas are of kind 0 (host memory) or 1 (device memory), not %u.",
			    m->kind);
	else if (m->has_device &&
		 (m->kind != ARENA_DEVICE || m->device.len != BACKEND_DEVICE_BYTES))
		reply_error(s, id, -EINVAL, "device",
			    "A device is named by its UUID of %u bytes, for an arena of kind 1.",
			    BACKEND_DEVICE_BYTES);
	else if (m->bytes == 0)
		reply_error(s, id, -EINVAL, "bytes", "An arena of no bytes.");
	else if (number == 0)
		reply_error(s, id, -EDQUOT, NULL,
			    "The session has %u arenas, as many as it may (max_arenas): free some.",
			    config->max_arenas);
	else if (!arena_fits(&room, m->bytes, grain))
		reply_error(s, id, -EDQUOT, "bytes",
			    "%" PRIu64 " bytes are too many: %s may have %" PRIu64
			    " more (%s); ask for less, or free some.",
			    m->bytes, room.whose, room.bytes - room.bytes % grain, room.key);
	else
		return true;
	return false;
}

static uint64_t whole_grains(const Coppice__ArenaNew *m)
{
	return align_to(m->bytes, grain_of(m));
}

static void arena_drop(struct session *session, struct shm *arena)
{
	if (arena->device)
		session->device_bytes -= arena->bytes;
	else
		session->arena_bytes -= arena->bytes;
	lent_end(&session->home->lent, arena->loan);
	shm_done(arena);
}

/* ---- new ---- */

static int free_serve(struct sched *s, struct sched_request *rq);
static bool free_may_go(const struct sched *s, const struct sched_request *rq);

/* The scheduler will make it: only the room for it is taken here. */
static void device_begin(struct session *s, uint64_t id, const Coppice__ArenaNew *m,
			 uint32_t number)
{
	struct shm *arena = &s->arenas[arena_place(number) - 1];
	struct arena_call *call;
	struct request *request;

	if (!request_may_carry(s, id))
		return;
	request = request_begin(s, id, &verb_arena_new, sizeof(*call));
	if (!request)
		return;
	request_carry(request, -1); /* it is to come */
	shm_new_device(arena, whole_grains(m));
	s->device_bytes += arena->bytes;
	call = request->sched.room;
	call->arena = number;
	call->bytes = arena->bytes;
	if (m->has_device)
		memcpy(call->device, m->device.data, m->device.len);
	request_post(request);
}

/* Each has a descriptor here, which counts for its user. */
static bool may_leave_one_open(struct session *s, uint64_t id)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->home->config->max_arenas; i++)
		n += s->arenas[i].state == SHM_NEW;
	if (n < OPEN_ARENAS_MAX)
		return true;
	reply_error(s, id, -EBUSY, NULL,
		    "%u arenas of this session are not sealed: seal them first (arena_seal).", n);
	return false;
}

static int arena_send(struct session *s, uint64_t id, const struct shm *shm, uint32_t number)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__ArenaReply arena = COPPICE__ARENA_REPLY__INIT;

	arena.arena = number;
	arena.bytes = shm->bytes;
	reply.id = id;
	reply.arena = &arena;
	return reply_send_fds(s, &reply, &shm->fd, 1);
}

/* Made here and now; the scheduler hears of it when it is sealed. */
static void host_begin(struct session *s, uint64_t id, const Coppice__ArenaNew *m, uint32_t number)
{
	struct shm *arena = &s->arenas[arena_place(number) - 1];
	int r;

	if (!request_may_carry(s, id) || !may_leave_one_open(s, id))
		return;
	r = shm_new(arena, "coppice-arena", whole_grains(m));
	if (r < 0) {
		reply_error(s, id, r, NULL, "The arena's memory could not be had: %s.",
			    strerror(-r));
		return;
	}
	arena->ids = has_ids(m);
	arena->filled = true;
	s->n_shm_fds++;
	s->arena_bytes += arena->bytes;
	r = arena_send(s, id, arena, number);
	if (r == 0)
		return;
	s->n_shm_fds--;
	arena_drop(s, arena);
	reply_unsent(s, id, r);
}

static void new_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ArenaNew *m = message;
	uint32_t place = shm_find_free(s->arenas, s->home->config->max_arenas);
	uint32_t number = place ? arena_number(place, s->arenas[place - 1].generation) : 0;

	if (!arena_check(s, id, m, number))
		return;
	if (m->kind == ARENA_DEVICE)
		device_begin(s, id, m, number);
	else
		host_begin(s, id, m, number);
}

static struct shm *arena_of(const struct request *request)
{
	const struct arena_call *call = request->sched.room;

	return &request->session->arenas[arena_place(call->arena) - 1];
}

static int device_send(struct request *request)
{
	struct arena_call *call = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__ArenaReply arena = COPPICE__ARENA_REPLY__INIT;

	arena.arena = call->arena;
	arena.bytes = call->bytes;
	arena.has_device = true;
	arena.device = (ProtobufCBinaryData){sizeof(call->made.device), call->made.device};
	reply.arena = &arena;
	return reply_send_fds(request->session, &reply, request->fds, request->n_fds);
}

static int device_lend(struct request *request)
{
	struct shm *arena = arena_of(request);
	int r = lent_new(&request->home->lent, request->fds[0], request->session->peer.uid,
			 arena->bytes, &arena->loan);

	return r < 0 ? r : device_send(request);
}

/* Where its descriptor cannot go it is freed again, before the client hears of it, who may have
 * guessed its number and named it. */
static void new_answer(struct request *request)
{
	struct arena_call *call = request->sched.room;

	if (call->unsent || reply_failed(request)) {
		if (call->unsent)
			reply_unsent(request->session, request->sched.id, call->unsent);
		arena_drop(request->session, arena_of(request));
		return;
	}
	request->fds[0] = call->made.fd;
	call->unsent = device_lend(request);
	if (call->unsent) {
		request->sched.serve = free_serve;
		request->sched.beside = free_may_go;
		request->again = true;
		return;
	}
	arena_of(request)->state = SHM_READY;
}

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

static int device_arena_make(struct sched *s, struct sched_request *rq,
			     struct sched_arena *ret_arena)
{
	struct arena_call *call = rq->room;
	struct backend_arena arena = {0};
	int r = -ENOTSUP;

	memcpy(arena.device, call->device, sizeof(arena.device));
	if (s->core.ops->arena_new)
		r = s->core.ops->arena_new(s->core.backend, call->bytes, &arena);
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
			"The GPU has no %s to spare beside the KV pool: free arenas, or give the "
			"daemon a smaller pool.",
			size_text(call->bytes, 0).text);
	if (r < 0)
		return refuse(rq, r, NULL, "The %s backend could not share device memory.",
			      s->core.ops->name);
	warn_of_time_slices(s, &arena);
	*ret_arena = (struct sched_arena){.base = arena.base, .bytes = call->bytes, .device = true};
	call->made = arena;
	return 0;
}

/* The next piece, whose address is to go on where the last one's ends. */
static int host_piece_reach(struct sched *s, const struct arena_call *call,
			    struct sched_arena *arena)
{
	uint64_t at = arena->bytes, n = min_u64(call->bytes - at, SCHED_ARENA_PIECE), base;
	int r = s->core.ops->arena_attach(s->core.backend, (char *)call->base + at, n, &base);

	if (r < 0)
		return r;
	if (at > 0 && base != arena->base + at) {
		s->core.ops->arena_detach(s->core.backend, base, n);
		return -ENOTSUP;
	}
	arena->base = base - at;
	arena->bytes += n;
	return 0;
}

/* What was reached of it goes as that of an arena that is freed. */
static int host_arena_leave(struct sched *s, struct sched_request *rq, struct sched_arena *arena)
{
	const struct arena_call *call = rq->room;

	if (arena->bytes > 0 && !session_drop_arena(s, arena))
		return SCHED_AGAIN;
	return refuse(rq, call->failed, "bytes",
		      "The %s backend could not reach the arena's memory.", s->core.ops->name);
}

/* As many of its pieces as there is time for: while a driver pins memory nobody else gets through
 * to it. */
static int host_arena_reach(struct sched *s, struct sched_request *rq, struct sched_arena *arena)
{
	uint64_t until_ns = core_clock(&s->core) + REACH_NS;
	struct arena_call *call = rq->room;

	while (arena->bytes < call->bytes) {
		call->failed = host_piece_reach(s, call, arena);
		if (call->failed < 0) {
			rq->beside = free_may_go;
			return arena->bytes > 0 ? SCHED_AGAIN : host_arena_leave(s, rq, arena);
		}
		if (arena->bytes < call->bytes && core_clock(&s->core) >= until_ns)
			return SCHED_AGAIN;
	}
	return 0;
}

static int add_serve(struct sched *s, struct sched_request *rq)
{
	const struct arena_call *call = rq->room;
	uint32_t place = arena_place(call->arena);
	struct sched_arena *arena = &rq->session->arenas[place];

	assert(place >= 1 && place <= s->core.config->max_arenas && !arena->number);
	if (call->failed)
		return host_arena_leave(s, rq, arena);
	int r = call->base ? host_arena_reach(s, rq, arena) : device_arena_make(s, rq, arena);

	if (r == 0)
		arena->number = call->arena;
	return r;
}

const struct verb verb_arena_new = {.begin = new_begin,
				    .serve = add_serve,
				    .beside = beside_segments,
				    .slow = true,
				    .answer = new_answer};

/* ---- seal ---- */

/* All its pages are there, or it is of no use any more. */
static void on_filled(struct shm_chore *chore)
{
	struct request *request = chore->user;

	request->sched.code = chore->code;
	if (chore->code == 0 && request->session->state != SESSION_ENDING)
		request_go_on(request);
	else
		request_over(request);
}

struct shm *arena_find(struct session *s, uint32_t number, enum shm_state state)
{
	struct shm *arena =
		shm_find_in(s->arenas, s->home->config->max_arenas, arena_place(number), state);

	return arena && arena->generation == arena_generation(number) ? arena : NULL;
}

static void seal_refuse(struct session *s, uint64_t id, uint32_t arena, int r)
{
	if (r == -ENODATA)
		reply_error(
			s, id, r, "arena",
			"Arena %u has not all of its pages: who asked for it brings them, where "
			"he has mapped it, before it is sealed.",
			arena);
	else
		reply_error(s, id, r, "arena", "Arena %u has seals that are not the daemon's: %s.",
			    arena, strerror(-r));
}

static void ids_ready(struct session *s, uint64_t id, struct shm *arena)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	reply.id = id;
	arena->state = SHM_READY;
	shm_fill_beside(arena, s->home->pages, s->peer.uid);
	reply_send(s, &reply);
}

static void seal_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ArenaSeal *m = message;
	struct shm *arena = arena_find(s, m->arena, SHM_NEW);
	struct request *request;
	struct arena_call *call;
	int r;

	if (!arena) {
		reply_error(s, id, -ENOENT, "arena",
			    "There is no arena %u in this session that is to be sealed.", m->arena);
		return;
	}
	r = session_seal(s, arena);
	if (r < 0) {
		seal_refuse(s, id, m->arena, r);
		return;
	}
	if (arena->ids) {
		ids_ready(s, id, arena);
		return;
	}
	request = request_begin(s, id, &verb_arena_seal, sizeof(*call));
	if (!request)
		return;
	arena->state = SHM_ADDING;
	call = request->sched.room;
	*call = (struct arena_call){.arena = m->arena, .base = arena->map, .bytes = arena->bytes};
	request_hold(request);
	arena->chore.done = on_filled;
	arena->chore.user = request;
	shm_fill(arena, s->home->pages, s->peer.uid);
}

static void seal_answer(struct request *request)
{
	arena_of(request)->state = request->sched.code == 0 ? SHM_READY : SHM_NEW;
	reply_done(request);
}

/* Where a driver waits for the pass, who asks does too, and so do the scheduler's thread and the
 * requests behind him; the pass ends no later. */
const struct verb verb_arena_seal = {.begin = seal_begin,
				     .serve = add_serve,
				     .beside = beside_pass,
				     .slow = true,
				     .answer = seal_answer};

/* ---- free ---- */

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
			session_stop_step(s, lane, outcome_bad(-ECANCELED, ABI_BAD_ARENA, 0));
	}
}

static int free_serve(struct sched *s, struct sched_request *rq)
{
	const struct arena_call *call = rq->room;
	struct sched_arena *arena = &rq->session->arenas[arena_place(call->arena)];

	fail_steps_with(s, rq->session, call->arena);
	return session_drop_arena(s, arena) ? 0 : SCHED_AGAIN;
}

static void on_dropped(struct shm_chore *chore)
{
	request_over(chore->user);
}

/* The answer waits until it is free: until then it counts. */
static void host_drop(struct request *request, struct shm *arena)
{
	arena->chore.done = on_dropped;
	arena->chore.user = request;
	request->held = true;
	shm_drop(arena, request->home->pages, request->session->peer.uid);
}

static void free_answer(struct request *request)
{
	struct shm *arena = arena_of(request);

	if (arena->map) {
		host_drop(request, arena);
		return;
	}
	arena_drop(request->session, arena);
	reply_done(request);
}

/* Of one that is not sealed, or for ids alone, the scheduler knows nothing. */
static void free_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ArenaFree *m = message;
	struct shm *known = arena_find(s, m->arena, SHM_READY);
	struct shm *arena = known ? known : arena_find(s, m->arena, SHM_NEW);
	struct arena_call *call;
	struct request *request;

	if (!arena) {
		reply_error(s, id, -ENOENT, "arena", "There is no arena %u in this session.",
			    m->arena);
		return;
	}
	request = request_begin(s, id, &verb_arena_free, sizeof(*call));
	if (!request)
		return;
	arena->state = SHM_REMOVING;
	call = request->sched.room;
	call->arena = m->arena;
	if (known && !known->ids) {
		request_post(request);
		return;
	}
	s->n_shm_fds -= arena->fd >= 0;
	shm_fill_stop(arena);
	request_hold(request);
	host_drop(request, arena);
}

/* Of the arenas of a session the pass has those of its lanes in it. */
static bool free_may_go(const struct sched *s, const struct sched_request *rq)
{
	const struct arena_call *call = rq->room;
	const struct sched_lane *lane;

	if (!beside_segments(s, rq))
		return false;
	LIST_FOREACH (lane, &rq->session->lanes, session_link)
		if (lane->state == STEP_IN_PASS && uses_arena(&lane->step, call->arena))
			return false;
	return true;
}

const struct verb verb_arena_free = {.begin = free_begin,
				     .serve = free_serve,
				     .beside = free_may_go,
				     .slow = true,
				     .answer = free_answer};
