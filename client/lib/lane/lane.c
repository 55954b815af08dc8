/*
 * lane.c - how far a lane has come, and its completion descriptor.
 *
 * `done` is the daemon's word: it is never believed beyond what was submitted here, and where it
 * says that the daemon has died the count stays as it was last seen.
 */
#include "lane.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <sys/socket.h>

uint64_t lane_done(struct coppice_lane *lane)
{
	uint64_t done = ring_done(lane->segment.shared);

	if (done >= ABI_RELEASED) {
		atomic_store_explicit(&lane->c->broken, 1, memory_order_relaxed);
		return lane->done;
	}
	lane->done = min_u64(done, lane->submitted);
	return lane->done;
}

int lane_check_ticket(struct coppice_lane *lane, uint64_t ticket)
{
	int r = connection_check(lane->c);

	if (r < 0)
		return r;
	if (ticket == 0 || ticket > lane->submitted)
		return explain(lane->c->key, -EINVAL,
			       "ticket %llu was not submitted on this lane; the last was %llu",
			       (unsigned long long)ticket, (unsigned long long)lane->submitted);
	return 0;
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
	atomic_store_explicit(&lane->segment.shared->notify, 1, memory_order_relaxed);
	/* Between the wish and the caller's look at done; ring_client_asleep has the other
	 * fence. */
	atomic_thread_fence(memory_order_seq_cst);
}
