/*
 * attend.h - runs the lists of a batch: deals (item, KV head) units to the threads, merges
 * partials, writes O and LSE.
 */
#ifndef COPPICE_CPU_ATTEND_H
#define COPPICE_CPU_ATTEND_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "kernels/merge.h"
#include "fold.h"
#include "threads.h"

/* Tokens [begin, end) of an item. */
struct attend_unit {
	uint32_t item; /* of the list's */
	uint32_t begin, end;
	uint64_t keys; /* that it reads, of one KV head */
	uint64_t work; /* keys x tokens, for the order */
};

struct attend {
	const struct vec *vec;
	struct threads *threads;
	/* [threads_count], in use by a unit alone; owned unless it is beside another */
	struct fold_state *states;
	bool is_beside;
	/* Grown as needed, reused from job to job. */
	struct attend_unit *units; /* owned */
	float *parts; /* owned: rows x (max, sum), then rows x head_dim */
	uint32_t *merges; /* owned: list rows with no partial or several */
	size_t units_room, parts_room, merges_room;
	/* Of the job that has begun. */
	uint32_t n_units, n_merges;
	uint32_t unit_heads; /* KV heads that a unit takes */
	uint32_t unit_splits; /* units that an item's heads are dealt to */
	bool alone; /* others would not be awake in time */
	uint64_t plan_id, sum; /* of its list: attend_is_of */
};

/* A job that has begun: folded unit by unit, in one go or in several, then merged. Between two of
 * these its list may lie elsewhere, and the pages. */
struct attend_job {
	struct attend *a;
	const struct backend_job *job;
	const struct pool_pages *pages;
};

/* 0 or -ENOMEM. threads stays the caller's. */
MUST_CHECK int attend_init(struct attend *a, const struct vec *vec, struct threads *threads);
/* Of other jobs, that begin between two units of its own: done before that one is. */
void attend_init_beside(struct attend *a, const struct attend *other);
void attend_done(struct attend *a);

/* Makes room for a job. 0 or -ENOMEM; nothing is computed. */
MUST_CHECK int attend_reserve(struct attend *a, const struct backend_job *job);
/* Begins a job for which there is room; returns how many keys it reads, of one KV head. */
uint64_t attend_begin(struct attend *a, const struct backend_job *job);
/* What has begun is to go on by and by. */
void attend_remember(struct attend *a, const struct backend_job *job);
/* Whether what has begun can go on with that job, whose list may have been made again: its items
 * and partials are the same. */
bool attend_is_of(const struct attend *a, const struct backend_job *job);
/* Units of threads_run, whose arg is the attend_job: the merges come when all are folded. */
void attend_fold(void *arg, uint32_t thread, uint32_t unit);
void attend_merge(void *arg, uint32_t thread, uint32_t unit);
uint32_t attend_n_folds(const struct attend_job *job);
uint32_t attend_n_merges(const struct attend_job *job);

/* What a row has come to for a query head. */
struct attend_sums {
	struct merge_state state;
	const float *o; /* [head_dim] */
};

/* O and LSE of a list row and query head go where its io says; nothing where no O is wanted. */
void attend_write(const struct vec *vec, const struct backend_job *job, uint32_t row,
		  uint32_t q_head, const struct attend_sums *sums);

#endif
