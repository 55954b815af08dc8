/*
 * summary.c - the mean keys of paths that are longer than the pool: sparse prefill chooses by them.
 *
 * The backend keeps them, on the device; here is how much that may be, and up to where each layer
 * knows its path. All sequences' summaries together take no more than a part of what host memory
 * may hold of K and V: who finds no room for one attends to everything.
 */
#include "summary.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

/* Of the bytes that the lower tier may have: that much of K and V it is. */
#define SUMMARY_SHARE 16u

void summary_drop(struct sched_core *core, struct sched_seq *seq)
{
	if (!seq->summary.of)
		return;
	core->ops->tier->summary->free(core->backend, seq->summary.of);
	core->summary_bytes -= seq->summary.bytes;
	free(seq->summary.n_known);
	seq->summary = (struct sched_summary){0};
}

void summary_cut(struct sched_seq *seq, uint32_t n_tokens)
{
	for (uint32_t i = 0; seq->summary.of && i < seq->model->shape.n_layers; i++)
		if (seq->summary.n_known[i] > n_tokens)
			seq->summary.n_known[i] = n_tokens;
}

static int summary_make(struct sched_core *core, struct sched_seq *seq)
{
	const struct work_shape *shape = &seq->model->shape;
	uint32_t *n_known = calloc(shape->n_layers, sizeof(*n_known));
	int r = n_known ? core->ops->tier->summary->make(core->backend, shape, &seq->summary.of)
			: -ENOMEM;

	if (r < 0)
		free(n_known);
	else
		seq->summary.n_known = n_known;
	return r;
}

/* One for so many tokens, if it fits beside the others with what the backend may take for it. */
int summary_reserve(struct sched_core *core, struct sched_seq *seq, uint32_t n_tokens)
{
	const struct work_shape *shape = &seq->model->shape;
	uint64_t group_bytes = (uint64_t)shape->n_layers * shape->n_kv_heads * shape->head_dim *
			       work_dtype_bytes(shape->dtype);
	uint64_t bytes = ceil_div(n_tokens, BACKEND_SUMMARY_TOKENS) * group_bytes * 3 / 2;
	uint64_t all = core->summary_bytes - seq->summary.bytes;

	if (bytes <= seq->summary.bytes)
		return 0;
	if (all + bytes > core->config->host_tier_bytes / SUMMARY_SHARE)
		return -ENOMEM;
	int r = seq->summary.of ? 0 : summary_make(core, seq);
	if (r < 0)
		return r;
	seq->summary.bytes = bytes;
	core->summary_bytes = all + bytes;
	return 0;
}
