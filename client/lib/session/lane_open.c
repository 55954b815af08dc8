/*
 * lane_open.c - how a lane begins and ends.
 *
 * A lane's end is in one order: the daemon drops it and its sequences, this side's go, its streams
 * go on and are taken from the driver, and only then its memory. The connection knows of the
 * segment for as long as it is mapped, so that whoever finds the daemon dead can let the lane's
 * streams go on.
 */
#include "lane_open.h"

#include "client/lib/connection/call.h"
#include "client/lib/lane/lane.h"
#include "client/lib/seq/seq.h"
#include "client/lib/stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void destroy(struct coppice_lane *lane)
{
	seq_drop_all(lane);
	capture_forget_all(lane);
	stream_forget(lane);
	connection_unmap(lane->c, lane->segment.shared, lane->segment.bytes);
	if (lane->fd >= 0)
		close(lane->fd);
	free(lane);
}

void lane_drop_all(struct coppice *c)
{
	while (!list_is_empty(&c->lanes)) {
		struct coppice_lane *lane =
			list_object(c->lanes.next, struct coppice_lane, segment.link);

		list_remove(&lane->segment.link);
		destroy(lane);
	}
}

/* The segment must be a lane's, of this ABI, and of the generation that the reply announced. */
static int map_shared(struct coppice_lane *lane, const Coppice__LaneReply *reply, int fd)
{
	void *map;
	int r;

	if (reply->bytes < sizeof(struct abi_lane))
		return -EPROTO;
	r = channel_segment_map(fd, reply->bytes, 1, &map);
	if (r < 0)
		return r;
	lane->segment.shared = map;
	lane->segment.bytes = reply->bytes;
	/* Pairs with the daemon's release when the header was complete. */
	if (atomic_load_explicit(&lane->segment.shared->version, memory_order_acquire) !=
		    ABI_VERSION ||
	    lane->segment.shared->magic != ABI_LANE_MAGIC ||
	    lane->segment.shared->generation != reply->generation)
		return -EPROTO;
	return channel_segment_fill(map, reply->bytes);
}

/* From now on nobody else maps it writable, nor takes its pages away: the daemon may use it. */
static int seal(struct coppice_lane *lane)
{
	Coppice__LaneSeal message = COPPICE__LANE_SEAL__INIT;
	struct call call = call_of("coppice_lane_new");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.lane = lane->id;
	call.request.lane_seal = &message;
	return call_daemon(lane->c, &call, &answer);
}

static int explain_map(struct coppice *c, int code)
{
	return explain(c->key, code, "coppice_lane_new: cannot use the lane's segment: %s",
		       strerrordesc_np(-code));
}

/* Maps what the daemon gave, and says so. Explains. */
static int adopt(struct coppice *c, struct answer *answer, struct coppice_lane **ret)
{
	struct coppice_lane *lane = calloc(1, sizeof(*lane));
	int r;

	if (!lane)
		return explain_map(c, -ENOMEM);
	lane->c = c;
	lane->id = answer->reply->lane->lane;
	lane->fd = answer_take_fd(answer, 1);
	list_init(&lane->segment.link);
	list_init(&lane->seqs);
	r = map_shared(lane, answer->reply->lane, answer->fds[0]);
	r = r < 0 ? explain_map(c, r) : seal(lane);
	if (r < 0) {
		destroy(lane);
		return r;
	}
	stream_prepare(lane);
	connection_add_lane(c, &lane->segment);
	*ret = lane;
	return 0;
}

static void release(struct coppice *c, uint32_t id)
{
	Coppice__LaneFree message = COPPICE__LANE_FREE__INIT;
	struct call call = call_of("coppice_lane_free");

	message.lane = id;
	call.request.lane_free = &message;
	call_release(c, &call);
}

static int lane_new(struct coppice *c, bool pollable, struct coppice_lane **ret)
{
	Coppice__LaneNew message = COPPICE__LANE_NEW__INIT;
	struct call call = call_of("coppice_lane_new");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.has_notify = pollable;
	message.notify = pollable;
	call.request.lane_new = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->lane || answer.n_fds != (pollable ? 2 : 1))
		return call_bad_answer(c, call.what);
	r = adopt(c, &answer, ret);
	if (r < 0)
		release(c, answer.reply->lane->lane);
	return r;
}

int coppice_lane_new(struct coppice *c, struct coppice_lane **ret)
{
	return lane_new(c, false, ret);
}

int coppice_lane_new_pollable(struct coppice *c, struct coppice_lane **ret)
{
	return lane_new(c, true, ret);
}

void coppice_lane_free(struct coppice_lane *lane)
{
	if (!lane)
		return;
	/* In a forked child the locks are not to be touched, and all of it goes with the
	 * connection. */
	if (connection_is_foreign(lane->c))
		return;
	connection_remove_lane(lane->c, &lane->segment);
	release(lane->c, lane->id);
	destroy(lane);
}
