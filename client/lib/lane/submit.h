/*
 * submit.h - putting entries into a lane's ring.
 *
 * submit_begin finds room for the entry and its body, the caller writes the body, submit_end
 * publishes. Nothing is taken before submit_end, so a caller that finds a mistake in between just
 * returns. The body arena is a ring of bytes given back in ticket order; a body never wraps.
 */
#ifndef COPPICE_CLIENT_SUBMIT_H
#define COPPICE_CLIENT_SUBMIT_H

#include "lane.h"

/* Where an entry's body will be. */
struct reservation {
	uint64_t head; /* the body arena's, in front of the body */
	void *body; /* in the lane's segment, 8-aligned; body_bytes of it */
	uint32_t body_bytes;
};

/* body_bytes at most ABI_BODY_MAX_BYTES. 0, -EAGAIN (256 entries or too many body bytes in flight),
 * -ECONNRESET, -EOWNERDEAD; explains. Does not block. */
MUST_CHECK int submit_begin(struct coppice_lane *lane, size_t body_bytes, struct reservation *ret);
/* Do n entries fit at once, whose bodies take body_bytes, with as much more as the largest of them?
 * As submit_begin. */
MUST_CHECK int submit_check_room(struct coppice_lane *lane, uint32_t n, size_t body_bytes);
/* Publishes the entry (kind, flags, seq, arg, layer and count filled in) and wakes the daemon if it
 * sleeps. ret_ticket may be NULL. */
void submit_end(struct coppice_lane *lane, const struct reservation *place, struct abi_entry entry,
		uint64_t *ret_ticket);

#endif
