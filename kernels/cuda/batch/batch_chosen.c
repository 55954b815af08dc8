/*
 * batch_chosen.c - jobs of chosen blocks; see batch_chosen.h. Heads are launched as many at a time
 * as their schedules have room for; those of the next launch take the same room, as launches on the
 * queue keep their order.
 */
#include "batch_chosen.h"

#include "kernels/cuda/device/windows.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>

#define SCHEDULE_BYTES (UINT64_C(192) << 20) /* of a launch, more or less; one head may take more */
/* of work tiles that are not cut: where they are fewer, a plan that cuts them is better */
#define WAVES_LEAST 2u
#define KV_TILE_BYTES (sizeof(struct device_kv_tile) + sizeof(struct device_source))
#define WORK_TILE_BYTES \
	(sizeof(struct device_work_tile) + DEVICE_FIRST_KV_TILES * sizeof(struct device_source))

/* Where a job's tables lie, from the begin of their memory; lists of blocks come last, as few as
 * they are. */
struct layout {
	uint32_t n_heads, n_ranges, n_work_tiles, n_windows, n_words;
	size_t windows, blocks, bytes;
};

static uint32_t work_tile_tokens(const struct work_shape *shape)
{
	return DEVICE_BLOCK_ROWS / row_map_of(shape).heads * DEVICE_WARPS;
}

static uint32_t n_tokens_of(const struct backend_chosen *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_slices; i++)
		n += c->slices[i].count;
	return n;
}

static uint32_t range_end(const struct backend_job *job, uint32_t range)
{
	return range + 1 < job->chosen->n_ranges ? job->chosen->ranges[range + 1]
						 : job->list->n_rows;
}

static struct layout layout_of(const struct backend_job *job)
{
	const struct backend_chosen *c = job->chosen;
	struct layout l = {.n_heads = job->shape->n_kv_heads,
			   .n_ranges = c->n_ranges,
			   .n_windows = windows_count(n_tokens_of(c)),
			   .n_words = ceil_div(c->n_blocks, 64)};
	uint32_t tokens = work_tile_tokens(job->shape);

	for (uint32_t i = 0; i < c->n_ranges; i++)
		l.n_work_tiles += ceil_div(range_end(job, i) - c->ranges[i], tokens);
	l.windows = align_up((size_t)l.n_heads * l.n_work_tiles * sizeof(struct device_choice));
	l.blocks = l.windows + align_up(l.n_windows * sizeof(uint32_t));
	l.bytes = l.blocks +
		  align_up((size_t)l.n_heads * l.n_ranges * c->n_blocks * sizeof(uint32_t));
	return l;
}

bool chosen_takes(struct batch *b, const struct backend_job *job)
{
	const struct backend_chosen *c = job->chosen;
	struct layout l;
	uint32_t *windows;
	bool r;

	if (b->peer || job->n_heads || job->tree->n_queries != 1 || job->tree->queries[0].parents ||
	    c->block_tokens % WINDOW_TOKENS || row_map_of(job->shape).n > 1 || job->list->bounded ||
	    shape_page_bytes(b->pool, job->shape, NULL, 0) == 0)
		return false;
	l = layout_of(job);
	if (!c->kept && l.n_work_tiles * l.n_heads < WAVES_LEAST * b->n_blocks)
		return false;
	windows = malloc(l.n_windows * sizeof(*windows) + 1);
	r = windows && windows_find(b->pool, job->shape, c->slices, c->n_slices, windows) == 0;
	free(windows);
	return r;
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Blocks that a range of rows keeps, in ascending order. */
struct kept {
	const uint32_t *blocks; /* [n] */
	uint32_t n;
	uint32_t begin; /* in the table of all */
};

/* Kept windows before this one: n blocks of the list lie wholly before. */
static uint32_t windows_before(const struct kept *kept, uint32_t per_block, uint32_t window)
{
	const uint32_t *blocks = kept->blocks;
	uint32_t low = 0, high = kept->n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if ((blocks[middle] + 1) * per_block <= window)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < kept->n && blocks[low] * per_block < window)
		return low * per_block + window - blocks[low] * per_block;
	return low * per_block;
}

