/*
 * backend_impl.h - what the backend has of its device, for the files that are its parts.
 */
#ifndef COPPICE_CUDA_BACKEND_IMPL_H
#define COPPICE_CUDA_BACKEND_IMPL_H

#include "kernels/cuda/batch/batch.h"
#include "kernels/cuda/program/ferry.h"
#include "kernels/cuda/program/program.h"
#include "kernels/cuda/sparse/estimate_pages.h"
#include "kernels/cuda/device/arenas.h"
#include "kernels/cuda/tiers/leg.h"
#include "kernels/cuda/sparse/summary.h"
#include "kernels/cuda/tiers/tier.h"

struct backend {
	int device;
	struct pool pool;
	struct batch batch;
	struct arenas arenas;
	struct tier tier;
	struct leg leg;
	struct summary_room summaries;
	struct estimate_room estimate;
	struct programs programs;
	struct ferry ferry;
	char fault[240]; /* what it was */
	char notice[240]; /* empty: none */
};

/* backend.c */

/* Until the batches' stream has nothing to do. What waits for other devices in vain is given up.
 * False: it may still be at it, or has failed: what it reaches stays where it is. */
MUST_CHECK bool backend_await_idle(struct backend *b);
/* For what may wait for the batches' stream: no launch stands on it any more. */
void backend_enter(struct backend *b);
/* Before the batch: copies that read what it writes come first, and others keep their
 * multiprocessors. */
void backend_make_way(struct backend *b, const struct backend_batch *batch);
/* As backend.h has it. */
MUST_CHECK int backend_submit(struct backend *b, const struct backend_batch *batch,
			      uint64_t *ret_id);

static inline struct sparse backend_sparse(struct backend *b)
{
	return (struct sparse){&b->batch.queue, &b->pool, &b->batch.hosts};
}

/* backend_program.c */
extern const struct backend_program_ops backend_program_ops;

/* backend_tier.c */
extern const struct backend_tier_ops backend_tier_ops;

#endif
