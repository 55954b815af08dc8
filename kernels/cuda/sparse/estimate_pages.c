/*
 * estimate_pages.c - an estimate from the pool's pages; see estimate_pages.h. Tables, scratch,
 * masses and Q are one piece of device memory each time, and what comes back one of pinned memory:
 * the next estimate takes the same, so each waits for its end.
 */
#include "estimate_pages.h"

#include "kernels/cuda/device/shape.h"
#include "proto/arith.h"
#include "kernels/slices.h"
#include "kernels/cuda/device/bring.h"
#include "select.h"
#include "kernels/cuda/device/windows.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#define ROWS_MOST 65535u /* that a launch brings */
#define TABLE_ALIGN 256u

/* Tables of an estimate, in pinned memory and then on the device. */
struct tables_of {
	uint32_t *windows, *lists;
	uint32_t n_windows, n_lists;
};

/* Tokens of several runs of KV blocks, or fewer than a window has, are listed one by one. */
static void list_windows(const struct backend_estimate *e, struct tables_of *t)
{
	uint32_t per_unit = estimate_unit_bytes(e->shape->head_dim) / KV_SOURCE_BYTES;

	for (uint32_t i = 0; i < t->n_windows; i++) {
		if (t->windows[i] != DEVICE_NONE && (i + 1) * ESTIMATE_WINDOW_TOKENS <= e->n_k) {
			t->windows[i] /= per_unit;
			continue;
		}
		t->windows[i] = ESTIMATE_LISTED | t->n_lists;
		memset(t->lists + (size_t)t->n_lists++ * ESTIMATE_WINDOW_TOKENS, 0xff,
		       ESTIMATE_WINDOW_TOKENS * sizeof(*t->lists));
	}
}

/* Tokens from pos on, within a window that is listed: rows of a page from the given one on. */
static void list_tokens(const struct sparse *with, const struct backend_estimate *e,
			struct tables_of *t, uint32_t pos, struct work_slice rows)
{
	uint32_t per_unit = estimate_unit_bytes(e->shape->head_dim) / KV_SOURCE_BYTES;
	struct pool_pages pages = shape_pages(with->pool, e->shape);
	uint32_t list = t->windows[pos / ESTIMATE_WINDOW_TOKENS] & ~ESTIMATE_LISTED;
	uint32_t *to =
		t->lists + (size_t)list * ESTIMATE_WINDOW_TOKENS + pos % ESTIMATE_WINDOW_TOKENS;

	for (uint32_t i = 0; i < rows.count; i++)
		to[i] = shape_source(e->shape, &pages, rows.page, rows.first + i) / per_unit;
}

static void fill_tables(const struct sparse *with, const struct backend_estimate *e,
			struct tables_of *t)
{
	uint32_t pos = 0;

	t->n_windows = windows_count(e->n_k);
	windows_find(with->pool, e->shape, e->slices, e->n_slices, t->windows);
	list_windows(e, t);
	for (uint32_t i = 0; i < e->n_slices && t->n_lists; i++) {
		uint32_t row = e->slices[i].first, end = row + e->slices[i].count, n;

		for (; row < end; row += n, pos += n) {
			uint32_t left = ESTIMATE_WINDOW_TOKENS - pos % ESTIMATE_WINDOW_TOKENS;

			n = min_u32(end - row, left);
			if (t->windows[pos / ESTIMATE_WINDOW_TOKENS] & ESTIMATE_LISTED)
				list_tokens(with, e, t, pos,
					    (struct work_slice){e->slices[i].page, (uint16_t)row,
								(uint16_t)n});
		}
	}
}

struct device_estimate estimate_on_device(const struct backend_estimate *e)
{
	return (struct device_estimate){
		.shape = shape_on_device(e->shape),
		.stride = e->stride,
		.block_tokens = e->block_tokens,
		.n_q = e->n_q,
		.q_pos = e->q_pos,
		.n_k = e->n_k,
		.page_tokens = e->shape->page_tokens,
		.q_stride = shape_row_bytes(e->shape),
	};
}

size_t estimate_n_masses(const struct backend_estimate *e)
{
	return (size_t)e->shape->n_kv_heads * ceil_div(e->n_q, e->block_tokens) *
	       ceil_div(e->n_k, e->block_tokens);
}

static struct device_estimate from_pages(const struct sparse *with,
					 const struct backend_estimate *e)
{
	struct device_estimate on = estimate_on_device(e);

	on.layer = e->layer;
	on.pool = with->pool->base;
	on.pool_bytes = with->pool->bytes;
	on.page_bytes = shape_page_bytes(with->pool, e->shape, NULL, 0);
	return on;
}

/* Whole, to where the estimate reads it. */
static int bring_q(const struct sparse *with, const struct backend_estimate *e,
		   const struct device_estimate *on)
{
	int r = 0;

	for (uint32_t row = 0, n; row < e->n_q && !r; row += n) {
		n = min_u32(e->n_q - row, ROWS_MOST);
		const struct device_bring q = {.from = e->q + row * e->q_stride,
					       .to = on->q + row * on->q_stride,
					       .from_stride = e->q_stride,
					       .to_stride = on->q_stride,
					       .row_bytes = on->q_stride,
					       .n_rows = n};
		r = queue_expect(with->queue, device_bring(&q, with->queue->stream));
	}
	return r;
}

/* What an estimate needs of memory, in this order: on the host tables and what comes back, on the
 * device scratch, tables, masses, Q. That is read where it is, unless its rows lie across the bus,
 * or askew. */
struct needs {
	size_t scratch, tables, masses, q;
};

