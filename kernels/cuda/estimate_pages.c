/* estimate_pages.c - see estimate_pages.h. */
#include "estimate_pages.h"

#include "batch_impl.h"
#include "windows.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

/* Tables of an estimate, in pinned memory and then on the device. */
struct tables_of {
	uint32_t *windows, *lists;
	uint32_t n_windows, n_lists;
};

static bool slices_fit(const struct backend_estimate *e)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < e->n_slices; i++) {
		if (e->slices[i].count == 0 || e->slices[i].page == WORK_NONE ||
		    e->slices[i].first + e->slices[i].count > e->shape->page_tokens)
			return false;
		n += e->slices[i].count;
	}
	return n == e->n_k && e->n_k > 0;
}

/* Tokens of several runs of groups, or fewer than a window has, are listed one by one. */
static void list_windows(const struct backend_estimate *e, struct tables_of *t)
{
	uint32_t per_group = e->shape->head_dim / 64;

	for (uint32_t i = 0; i < t->n_windows; i++) {
		if (t->windows[i] != DEVICE_NONE && (i + 1) * ESTIMATE_WINDOW_TOKENS <= e->n_k) {
			t->windows[i] /= per_group;
			continue;
		}
		t->windows[i] = ESTIMATE_LISTED | t->n_lists;
		memset(t->lists + (size_t)t->n_lists++ * ESTIMATE_WINDOW_TOKENS, 0xff,
		       ESTIMATE_WINDOW_TOKENS * sizeof(*t->lists));
	}
}

/* Tokens from pos on, within a window that is listed: rows of a page from the given one on. */
static void list_tokens(const struct batch *b, const struct backend_estimate *e,
			struct tables_of *t, uint32_t pos, struct work_slice rows)
{
	struct program_pages pages = shape_pages(b, e->shape);
	uint32_t list = t->windows[pos / ESTIMATE_WINDOW_TOKENS] & ~ESTIMATE_LISTED;
	uint32_t *to =
		t->lists + (size_t)list * ESTIMATE_WINDOW_TOKENS + pos % ESTIMATE_WINDOW_TOKENS;

	for (uint32_t i = 0; i < rows.count; i++)
		to[i] = shape_source(e->shape, &pages, rows.page, rows.first + i) /
			(e->shape->head_dim / 64);
}

static void fill_tables(const struct batch *b, const struct backend_estimate *e,
			struct tables_of *t)
{
	uint32_t pos = 0;

	t->n_windows = windows_count(e->n_k);
	windows_find(b, e->shape, e->slices, e->n_slices, t->windows);
	list_windows(e, t);
	for (uint32_t i = 0; i < e->n_slices && t->n_lists; i++) {
		uint32_t row = e->slices[i].first, end = row + e->slices[i].count, n;

		for (; row < end; row += n, pos += n) {
			uint32_t left = ESTIMATE_WINDOW_TOKENS - pos % ESTIMATE_WINDOW_TOKENS;

			n = end - row < left ? end - row : left;
			if (t->windows[pos / ESTIMATE_WINDOW_TOKENS] & ESTIMATE_LISTED)
				list_tokens(b, e, t, pos,
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
	return (size_t)e->shape->n_kv_heads * n_of(e->n_q, e->block_tokens) *
	       n_of(e->n_k, e->block_tokens);
}

static struct device_estimate from_pages(const struct batch *b, const struct backend_estimate *e)
{
	struct device_estimate on = estimate_on_device(e);

	on.layer = e->layer;
	on.pool = b->pool->base;
	on.pool_bytes = b->pool->bytes;
	on.page_bytes = batch_page_bytes(b->pool, e->shape, NULL, 0);
	return on;
}

/* Q comes to the device whole: its rows may lie across the bus, or askew. */
static int run(struct batch *b, const struct backend_estimate *e, struct device_estimate *on,
	       const struct tables_of *t, float *host_mass, size_t n_mass)
{
	size_t row_bytes = shape_row_bytes(e->shape), words = t->n_windows;
	int r = batch_expect(b, cudaMemcpy2DAsync((void *)(uintptr_t)on->q, row_bytes,
						  (const void *)(uintptr_t)e->q, e->q_stride,
						  row_bytes, e->n_q, cudaMemcpyDefault, b->stream));

	words += (size_t)t->n_lists * ESTIMATE_WINDOW_TOKENS;
	if (!r)
		r = batch_expect(b, cudaMemcpyAsync((void *)(uintptr_t)on->windows, t->windows,
						    words * sizeof(uint32_t),
						    cudaMemcpyHostToDevice, b->stream));
	if (!r)
		r = batch_expect(b, device_estimate(on, b->stream));
	if (!r)
		r = batch_expect(b, cudaMemcpyAsync(host_mass, on->mass, n_mass * sizeof(float),
						    cudaMemcpyDeviceToHost, b->stream));
	return r ? r : batch_expect(b, cudaStreamSynchronize(b->stream));
}

int estimate_room_run(struct estimate_room *room, struct batch *b, const struct backend_estimate *e,
		      const float **ret_mass)
{
	struct device_estimate on;
	size_t scratch, words, q_bytes, n_mass;
	struct tables_of t = {0};
	int r;

	if (batch_page_bytes(b->pool, e->shape, NULL, 0) == 0 || !slices_fit(e))
		return -EINVAL;
	on = from_pages(b, e);
	scratch = device_estimate_bytes(&on);
	if (scratch == 0)
		return -EINVAL;
	words = windows_count(e->n_k) * (size_t)(1 + ESTIMATE_WINDOW_TOKENS);
	q_bytes = align_up(e->n_q * shape_row_bytes(e->shape));
	n_mass = estimate_n_masses(e);
	r = batch_grow(b, &room->host, align_up(words * 4) + n_mass * 4, true);
	if (!r)
		r = batch_grow(b, &room->device,
			       scratch + q_bytes + align_up(words * 4) + n_mass * 4, false);
	if (r)
		return r;
	t.windows = room->host.at;
	t.lists = t.windows + windows_count(e->n_k);
	fill_tables(b, e, &t);
	on.scratch = room->device.at;
	on.q = (uintptr_t)room->device.at + scratch;
	on.windows = (const uint32_t *)(uintptr_t)(on.q + q_bytes);
	on.lists = on.windows + t.n_windows;
	on.mass = (float *)(uintptr_t)(on.q + q_bytes + align_up(words * 4));
	float *host_mass = (float *)(void *)((char *)room->host.at + align_up(words * 4));
	r = run(b, e, &on, &t, host_mass, n_mass);
	if (!r)
		*ret_mass = host_mass;
	return r;
}

void estimate_room_done(struct estimate_room *room)
{
	cudaFreeHost(room->host.at);
	cudaFree(room->device.at);
	*room = (struct estimate_room){0};
}
