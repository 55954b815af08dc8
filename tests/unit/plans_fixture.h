/*
 * plans_fixture.h - a batch on a device that is played: memory that is counted, a stream on which
 * kernels read what they were given until somebody waits for it.
 */
#ifndef COPPICE_PLANS_FIXTURE_H
#define COPPICE_PLANS_FIXTURE_H

#include "kernels/cuda/batch/batch_impl.h"

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u
#define BLOCKS_MAX 64u
#define SMALL 4096u /* tokens; next to nothing on the device */

struct block {
	void *at; /* owned */
	size_t bytes;
	bool read; /* by what runs */
};

extern struct played_device {
	struct block blocks[BLOCKS_MAX];
	size_t bytes, peak_bytes;
	uint32_t n_waits;
	bool full;
} device;

struct block *block_at(const void *at);

extern struct batch batch;
extern const struct work_shape shape;

/* As CMocka has them: of device and batch. */
int plans_setup(void **state);
int plans_teardown(void **state);
void next_batch(void);

/* The last rows of a path; one row's next tokens come in pages of their own. */
struct rows {
	struct work_tree tree;
	struct work_node node;
	struct work_query query;
	struct work_list list;
	struct work_slice slot;
	struct backend_io io;
	struct backend_job job;
};

void rows_init(struct rows *r, uint64_t plan_id, uint32_t n_tokens, uint32_t n_rows);
void rows_free(struct rows *r);
/* Asserts it. */
void is_same_schedule(const struct schedule *a, const struct schedule *b);

#endif
