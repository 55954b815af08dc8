/* lane.h - this side of a lane: its segment, what was submitted, and the sequences on it. One
 * thread at a time. */
#ifndef COPPICE_CLIENT_LANE_H
#define COPPICE_CLIENT_LANE_H

#include "coppice.h"
#include "list.h"
#include "proto/abi.h"
#include "turn.h"

/* What is remembered of an entry until another takes its slot. */
struct lane_note {
	uint64_t bodies_end; /* the body arena's head behind this entry's body */
	uint32_t layer;
	uint16_t kind; /* enum abi_kind */
};

struct coppice_lane {
	struct list link; /* in the connection's lanes */
	struct coppice *c;
	uint32_t id;
	struct abi_lane *shared; /* owned mapping */
	size_t bytes;
	int fd; /* owned; the completion descriptor, -1: none */
	struct list seqs; /* owned struct coppice_seq */
	uint64_t submitted; /* tickets; the shared word is never read back */
	uint64_t done; /* highest ticket that the daemon was seen to have completed */
	uint64_t stream_base; /* the segment's address for streams; 0: they do not know it yet */
	void *stream_context; /* in which it was registered */
	struct turn turn;
	void *turn_context; /* in which it was loaded */
	struct lane_near {
		uint64_t address; /* in device memory; 0: there is none */
		uint64_t offset;
		uint32_t arena;
	} near; /* what the device writes its steps' tickets into */
	uint64_t words[ABI_LANE_WORDS / 64]; /* bit i: pair i belongs to a captured step */
	uint64_t bodies_head; /* bytes ever taken from the body arena, gaps at its end included */
	uint64_t bodies_tail; /* bytes ever given back */
	struct lane_note notes[ABI_LANE_SLOTS];
};

/* Highest completed ticket, never above what was submitted. Acquires all that its completion says.
 * Where the word says that the daemon has died, the connection is broken from now on. */
uint64_t lane_done(struct coppice_lane *lane);
/* Streams that wait in the connection's lanes go on: the daemon is dead. Any thread. */
void lanes_release(struct coppice *c);
/* Frees all lanes and their sequences without asking the daemon, for the session ends. */
void lane_drop_all(struct coppice *c);

#endif