static uint32_t list_blocks(const struct backend_chosen *c, const uint64_t *kept, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_blocks; i += 64) {
		uint64_t left = c->n_blocks - i < 64 ? (UINT64_C(1) << (c->n_blocks - i)) - 1
						     : ~UINT64_C(0);

		for (left &= kept ? kept[i / 64] : ~UINT64_C(0); left; left &= left - 1)
			ret[n++] = i + (uint32_t)__builtin_ctzll(left);
	}
	return n;
}

/* Work tiles of a range of rows and the blocks that it keeps, those with most to do first. */
static struct device_choice *add_work_tiles(const struct backend_job *job, uint32_t range,
					    const struct kept *kept, struct device_choice *ret)
{
	uint32_t tokens = work_tile_tokens(job->shape),
		 per = job->chosen->block_tokens / WINDOW_TOKENS;
	uint32_t begin = job->chosen->ranges[range], end = range_end(job, range);
	uint32_t n = ceil_div(end - begin, tokens);

	for (uint32_t i = n; i-- > 0; ret++) {
		uint32_t row = begin + i * tokens, last = min_u32(row + tokens, end);
		uint32_t pos = job->list->rows[row].pos;

		*ret = (struct device_choice){
			.row = row,
			.n_rows = last - row,
			.pos = pos,
			.n_plain = windows_before(kept, per, (pos + 1) / WINDOW_TOKENS),
			.n_kv_tiles = windows_before(kept, per,
						     (pos + last - row - 1) / WINDOW_TOKENS + 1),
			.block = kept->begin,
		};
	}
	return ret;
}

/* Returns the bytes that they have come to. */
static size_t fill_tables(const struct batch *b, const struct backend_job *job,
			  const struct layout *l, char *host)
{
	const struct backend_chosen *c = job->chosen;
	struct device_choice *choice = (void *)host;
	uint32_t *blocks = (void *)(host + l->blocks), at = 0;

	for (uint32_t head = 0; head < l->n_heads; head++)
		for (uint32_t range = c->n_ranges; range-- > 0;) {
			size_t entry = (size_t)head * c->n_ranges + range;
			struct kept kept = {.blocks = blocks + at, .begin = at};

			kept.n = list_blocks(c, c->kept ? c->kept + entry * l->n_words : NULL,
					     blocks + at);
			choice = add_work_tiles(job, range, &kept, choice);
			at += kept.n;
		}
	windows_find(b->pool, job->shape, c->slices, c->n_slices, (void *)(host + l->windows));
	return l->blocks + at * sizeof(*blocks);
}

static uint64_t kv_tiles_of(const struct device_choice *choices, uint32_t n)
{
	uint64_t kv_tiles = 0;

	for (uint32_t i = 0; i < n; i++)
		kv_tiles += choices[i].n_kv_tiles;
	return kv_tiles;
}

/* KV tiles of the heads that are launched together begin at 0. Returns how many the largest launch
 * has. */
static uint64_t place_kv_tiles(struct device_choice *choices, const struct layout *l,
			       struct chosen_job *job)
{
	uint64_t most = 0, at = 0;
	uint32_t n = l->n_heads * l->n_work_tiles, n_launches;

	job->n_kv_tiles = kv_tiles_of(choices, n);
	n_launches = (uint32_t)(job->n_kv_tiles * KV_TILE_BYTES / SCHEDULE_BYTES) + 1;
	job->n_heads = ceil_div(l->n_heads, n_launches);
	for (uint32_t i = 0; i < n; i++) {
		at = i % (job->n_heads * l->n_work_tiles) ? at : 0;
		choices[i].kv_tile = (uint32_t)at;
		at += choices[i].n_kv_tiles;
		most = max_u64(at, most);
	}
	return most;
}

/* Kernels look at work tiles before they wait for those who write them: there is never anything
 * else in that memory. */
static int grow_work_tiles(struct batch *b, uint32_t n)
{
	struct queue_buffer *work_tiles = &b->chosen.work_tiles;
	size_t had = work_tiles->bytes;
	int r = queue_grow(&b->queue, work_tiles, n * WORK_TILE_BYTES);

	if (!r && work_tiles->bytes != had)
		r = queue_expect(&b->queue, cudaMemsetAsync(work_tiles->at, 0, work_tiles->bytes,
							    b->queue.stream));
	return r;
}

