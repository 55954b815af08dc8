/*
 * stand_fixture.h - a sequence that decodes step by step on a stream that is played, and asks again
 * soon enough for launches to stand (fake_stream.h).
 */
#ifndef COPPICE_TESTS_STAND_FIXTURE_H
#define COPPICE_TESTS_STAND_FIXTURE_H

#include "fake_stream.h"
#include "kernels/cuda/batch/batch_layers.h"

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u
#define LAYERS 3u

extern struct pool decode_pool;
extern const struct work_shape decode_shape;

/* A sequence of 256 tokens that is given the same one again and again. */
struct decode {
	struct batch batch;
	struct work_slice slices[8], slot;
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	struct work_list list; /* owned */
	uint64_t plan_id, last_id, k;
	uint64_t told; /* becomes the k of a batch that is done */
	uint32_t layer;
};

int decode_setup(void **state);
int decode_teardown(void **state);
void decode_make_plan(const struct work_tree *tree, struct work_list *list);
/* The next layer, to memory of its own. */
uint64_t decode_submit(struct decode *d);
void decode_await(struct decode *d, uint64_t id);
void decode_assert_did(const struct decode *d, uint64_t id, uint64_t k, uint32_t layer);
/* Both, and it did what it was to do, once. */
void decode_step(struct decode *d);
/* Steps in a row. */
void decode_until_one_stands(struct decode *d);

#endif
