/*
 * summary.c - mean keys of paths; see summary.h. KV blocks that nobody has added are 0, and stay so
 * where a summary grows. A table that a launch reads is taken again only once that launch has
 * ended.
 */
#include "summary.h"

#include "kernels/cuda/device/shape.h"
#include "proto/arith.h"
#include "kernels/slices.h"
#include "estimate_pages.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(KV_BLOCK_TOKENS == BACKEND_SUMMARY_TOKENS, "a mean is of a KV block's keys");

struct backend_summary {
	struct work_shape shape;
	char *at; /* owned, device */
	uint32_t n_means; /* that there is room for; those that nobody has added are 0 */
};

static size_t layer_bytes(const struct work_shape *shape)
{
	return (size_t)shape->n_kv_heads * shape->head_dim * 2;
}

static size_t mean_bytes(const struct work_shape *shape)
{
	return shape->n_layers * layer_bytes(shape);
}

void summary_room_done(struct summary_room *room)
{
	for (uint32_t i = 0; i < SUMMARY_TABLES; i++) {
		cudaFreeHost(room->tables[i].host.at);
		if (room->tables[i].end)
			cudaEventDestroy(room->tables[i].end);
	}
	cudaFreeHost(room->host.at);
	cudaFree(room->device.at);
	*room = (struct summary_room){0};
}

int summary_new(const struct work_shape *shape, struct backend_summary **ret)
{
	struct backend_summary *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->shape = *shape;
	*ret = s;
	return 0;
}

void summary_free(struct backend_summary *s)
{
	if (!s)
		return;
	cudaFree(s->at);
	free(s);
}

/* ---- taking in ------------------------------------------------------------------------------ */

static int reserve(const struct sparse *with, struct backend_summary *s, uint64_t n_tokens)
{
	uint64_t n = ceil_div_u64(n_tokens, BACKEND_SUMMARY_TOKENS);
	size_t bytes = mean_bytes(&s->shape), had = s->n_means * bytes;
	void *at;
	int r;

	if (n <= s->n_means)
		return 0;
	n += n / 2;
	if (cudaMalloc(&at, n * bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	r = queue_expect(with->queue, cudaMemcpyAsync(at, s->at, had, cudaMemcpyDeviceToDevice,
						      with->queue->stream));
	if (!r)
		r = queue_expect(with->queue, cudaMemsetAsync((char *)at + had, 0, n * bytes - had,
							      with->queue->stream));
	if (!r)
		r = queue_expect(with->queue, cudaStreamSynchronize(with->queue->stream));
	cudaFree(r ? at : s->at);
	if (r)
		return r;
	s->at = at;
	s->n_means = (uint32_t)n;
	return 0;
}

/* The next table, once its last launch has read it. */
static int table_take(struct summary_room *room, const struct sparse *with, size_t bytes,
		      struct summary_table **ret)
{
	struct summary_table *t = &room->tables[room->n_tables++ % SUMMARY_TABLES];
	cudaEvent_t event;

	if (!t->end) {
		if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
			return -ENOMEM;
		t->end = event;
	} else if (queue_expect(with->queue, cudaEventSynchronize(t->end)) != 0) {
		return -EIO;
	}
	*ret = t;
	return queue_grow_pinned(with->queue, &t->host, bytes);
}

static uint32_t fill(const struct sparse *with, const struct backend_span *span,
		     struct device_mean *to)
{
	struct pool_pages pages = shape_pages(with->pool, span->shape);
	struct slices_walk walk = {.span = span};
	struct slices_part part;
	uint32_t n_means = 0;

	while (slices_next(&walk, &part)) {
		uint32_t first = part.row % KV_BLOCK_TOKENS;

		to[n_means++] = (struct device_mean){.source = shape_source(span->shape, &pages,
									    part.page, part.row),
						     .kv_block = part.index,
						     .first = (uint16_t)first,
						     .end = (uint16_t)(first + part.n)};
	}
	return n_means;
}

int summary_add(struct summary_room *room, const struct sparse *with, struct backend_summary *s,
		const struct backend_span *span)
{
	struct summary_table *table = NULL;
	uint64_t end, head_bytes = kv_head_bytes(span->shape);
	int r;

	if (shape_page_bytes(with->pool, span->shape, NULL, 0) == 0 ||
	    !slices_fit_span(span, WORK_NONE, s->shape.n_layers, &end))
		return -EINVAL;
	r = reserve(with, s, end);
	if (!r)
		r = table_take(room, with,
			       ((end - span->pos) / KV_BLOCK_TOKENS + 2 * span->n_slices + 1) *
				       sizeof(struct device_mean),
			       &table);
	if (r)
		return r;
	const struct device_means means = {
		.pool = (const char *)(uintptr_t)(with->pool->base +
						  span->layer * span->shape->n_kv_heads *
							  head_bytes),
		.to = s->at + span->to_layer * layer_bytes(&s->shape),
		.stride = mean_bytes(&s->shape),
		.head_bytes = head_bytes,
		.at = table->host.at,
		.n = fill(with, span, table->host.at),
		.n_heads = s->shape.n_kv_heads,
		.head_dim = s->shape.head_dim,
		.bf16 = s->shape.dtype == WORK_BF16,
	};
	r = means.n ? queue_expect(with->queue, device_means(&means, with->queue->stream)) : 0;
	return r ? r : queue_expect(with->queue, cudaEventRecord(table->end, with->queue->stream));
}

/* ---- estimates ------------------------------------------------------------------------------ */

static struct device_estimate from_means(const struct backend_estimate *e)
{
	struct device_estimate on = estimate_on_device(e);

	on.means = e->summary->at + e->layer * layer_bytes(e->shape);
	on.means_stride = mean_bytes(e->shape);
	on.page_bytes = estimate_unit_bytes(e->shape->head_dim);
	return on;
}

bool summary_takes(const struct backend_estimate *e)
{
	struct device_estimate on;

	if (e->n_q == 0 || e->block_tokens == 0 || e->layer >= e->summary->shape.n_layers ||
	    ceil_div(e->n_k, BACKEND_SUMMARY_TOKENS) > e->summary->n_means)
		return false;
	on = from_means(e);
	return device_estimate_bytes(&on) > 0;
}

int summary_estimate(struct summary_room *room, const struct sparse *with,
		     const struct backend_estimate *e, uint64_t q, const float **ret_mass)
{
	struct device_estimate on = from_means(e);
	size_t scratch = device_estimate_bytes(&on), n_mass = estimate_n_masses(e);
	int r = queue_grow_pinned(with->queue, &room->host, n_mass * sizeof(float));

	if (!r)
		r = queue_grow(with->queue, &room->device, scratch + n_mass * sizeof(float));
	if (r)
		return r;
	on.q = q;
	on.scratch = room->device.at;
	on.mass = (float *)(void *)((char *)room->device.at + scratch);
	r = queue_expect(with->queue, device_estimate(&on, with->queue->stream));
	if (!r)
		r = queue_bring(with->queue, room->host.at, on.mass, n_mass * sizeof(float));
	if (!r)
		r = queue_expect(with->queue, cudaStreamSynchronize(with->queue->stream));
	if (!r)
		*ret_mass = room->host.at;
	return r;
}
