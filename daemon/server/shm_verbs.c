/*
 * shm_verbs.c - the verbs about arenas and lanes: memory is made here, and lent to the scheduler
 * and to the client.
 */
#include "shm_verbs.h"

#include "control.pb-c.h"
#include "reply.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ARENA_GRAIN_BYTES (UINT64_C(2) << 20)

/* ---- arenas ---- */

enum { ARENA_HOST = 0, ARENA_DEVICE = 1 };

/* What limits the next arena of a kind. */
struct arena_room {
	uint64_t bytes;
	const char *whose, *key;
};

static struct arena_room arena_room(const struct session *s, uint32_t kind)
{
	const struct config *config = s->server->parts.config;
	struct arena_room room = {config->max_arena_bytes - s->arena_bytes, "the session's arenas",
				  "max_arena_bytes"};
	uint64_t all = config->device_arena_bytes - s->server->device_bytes;

	if (kind == ARENA_HOST)
		return room;
	room = (struct arena_room){config->max_device_arena_bytes - s->device_bytes,
				   "the session's device arenas", "max_device_arena_bytes"};
	if (all < room.bytes)
		room = (struct arena_room){all, "all sessions' device arenas",
					   "device_arena_bytes"};
	return room;
}

static bool arena_check(struct session *s, uint64_t id, const Coppice__ArenaNew *m, uint32_t number)
{
	const struct config *config = s->server->parts.config;
	struct arena_room room = arena_room(s, m->kind);

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
	else if (m->bytes > room.bytes || (m->bytes + ARENA_GRAIN_BYTES - 1) / ARENA_GRAIN_BYTES >
						  room.bytes / ARENA_GRAIN_BYTES)
		reply_error(s, id, -EDQUOT, "bytes",
			    "%" PRIu64 " bytes are too many: %s may have %" PRIu64 " more (%s).",
			    m->bytes, room.whose, room.bytes - room.bytes % ARENA_GRAIN_BYTES,
			    room.key);
	else
		return true;
	return false;
}

/* The memory itself, or, where the scheduler will make it, the room for it. */
static int arena_make(struct session *s, struct segment *arena, struct request *request,
		      const Coppice__ArenaNew *m)
{
	uint64_t bytes = (m->bytes + ARENA_GRAIN_BYTES - 1) & ~(ARENA_GRAIN_BYTES - 1);
	int r;

	if (m->kind == ARENA_DEVICE) {
		segment_new_device(arena, bytes);
		s->device_bytes += bytes;
		s->server->device_bytes += bytes;
		return 0;
	}
	r = segment_new(arena, "coppice-arena", bytes, &request->fds[0]);
	if (r < 0)
		return r;
	request->n_fds = 1;
	s->arena_bytes += bytes;
	return 0;
}

void lend_arena_new(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ArenaNew *m = message;
	uint32_t number = segment_find_free(s->arenas, s->server->parts.config->max_arenas);
	struct segment *arena;
	struct request *request;
	int r;

	if (!arena_check(s, id, m, number))
		return;
	request = request_begin(s, id, SCHED_ARENA_ADD, reply_arena);
	if (!request)
		return;
	arena = &s->arenas[number - 1];
	r = arena_make(s, arena, request, m);
	if (r < 0) {
		reply_error(s, id, r, NULL, "The arena's memory could not be had: %s.",
			    strerror(-r));
		request_free(request);
		return;
	}
	request->number = number;
	request->sched.in.arena.arena = number;
	request->sched.in.arena.base = arena->map;
	request->sched.in.arena.bytes = arena->bytes;
	if (m->has_device)
		memcpy(request->sched.in.arena.device, m->device.data, m->device.len);
	request_post(request);
}

void lend_arena_free(struct session *s, uint64_t id, const void *message)
{
	const Coppice__ArenaFree *m = message;
	struct segment *arena =
		segment_find(s->arenas, s->server->parts.config->max_arenas, m->arena);
	struct request *request;

	if (!arena) {
		reply_error(s, id, -ENOENT, "arena", "There is no arena %u in this session.",
			    m->arena);
		return;
	}
	request = request_begin(s, id, SCHED_ARENA_REMOVE, reply_arena_removed);
	if (!request)
		return;
	arena->state = SEGMENT_REMOVING;
	request->number = m->arena;
	request->sched.in.arena.arena = m->arena;
	request_post(request);
}

/* ---- lanes ---- */

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

/* The segment and, if asked for, the completion descriptor; both ends' descriptors are in the
 * request or segment. */
static int lane_make(struct segment *lane, struct request *request, bool notify)
{
	bool keep = request->server->parts.config->guardian_socket[0];
	int r = segment_new(lane, "coppice-lane", sizeof(struct abi_lane), &request->fds[0]);

	if (r < 0)
		return r;
	request->n_fds = 1;
	if (keep)
		r = segment_keep_fd(lane, request->fds[0]);
	if (r == 0 && notify)
		r = segment_notify_new(lane, &request->fds[1]);
	if (r < 0)
		segment_done(lane);
	else if (notify)
		request->n_fds = 2;
	return r;
}

void lend_lane_new(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneNew *m = message;
	uint32_t max_lanes = s->server->parts.config->max_lanes;
	uint32_t number = segment_find_free(s->lanes, max_lanes);
	struct request *request;
	struct segment *lane;
	int r;

	if (number == 0) {
		reply_error(s, id, -EDQUOT, NULL,
			    "The session has %u lanes, as many as it may (max_lanes): free some.",
			    max_lanes);
		return;
	}
	request = request_begin(s, id, SCHED_LANE_ADD, reply_lane);
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
	lane_header(lane->map, number, s->server->parts.board->generation);
	request->number = number;
	request->sched.in.lane.lane = number;
	request->sched.in.lane.shared = lane->map;
	request->sched.in.lane.notify_fd = lane->notify_fd;
	request_post(request);
}

void lend_lane_free(struct session *s, uint64_t id, const void *message)
{
	const Coppice__LaneFree *m = message;
	struct segment *lane = segment_find(s->lanes, s->server->parts.config->max_lanes, m->lane);
	struct request *request;

	if (!lane) {
		reply_error(s, id, -ENOENT, "lane", "There is no lane %u in this session.",
			    m->lane);
		return;
	}
	request = request_begin(s, id, SCHED_LANE_REMOVE, reply_lane_removed);
	if (!request)
		return;
	lane->state = SEGMENT_REMOVING;
	request->number = m->lane;
	request->sched.in.lane.lane = m->lane;
	request_post(request);
}
