/*
 * card.h - the GPU's module in a bench: what it exports, and a workload in a backend of its own,
 * timed as published systems are: Q and O in device memory, a graph replayed between two events,
 * after other memory was written to flush the cache.
 */
#ifndef COPPICE_BENCH_CARD_H
#define COPPICE_BENCH_CARD_H

#include "kernels/cuda/module/module.h"
#include "kernels/plan/plan.h"
#include "workload.h"

#define CARD_EXTENT_BYTES (UINT64_C(32) << 20)
#define CARD_FLUSH_BYTES (UINT64_C(256) << 20)

struct card {
	const struct backend_ops *ops;
	cuda_measure measure, measure_step;
	cuda_stream stream;
	cuda_arena_new arena_new;
	cuda_arena_copy arena_copy;
	cuda_arena_free arena_free;
	cuda_describe describe;
	cuda_plan_as plan_as;
	cuda_clocks clocks;
	uint64_t plan_id; /* of the last plan */
};

/* Loads the module, for good. 0 or -ENOENT, and says why. */
int card_load(struct card *card, const char *module);
/* Opens a backend of next to nothing, so that the device is chosen and there; the caller closes it.
 * 0 or -errno. */
int card_open(const struct card *card, struct backend **ret);

struct card_run {
	struct card *card;
	const struct workload_spec *spec;
	struct backend *backend; /* owned */
	struct workload workload;
	struct work_list list; /* owned */
	uint64_t q, o; /* owned, device memory of as many bytes as the workload's */
};

/* Fills the device with the spec's KV and Q. 0 or -errno, and error says why; card_run_done frees
 * after either. */
int card_run_init(struct card_run *run, struct card *card, const struct workload_spec *spec,
		  char *error, size_t error_bytes);
void card_run_done(struct card_run *run);
/* One batch of run->list to its end under card->plan_id; ret_us is what its submission took. 0 or
 * -errno. */
int card_run_once(struct card_run *run, double *ret_us);
/* Median time of the attention of the batch that was last. reps: BENCH_REPS_MAX at most. 0 or
 * -EIO. */
int card_run_time(struct card_run *run, uint32_t reps, double *ret_us);
/* The same of all kernels of a decode step: the last token of each query, its K and V in device
 * memory too, is appended first. The tokens' K and V are not those that workload_error knows. 0 or
 * -errno. */
int card_run_time_step(struct card_run *run, uint32_t reps, double *ret_us);
/* O in device memory becomes garbage; O there comes to the host's. 0 or -EIO. */
int card_run_spoil(struct card_run *run);
int card_run_fetch(struct card_run *run);

#endif
