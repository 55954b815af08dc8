/* lane.c - lanes come and go; their completion descriptor. submit.c and wait.c have the traffic. */
#include "lane.h"

#include "connection.h"
#include "proto/ring.h"
#include "seq.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t lane_done(struct coppice_lane *lane)
{
	uint64_t done = ring_done(lane->shared);

	if (done >= ABI_RELEASED) {
		atomic_store_explicit(&lane->c->broken, 1, memory_order_relaxed);
		return lane->done;
	}
	lane->done = done < lane->submitted ? done : lane->submitted;
	return lane->done;
}

void lanes_release(struct coppice *c)
{
	struct list *link;

	pthread_mutex_lock(&c->lists_lock);
	for (link = c->lanes.next; link != &c->lanes; link = link->next)
		ring_release_streams(list_object(link, struct coppice_lane, link)->shared);
	pthread_mutex_unlock(&c->lists_lock);
}

static void destroy(struct coppice_lane *lane)
{
	seq_drop_all(lane);
	stream_forget(lane);
	connection_unmap(lane->c, lane->shared, lane->bytes);
	if (lane->fd >= 0)
		close(lane->fd);
	free(lane);
}

void lane_drop_all(struct coppice *c)
{
	while (!list_is_empty(&c->lanes)) {
		struct coppice_lane *lane = list_object(c->lanes.next, struct coppice_lane, link);

		list_remove(&lane->link);
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
	lane->shared = map;
	lane->bytes = reply->bytes;
	/* Pairs with the daemon's release when the header was complete. */
	if (atomic_load_explicit(&lane->shared->version, memory_order_acquire) != ABI_VERSION ||
	    lane->shared->magic != ABI_LANE_MAGIC || lane->shared->generation != reply->generation)
		return -EPROTO;
	return 0;
}

static int adopt(struct coppice *c, struct answer *answer, struct coppice_lane **ret)
{
	struct coppice_lane *lane = calloc(1, sizeof(*lane));
	int r;

	if (!lane)
		return -ENOMEM;
	lane->c = c;
	lane->id = answer->reply->lane->lane;
	lane->fd = answer_take_fd(answer, 1);
	list_init(&lane->link);
	list_init(&lane->seqs);
	r = map_shared(lane, answer->reply->lane, answer->fds[0]);
	if (r < 0) {
		destroy(lane);
		return r;
	}
	stream_prepare(lane);
	pthread_mutex_lock(&c->lists_lock);
	list_add(&c->lanes, &lane->link);
	pthread_mutex_unlock(&c->lists_lock);
	*ret = lane;
	return 0;
}

static void release(struct coppice *c, uint32_t id)
{
	Coppice__LaneFree message = COPPICE__LANE_FREE__INIT;
	struct call call = {
		.what = "coppice_lane_free",
		.request = COPPICE__REQUEST__INIT,
		.timeout_ns = COPPICE_FOREVER,
	};
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.lane = id;
	call.request.lane_free = &message;
	/* Nothing is left to do where it fails: either way the lane is gone for this side. */
	(void)connection_call(c, &call, &answer);
}

static int lane_new(struct coppice *c, bool pollable, struct coppice_lane **ret)
{
	Coppice__LaneNew message = COPPICE__LANE_NEW__INIT;
	struct call call = {
		.what = "coppice_lane_new",
		.request = COPPICE__REQUEST__INIT,
		.timeout_ns = COPPICE_FOREVER,
	};
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.has_notify = pollable;
	message.notify = pollable;
	call.request.lane_new = &message;
	r = connection_call(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->lane || answer.n_fds != (pollable ? 2 : 1))
		return connection_bad_answer(c, call.what);
	r = adopt(c, &answer, ret);
	if (r < 0) {
		release(c, answer.reply->lane->lane);
		return explain(c->key, r, "coppice_lane_new: cannot use the lane's segment: %s",
			       strerrordesc_np(-r));
	}
	return 0;
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
	while (!list_is_empty(&lane->seqs))
		coppice_seq_close(list_object(lane->seqs.next, struct coppice_seq, link));
	pthread_mutex_lock(&lane->c->lists_lock);
	list_remove(&lane->link);
	pthread_mutex_unlock(&lane->c->lists_lock);
	release(lane->c, lane->id);
	destroy(lane);
}

int coppice_lane_fd(const struct coppice_lane *lane)
{
	return lane->fd;
}

void coppice_lane_arm(struct coppice_lane *lane)
{
	char bytes[64];

	if (lane->fd < 0 || connection_is_foreign(lane->c))
		return;
	while (recv(lane->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	atomic_store_explicit(&lane->shared->notify, 1, memory_order_relaxed);
	/* Between the wish and the caller's look at done; ring_take_notify has the other fence. */
	atomic_thread_fence(memory_order_seq_cst);
}
