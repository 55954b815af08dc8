/*
 * backend_impl.h - what the backend has of its device, for the files that are its parts.
 */
#ifndef COPPICE_CUDA_BACKEND_IMPL_H
#define COPPICE_CUDA_BACKEND_IMPL_H

#include "kernels/cuda/batch/batch.h"
#include "kernels/cuda/sparse/estimate_pages.h"
#include "kernels/cuda/device/lend.h"
#include "kernels/cuda/tiers/pass.h"
#include "kernels/cuda/sparse/summary.h"
#include "kernels/cuda/tiers/tier.h"

struct backend {
	int device;
	struct pool pool;
	struct batch batch;
	struct lend lend;
	struct tier tier;
	struct pass pass;
	struct summary_room summaries;
	struct estimate_room estimate;
	char fault[240]; /* what it was */
};

/* For what may wait for the batches' stream: no launch stands on it any more. */
void backend_enter(struct backend *b);
/* As backend.h has it. */
int backend_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id);

/* backend_tier.c */
extern const struct backend_tier_ops backend_tier_ops;

#endif
