/*
 * lane_hostile.h - a session of the stepped scheduler's that writes nonsense, and whom it does so
 * beside.
 */
#ifndef COPPICE_FUZZ_LANE_HOSTILE_H
#define COPPICE_FUZZ_LANE_HOSTILE_H

#include "lane_honest.h"

#include "daemon/sched/round.h"

#define ARENA_BYTES (256u << 10)

struct hostile {
	struct client c; /* its lane and arena of number 1 are left as they are */
	struct abi_lane *lane; /* owned; number 2 */
	uint8_t *arena; /* owned, between guards; number 2 */
	int notify[2]; /* owned */
	uint64_t ticket;
	uint32_t other_model, program_model;
	uint64_t n_entries, n_lanes, n_done[ABI_N_KINDS];
};

struct world {
	bool tight; /* paths are longer than the pool, and go through a stage */
	struct harness h;
	struct draw draw;
	struct hostile hostile;
	struct lane_honest honest[2]; /* the friend, the stranger */
};

void hostile_start(struct world *w);
/* With whatever is in flight. */
void hostile_end(struct world *w);
/* Its lane and its arena come and go while it lives; its sequences go with the lane, whatever is in
 * flight. */
void hostile_lane_make(struct world *w);
void hostile_lane_unmake(struct world *w);
void hostile_arena_make(struct world *w);
void hostile_arena_unmake(struct world *w);

/* Its lane, as the scheduler knows it. */
const struct sched_lane *hostile_lane(struct world *w);
/* One of its sequences, of this lane or of any (NULL), as the scheduler knows it, or NULL. */
struct sched_seq *hostile_any_seq(struct world *w, const struct sched_lane *lane, bool live);
/* Of a sequence: its own, now and then another's or nobody's. */
uint64_t hostile_any_handle(struct world *w);
/* A token's id, of few, which the stranger uses too. */
uint32_t hostile_id(struct world *w);

/* Requests over its control socket, as the scheduler gets them. */
void hostile_open(struct world *w);
void hostile_request(struct world *w);
/* An entry in its lane, valid but for a field now and then. */
void hostile_entry(struct world *w);
/* Floats that nobody likes, among others. */
void hostile_scribble_arena(struct world *w);
/* Anything in its lane but the word `submitted`. */
void hostile_scribble_words(struct world *w);

#endif
