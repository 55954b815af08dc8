/* lane.h - this side of a lane: its segment, what was submitted, and the sequences on it. One
 * thread at a time. */
#ifndef COPPICE_CLIENT_LANE_H
#define COPPICE_CLIENT_LANE_H

#include "client/lib/connection/connection.h"

/* What is remembered of an entry until another takes its slot. */
struct lane_note {
	uint64_t bodies_end; /* the body arena's head behind this entry's body */
	uint32_t layer;
	uint16_t kind; /* enum abi_kind */
};

struct coppice_lane {
	struct lane_segment segment; /* in the connection's lanes */
	struct coppice *c;
	uint32_t id;
	int fd; /* owned; the completion descriptor, -1: none */
	struct list seqs; /* owned struct coppice_seq */
	struct lane_streams *streams; /* owned; stream.h; NULL: no stream has anything here */
	uint64_t submitted; /* tickets; the shared word is never read back */
	uint64_t done; /* highest ticket that the daemon was seen to have completed */
	uint64_t bodies_head; /* bytes ever taken from the body arena, gaps at its end included */
	uint64_t bodies_tail; /* bytes ever given back */
	struct lane_note notes[ABI_LANE_SLOTS];
};

/* Highest completed ticket, never above what was submitted. Acquires all that its completion says.
 * Where the word says that the daemon has died, the connection is broken from now on. */
uint64_t lane_done(struct coppice_lane *lane);
/* 0, -EINVAL (it was never submitted), or as connection_check; explains. */
MUST_CHECK int lane_check_ticket(struct coppice_lane *lane, uint64_t ticket);

#endif