static int grow_device(struct batch *b, const struct layout *l, uint64_t most)
{
	size_t bytes = align_up(DEVICE_WORK_TILE_ROWS * sizeof(uint32_t)) + most * KV_TILE_BYTES;
	int r = grow_work_tiles(b, l->n_heads * l->n_work_tiles);

	if (!r)
		r = queue_grow(&b->queue, &b->chosen.schedules, bytes);
	return r ? r : queue_grow(&b->queue, &b->chosen.tables, l->bytes);
}

/* Where the arrays of a schedule lie that has so many KV tiles at most. */
static void place_arrays(const struct batch *b, const struct layout *l, uint64_t most,
			 struct device_choose *ret)
{
	char *work_tiles = b->chosen.work_tiles.at, *at = b->chosen.schedules.at,
	     *tables = b->chosen.tables.at;

	ret->choices = (const void *)tables;
	ret->blocks = (const void *)(tables + l->blocks);
	ret->windows = (const void *)(tables + l->windows);
	ret->work_tiles = (void *)work_tiles;
	ret->firsts = (void *)(work_tiles + (size_t)l->n_heads * l->n_work_tiles *
						    sizeof(struct device_work_tile));
	ret->dests = (void *)at;
	ret->kv_tiles = (void *)(at + align_up(DEVICE_WORK_TILE_ROWS * sizeof(uint32_t)));
	ret->sources = (void *)(ret->kv_tiles + most);
}

int chosen_ready(struct upload *u, const struct backend_job *job, struct chosen_job *ret)
{
	const struct work_shape *shape = job->shape;
	struct layout l = layout_of(job);
	struct batch *b = u->b;
	size_t bytes;
	uint64_t most;
	int r = upload_grow(u, u->host_used + align_up(l.bytes) + u->host_due);

	if (r)
		return r;
	char *host = upload_host(u, l.bytes);

	*ret = (struct chosen_job){.n_work_tiles = l.n_work_tiles};
	bytes = fill_tables(b, job, &l, host);
	most = place_kv_tiles((void *)host, &l, ret);
	r = grow_device(b, &l, most);
	if (r)
		return r;
	ret->choose = (struct device_choose){
		.n_k = n_tokens_of(job->chosen),
		.block_windows = job->chosen->block_tokens / WINDOW_TOKENS,
		.block_tokens = DEVICE_BLOCK_ROWS / row_map_of(shape).heads,
		.kv_block_sources = kv_block_sources(shape),
		.wide = code_takes_wide(b->code, shape->head_dim),
	};
	place_arrays(b, &l, most, &ret->choose);
	return queue_bring(&b->queue, b->chosen.tables.at, host, bytes);
}

/* ---- launches ------------------------------------------------------------------------------- */

int chosen_launch(struct upload *u, const struct chosen_job *chosen, struct device_attend *attend)
{
	uint32_t n_heads = attend->shape.n_kv_heads;
	struct device_choose choose = chosen->choose;
	struct batch *b = u->b;

	attend->work_tiles = choose.work_tiles;
	attend->firsts = choose.firsts;
	attend->kv_tiles = choose.kv_tiles;
	attend->sources = choose.sources;
	attend->dests = choose.dests;
	attend->patched = 1;
	attend->head_work_tiles = chosen->n_work_tiles;
	for (uint32_t head = 0, n; head < n_heads; head += n) {
		n = min_u32(n_heads - head, chosen->n_heads);
		choose.choices = chosen->choose.choices + (size_t)head * chosen->n_work_tiles;
		choose.n_work_tiles = n * chosen->n_work_tiles;
		attend->n_work_tiles = choose.n_work_tiles;
		attend->first_head = head;
		b->last = *attend;
		if (queue_expect(&b->queue, device_choose(&choose, queue_to(&b->queue))) != 0 ||
		    queue_expect(&b->queue, device_attend(attend, queue_to(&b->queue))) != 0)
			return -EIO;
	}
	return 0;
}
