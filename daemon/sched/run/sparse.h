/*
 * sparse.h - prefill that attends to the part of its path that matters, for sequences that ask for
 * it.
 *
 *      a slice's rows --append--> K and V in pages --estimate--> masses of blocks
 *                     --select--> blocks of each KV head
 *
 * What a block of rows sees is a set of blocks of its path, another one for each KV head: those
 * that together hold tau of the estimated mass, the first, the last, and those that the rows stand
 * in. That is one job where the backend takes it so, else one for each KV head, with a list of its
 * own. A slice that cannot be chosen for is attended to exactly. The scheduler's thread alone.
 */
#ifndef COPPICED_SPARSE_H
#define COPPICED_SPARSE_H

#include "daemon/sched/core/core.h"

struct batch_job;

/* Arrays grow, and are kept from slice to slice. */
struct sparse {
	struct work_list *lists; /* owned, of a KV head each */
	struct backend_job *jobs; /* owned */
	struct work_slice *path; /* owned */
	struct work_query *queries; /* owned, of a block of rows each, as the arrays below */
	struct backend_io *io;
	struct select_query *chosen;
	uint64_t *bits; /* owned: what is kept, where the backend leaves the choice here */
	const uint64_t *kept; /* of each KV head and block of rows: these, or the backend's */
	uint32_t *ranges; /* owned, first rows of these */
	struct backend_chosen blocks; /* of them all, where the backend takes it */
	struct work_tree tree; /* the slice's, with a query for each block of rows */
	struct select_shares shares; /* of what was chosen for the batch; all zero: nothing */
	uint32_t lists_room, jobs_room, path_room, queries_room, io_room, chosen_room, bits_room,
		ranges_room;
};

/* A slice of a prefill step, as a job that attends to everything. */
struct sparse_slice {
	const struct sched_core *core;
	const struct step_part *part;
	bool chooses; /* it wants that, and there is time for it */
	const struct batch_job *job;
	const struct backend_job *exact;
};

/* Jobs for chosen blocks take the place of the batch's, where the slice's sequence wants that; or a
 * job of all blocks, where the backend wants that. x->shares: of what was chosen. Blocks for the
 * estimate. 0, or -EIO: the backend has failed. */
MUST_CHECK int sparse_choose(struct sparse *x, const struct sparse_slice *slice,
			     struct backend_batch *batch);
void sparse_done(struct sparse *sparse);

#endif
