/*
 * passes.h - steps of sequences whose paths are not all on the device: attention in passes, each over another part.
 *
 *      path     # # # # # # h h h h h h h h h h h h t t t L      #: device   h: host memory   t, L: tail, live
 *               prefix      staged    staged  ...   the rest
 *
 * What lies in host memory comes through the stage, extents that the store does not have: a ring of cells, into which
 * copies of this one layer go while attention works on what has come before. The backend folds the passes' states. Between
 * two passes others' batches may run. One such step is under way at a time; it is done in slices of rows as prefill is.
 * The scheduler's thread alone.
 */
#ifndef COPPICED_PASSES_H
#define COPPICED_PASSES_H

#include "state.h"

#include "kvstore/gather.h"

#define PASSES_CELLS 4u

struct sched;

struct passes {
	uint32_t first_extent, n_extents; /* of the stage; 0: none, and paths are never so long */
	struct sched_lane *lane; /* whose step is under way; NULL: none */
	bool in_flight; /* a pass */
	uint64_t id; /* the backend's, of it */
	/* The slice under way. */
	struct gather gather;
	uint32_t row, n_rows; /* of part next_part of the step */
	uint32_t cell_pages;
	uint32_t n_staged; /* passes */
	uint32_t next, n_passes; /* with the prefix, if any, and the rest */
	uint32_t n_asked; /* staged passes whose copies were asked for */
	uint32_t n_asked_slices; /* of the next */
	uint32_t staged_tokens; /* positions before the next staged pass, behind the prefix */
	uint64_t tokens[PASSES_CELLS]; /* of each cell's last copy */
	struct work_slice *slices; /* owned */
	uint32_t slices_room;
	struct work_list list; /* owned */
	uint64_t n_done; /* passes, ever */
	uint64_t staged_bytes; /* ever */
};

/* Steps that are parked and have to be done so are marked: they wait for their turn as prefill does. */
void passes_mark(struct sched *s);
/* May the lane, whose step is so marked, be chosen now? */
bool passes_may(struct sched *s, const struct sched_lane *lane);
/* Begins the next pass of its step, or fails it. */
void passes_begin(struct sched *s, struct sched_lane *lane);
/* Goes on with copies, and finishes a pass that the backend has. Returns whether anything is finished. */
bool passes_poll(struct sched *s);
/* Nothing of the lane's is under way any more, as its step has ended. */
void passes_forget(struct sched *s, const struct sched_lane *lane);
/* The backend is gone: the step that is under way fails. */
void passes_fail(struct sched *s);
void passes_done(struct passes *p);

#endif