static int needs_of(const struct sparse *with, const struct backend_estimate *e,
		    struct device_estimate *ret, struct needs *ret_needs)
{
	bool there = (e->q | e->q_stride) % 16 == 0 && !hosts_have(with->hosts, e->q);

	if (shape_page_bytes(with->pool, e->shape, NULL, 0) == 0 || e->n_k == 0 ||
	    !slices_fit_estimate(e, WORK_NONE))
		return -EINVAL;
	*ret = from_pages(with, e);
	*ret_needs = (struct needs){
		.scratch = device_estimate_bytes(ret),
		.tables = align_to(windows_count(e->n_k) * (size_t)(1 + ESTIMATE_WINDOW_TOKENS) *
					   sizeof(uint32_t),
				   TABLE_ALIGN),
		.masses = align_to(estimate_n_masses(e) * sizeof(float), TABLE_ALIGN),
		.q = there ? 0 : e->n_q * shape_row_bytes(e->shape),
	};
	return ret_needs->scratch ? 0 : -EINVAL;
}

static int run(const struct sparse *with, const struct backend_estimate *e,
	       const struct needs *needs, const struct tables_of *t, struct device_estimate *on)
{
	size_t words = t->n_windows + (size_t)t->n_lists * ESTIMATE_WINDOW_TOKENS;
	int r = queue_bring(with->queue, (void *)(uintptr_t)on->windows, t->windows,
			    words * sizeof(uint32_t));

	if (needs->q) {
		on->q = (uintptr_t)on->mass + needs->masses;
		r = r ? r : bring_q(with, e, on);
	} else {
		on->q = e->q;
		on->q_stride = e->q_stride;
	}
	return r ? r : queue_expect(with->queue, device_estimate(on, with->queue->stream));
}

/* An estimate that is under way: masses will be on the device. */
struct started {
	struct device_estimate on;
	void *host; /* pinned, for what is to come back */
};

/* host_bytes: of what is to come back. */
static int start(struct estimate_room *room, const struct sparse *with,
		 const struct backend_estimate *e, size_t host_bytes, struct started *ret)
{
	struct device_estimate *on = &ret->on;
	struct tables_of t = {0};
	struct needs needs;
	int r = needs_of(with, e, on, &needs);

	if (!r)
		r = queue_grow_pinned(with->queue, &room->host, needs.tables + host_bytes);
	if (!r)
		r = queue_grow(with->queue, &room->device,
			       needs.scratch + needs.tables + needs.masses + needs.q);
	if (r)
		return r;
	t.windows = room->host.at;
	t.lists = t.windows + windows_count(e->n_k);
	fill_tables(with, e, &t);
	char *at = room->device.at;
	on->scratch = at;
	on->windows = (const void *)(at + needs.scratch);
	on->lists = on->windows + t.n_windows;
	on->mass = (void *)(at + needs.scratch + needs.tables);
	ret->host = (char *)room->host.at + needs.tables;
	return run(with, e, &needs, &t, on);
}

int estimate_room_run(struct estimate_room *room, const struct sparse *with,
		      const struct backend_estimate *e, const float **ret_mass)
{
	size_t bytes = estimate_n_masses(e) * sizeof(float);
	struct started started;
	int r = start(room, with, e, bytes, &started);

	if (!r)
		r = queue_bring(with->queue, started.host, started.on.mass, bytes);
	if (!r)
		r = queue_expect(with->queue, cudaStreamSynchronize(with->queue->stream));
	if (!r)
		*ret_mass = started.host;
	return r;
}

static void add_shares(const struct device_selected *at, uint32_t n, struct select_shares *shares)
{
	for (uint32_t i = 0; i < n; i++) {
		shares->attended += (double)at[i].n_queries * at[i].n_kept;
		shares->visible += (double)at[i].n_queries * at[i].n_seen;
		shares->kept_mass += at[i].kept_mass;
		shares->total_mass += at[i].total_mass;
	}
}

int estimate_room_choose(struct estimate_room *room, const struct sparse *with,
			 const struct backend_estimate *e, const struct estimate_choice *choice,
			 const uint64_t **ret_kept)
{
	const struct select_chunk *chunk = choice->chunk;
	struct device_select select = {
		.tau = choice->config->tau,
		.n_ranges = select_n_ranges(chunk),
		.n_blocks = chunk->n_blocks,
		.n_words = select_n_words(chunk->n_blocks),
		.sink_blocks = choice->config->sink_blocks,
		.recent_blocks = choice->config->recent_blocks,
		.block_tokens = chunk->block_tokens,
		.pos = chunk->pos,
		.n = chunk->n,
		.skip = chunk->skip,
	};
	struct started started;
	int r;

	if (chunk->block_tokens != e->block_tokens || chunk->pos + chunk->skip != e->q_pos ||
	    chunk->n - chunk->skip != e->n_q || chunk->pos + chunk->n != e->n_k)
		return -EINVAL;
	select.n_rows = e->shape->n_kv_heads * select.n_ranges;
	size_t results = select.n_rows * sizeof(struct device_selected);
	r = start(room, with, e,
		  results + (size_t)select.n_rows * select.n_words * sizeof(*select.kept),
		  &started);
	if (r)
		return r;
	select.mass = started.on.mass;
	select.selected = started.host;
	select.kept = (void *)((char *)started.host + results);
	r = queue_expect(with->queue, device_select(&select, with->queue->stream));
	if (!r)
		r = queue_expect(with->queue, cudaStreamSynchronize(with->queue->stream));
	if (r)
		return r;
	add_shares(select.selected, select.n_rows, choice->shares);
	*ret_kept = select.kept;
	return 0;
}

void estimate_room_done(struct estimate_room *room)
{
	cudaFreeHost(room->host.at);
	cudaFree(room->device.at);
	*room = (struct estimate_room){0};
}
