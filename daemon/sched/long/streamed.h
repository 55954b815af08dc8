/*
 * streamed.h - steps of sequences whose paths are not all on the device: attention in legs, each
 * over another part.
 *
 *      path     # # # # # # h h h h h h h h h h h h t t t L
 *               prefix      staged    staged  ...   the rest
 *
 *      # on the device   h in host memory   t tail   L live
 *
 * What lies in host memory comes through the stage, extents that the store does not have: a ring of
 * cells, into which copies of this one layer go while attention works on what has come before. The
 * backend folds the legs' states. Between two legs others' batches may run.
 *
 * Sparse prefill: while a sequence's KV passes by, the mean keys of every 8 tokens are kept on the
 * device. Once they are there of all that lies before a slice, blocks of the path are chosen from
 * them, for each KV head, and the others stay where they are.
 *
 * Legs may be slower than they are modelled to: how much is learned from them alone, bounds how
 * long one is, and counts as their user's.
 *
 * Decode steps of one model and layer go together, as far as their paths begin alike: what they
 * share comes once. A prefill step is alone, and is done in slices of rows. The scheduler's thread
 * alone.
 */
#ifndef COPPICED_STREAMED_H
#define COPPICED_STREAMED_H

#include "daemon/sched/core/core.h"

#include "kvstore/seq/gather.h"

#define STREAMED_CELLS 4u /* at most */
/* Legs that the backend has at a time, where nobody else waits for it: the last one takes longest
 * to be planned. */
#define STREAMED_VIEWS 3u

/* Rows of a sequence. */
struct streamed_member {
	struct sched_lane *lane;
	const struct step_part *part;
	struct gather gather; /* owned */
	uint32_t row, n_rows; /* of the part */
	uint32_t first_row; /* of all members' */
};

enum streamed_kind { STREAMED_DEVICE, STREAMED_STAGED, STREAMED_REST };

/* A leg over slices [begin, end) of a member's path, for that member or for all. */
struct streamed_leg {
	enum streamed_kind kind;
	uint32_t member; /* STREAMED_ALL: the first's path, for all */
	uint32_t begin, end;
	uint32_t pos; /* of the first token */
};

#define STREAMED_ALL UINT32_MAX

/* What the only member, a slice of sparse prefill, sees of its path. */
struct streamed_choice {
	bool sums; /* what legs see is taken into the sequence's summary */
	bool made; /* blocks were chosen; else all are seen */
	bool appended; /* the rows' K and V are in their pages */
	uint32_t block_tokens, n_blocks, n_words;
	uint64_t *kept; /* owned, bits: of each KV head, then of any */
	const float *mass; /* the backend's: of the estimate before */
	double *masses; /* owned: a KV head's */
	struct select_shares shares; /* of what was chosen; all zero: nothing was */
	uint32_t kept_room, masses_room;
};

/* A leg as the backend has it. */
struct streamed_view {
	uint64_t id; /* the backend's */
	double ns; /* that it is modelled to take */
	uint64_t begun_ns; /* to be planned */
	bool staged;
	struct work_shape shape;
	uint32_t layer;
	uint32_t first_row;
	struct work_tree tree;
	struct work_node *nodes; /* owned, as the arrays below */
	struct work_query *queries;
	struct backend_io *io;
	struct work_slice *slices;
	/* owned, as jobs: of heads that see the same, mostly one for all */
	struct work_list *lists;
	struct backend_job *jobs;
	/* owned: from the root on, and bits of each head, where the backend chooses by itself */
	struct work_slice *path;
	uint64_t *kept; /* owned */
	struct backend_chosen chosen;
	uint32_t nodes_room, queries_room, io_room, slices_room, lists_room, jobs_room, path_room,
		kept_room;
	uint32_t n_jobs;
};

struct streamed {
	struct sched_core *core; /* borrowed */
	uint32_t first_extent, n_extents; /* of the stage; 0: none, and paths are never so long */
	bool in_flight; /* legs: views [n_ended, n_begun) mod STREAMED_VIEWS */
	uint32_t n_begun, n_ended; /* of what is under way */
	/* What is under way. */
	struct streamed_member *members; /* owned, and their gathers' room */
	uint32_t n_members, members_room; /* 0: nothing */
	struct sched_model *model;
	uint32_t layer;
	uint32_t n_cells, cell_pages;
	uint64_t rows_id; /* counts */
	struct streamed_leg *legs; /* owned */
	uint32_t n_legs, legs_room; /* the next is n_begun */
	uint32_t n_filled, n_staged; /* staged legs that have begun, that have ended */
	uint32_t ask; /* the next leg that may want copies */
	uint32_t n_asked; /* staged legs all of whose copies were asked for */
	uint32_t n_asked_slices; /* of the next */
	uint32_t n_asked_pages; /* of these, in the cell */
	struct streamed_choice choice;
	uint64_t tokens[STREAMED_CELLS]; /* of each cell's last copy */
	uint64_t users[STREAMED_CELLS]; /* the last batch that had to do with a cell */
	struct streamed_view views[STREAMED_VIEWS];
	struct slowness slowness; /* how much longer legs take than modelled */
	uint64_t ended_ns; /* when the backend was seen to have done one */
	uint64_t n_done; /* legs, ever */
	uint64_t staged_bytes; /* ever */
};

void streamed_init(struct streamed *p, struct sched_core *core);
/* Runnable steps whose paths are not all on the device wait for their turn, as prefill does, and
 * are streamed then. */
void streamed_find(struct streamed *p);
/* The lane whose turn it is to have a slice of its step, prefill or streamed; NULL: none. */
struct sched_lane *streamed_next_turn(struct streamed *p);
/* It is this lane's turn: begins the next leg of its step, or fails it. */
void streamed_begin(struct streamed *p, struct sched_lane *lane);
/* Goes on with copies, and finishes a leg that the backend has. Returns whether anything is
 * finished. */
bool streamed_poll(struct streamed *p);
/* The lane's step is about to end: what is under way with it is given up, and begins anew for the
 * others. */
void streamed_forget(struct streamed *p, const struct sched_lane *lane);
/* The backend is gone: the steps that are under way fail. */
void streamed_fail(struct streamed *p);
void streamed_done(struct streamed *p);

/* Is anything under way? */
static inline bool streamed_busy(const struct streamed *p)
{
	return p->n_members > 0;
}

/* Are there paths that are not all on the device? */
static inline bool streamed_is_needed(const struct streamed *p)
{
	return p->n_extents > 0 && store_n_left(p->core->store) > 0;
}

#endif
