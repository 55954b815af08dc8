/*
 * attend.h - runs the lists of a batch: deals (item, KV head) units to the threads, merges
 * partials, writes O and LSE.
 */
#ifndef COPPICE_CPU_ATTEND_H
#define COPPICE_CPU_ATTEND_H

#include "kernels/must_check.h"
#include "kernels/backend.h"
#include "kernels/merge.h"
#include "fold.h"
#include "threads.h"

/* Tokens [begin, end) of an item; all KV heads. */
struct attend_unit {
	const struct work_item *item;
	uint32_t begin, end;
	uint64_t keys; /* that it reads, of one KV head */
	uint64_t work; /* keys x tokens, for the order */
};

struct attend {
	const struct vec *vec;
	struct threads *threads;
	struct fold_state *states; /* owned, [threads_count] */
	/* Grown as needed, reused from job to job. */
	struct attend_unit *units; /* owned */
	float *parts; /* owned: rows x (max, sum), then rows x head_dim */
	uint32_t *merges; /* owned: list rows with no partial or several */
	size_t units_room, parts_room, merges_room;
	uint32_t n_units, n_merges;
};

/* 0 or -ENOMEM. threads stays the caller's. */
MUST_CHECK int attend_init(struct attend *a, const struct vec *vec, struct threads *threads);
void attend_done(struct attend *a);

/* Makes room for a job. 0 or -ENOMEM; nothing is computed. */
MUST_CHECK int attend_reserve(struct attend *a, const struct backend_job *job);
/* Computes a job for which there is room; ret_keys: keys read, of one KV head. */
void attend_run(struct attend *a, const struct backend_job *job, const struct pool_pages *pages,
		uint64_t *ret_keys);

/* O and LSE of a list row and query head go where its io says; nothing where no O is wanted. */
void attend_write(const struct vec *vec, const struct backend_job *job, uint32_t row,
		  uint32_t q_head, const struct merge_state *state, const float *o);

#endif
