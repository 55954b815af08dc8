/*
 * world.c - grows the tree at random, fills pages and the oracle's arrays with the same values,
 * runs lists of it and measures what came back.
 */
#include "world.h"
#include "kernels/group/group.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES (UINT64_C(128) << 20) /* ten nodes of 3,000 tokens, 2 heads of 192, 2 layers */
#define EXTENT_BYTES (UINT64_C(4) << 20)

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "world: %s\n", what);
	abort();
}

/* 0 or an errno, of either sign. */
static void must_work(int r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "world: %s: %s (%d)\n", what, strerror(r < 0 ? -r : r), r);
	abort();
}

static void *must_alloc(size_t bytes)
{
	void *at = malloc(bytes ? bytes : 1);

	must(at != NULL, "out of memory");
	return at;
}

void *world_alloc(struct world *w, size_t bytes)
{
	struct world_arena *arena = &w->arenas[w->n_arenas++];

	must(w->n_arenas <= WORLD_ARENAS, "too many arenas");
	arena->bytes = (bytes + 4096) / 4096 * 4096;
	must_work(posix_memalign(&arena->host, 4096, arena->bytes), "out of memory");
	must_work(w->ops->arena_attach(w->backend, arena->host, arena->bytes, &arena->base),
		  "arena_attach");
	return arena->host;
}

static struct world_arena *find_arena(const struct world *w, const void *at)
{
	for (uint32_t i = 0; i < w->n_arenas; i++) {
		const struct world_arena *arena = &w->arenas[i];

		if ((uintptr_t)at - (uintptr_t)arena->host < arena->bytes)
			return (struct world_arena *)arena;
	}
	must(false, "an address outside all arenas");
	return NULL;
}

void world_release(struct world *w, void *at)
{
	struct world_arena *arena;

	if (!at)
		return;
	arena = find_arena(w, at);
	w->ops->arena_detach(w->backend, arena->base, arena->bytes);
	free(arena->host);
	*arena = w->arenas[--w->n_arenas];
}

uint64_t world_address(const struct world *w, const void *at)
{
	const struct world_arena *arena = find_arena(w, at);

	return arena->base + ((uintptr_t)at - (uintptr_t)arena->host);
}

uint32_t world_rows(const struct world *w)
{
	return w->first_row[w->tree.n_queries];
}

size_t world_row_values(const struct world *w)
{
	return (size_t)w->shape.n_q_heads * w->shape.head_dim;
}

static size_t kv_values(const struct world *w)
{
	return (size_t)w->shape.n_kv_heads * w->shape.head_dim;
}

/* 7 is prime to the number of pages: neighbours are not neighbours in memory. */
static uint32_t next_page(struct world *w)
{
	uint32_t n = w->kv.n_pages / w->page_step;

	return w->next_page++ * 7 % n * w->page_step + w->shape.home;
}

/* Slices for the node's tokens; each begins in a page of its own at the row that its position
 * says. */
static void give_pages(struct world *w, struct work_node *node)
{
	uint32_t pos = node->pos, end = node->pos + node->n_tokens;

	node->slice = w->tree.n_slices;
	while (pos < end) {
		uint32_t first = pos % w->shape.page_tokens;
		uint32_t count = w->shape.page_tokens - first;

		count = count < end - pos ? count : end - pos;
		must(w->tree.n_slices < WORLD_SLICES, "too many slices");
		w->slices[w->tree.n_slices++] =
			(struct work_slice){next_page(w), (uint16_t)first, (uint16_t)count};
		pos += count;
	}
	node->n_slices = w->tree.n_slices - node->slice;
}

static void make_node(struct world *w, const struct world_want *want, struct oracle_random *random)
{
	uint32_t index = w->tree.n_nodes++;
	struct work_node *node = &w->nodes[index];

	*node = (struct work_node){.parent = WORK_NONE};
	if (index > 0 && oracle_below(random, 8) > 0) {
		node->parent = oracle_below(random, index);
		node->pos = w->nodes[node->parent].pos + w->nodes[node->parent].n_tokens;
	}
	node->n_tokens = 1 + oracle_below(random, oracle_below(random, 2) ? want->node_tokens : 40);
	give_pages(w, node);
}

static bool is_leaf(const struct world *w, uint32_t node)
{
	for (uint32_t i = 0; i < w->tree.n_nodes; i++) {
		if (w->nodes[i].parent == node)
			return false;
	}
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		if (w->queries[i].node == node)
			return false;
	}
	return true;
}

static uint32_t pick_rows(struct oracle_random *random, uint32_t n_tokens)
{
	uint32_t most = n_tokens < WORLD_ROWS ? n_tokens : WORLD_ROWS;

	return oracle_below(random, 2) ? 1 : 1 + oracle_below(random, most);
}

static bool has_draft(const struct world *w, uint32_t node)
{
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		if (w->queries[i].node == node && w->queries[i].parents)
			return true;
	}
	return false;
}

static void make_draft(struct world *w, struct work_query *query, uint32_t *parents,
		       struct oracle_random *random)
{
	query->parents = parents;
	for (uint32_t i = 0; i < query->n_rows; i++)
		parents[i] = i == 0 || oracle_below(random, 5) == 0 ? WORK_NONE
								    : oracle_below(random, i);
	if (oracle_below(random, 2))
		query->n_before = oracle_below(random, query->n_rows);
	query->n_rows -= query->n_before;
	query->pos += query->n_before;
	w->appends[query - w->queries] = true;
}

/* At the end of a node, or somewhere inside where its tokens are there already. */
static void make_query_at(struct world *w, const struct world_want *want, uint32_t node,
			  struct oracle_random *random)
{
	struct work_query *query = &w->queries[w->tree.n_queries];
	const struct work_node *at = &w->nodes[node];
	bool leaf = is_leaf(w, node);

	*query = (struct work_query){.node = node, .n_rows = pick_rows(random, at->n_tokens)};
	query->pos = at->pos + at->n_tokens - query->n_rows;
	w->appends[w->tree.n_queries] = leaf;
	if (leaf && want->drafts && oracle_below(random, 3) == 0)
		make_draft(w, query, w->parents[w->tree.n_queries], random);
	else if (!leaf && oracle_below(random, 4) == 0)
		query->pos -= oracle_below(random, query->pos - at->pos + 1);
}

/* The last tokens alone, or those from a multiple of so many on, or from anywhere. */
static void make_lows(struct world *w, const struct world_want *want, uint32_t index,
		      struct oracle_random *random)
{
	uint32_t kind = oracle_below(random, 4), size = 1 + oracle_below(random, want->node_tokens);
	struct work_query *query = &w->queries[index];

	for (uint32_t i = 0; i < query->n_rows; i++) {
		uint32_t end = query->pos + i + 1;

		w->lows[index][i] = kind == 0	? (end > size ? end - size : 0)
				    : kind == 1 ? (end - 1) / size * size
						: oracle_below(random, end + 1);
	}
	query->lows = kind < 3 ? w->lows[index] : NULL;
}

/* A draft's tokens are nobody else's: where one stands there is room for no other query. */
static void make_query(struct world *w, const struct world_want *want, struct oracle_random *random)
{
	uint32_t index = w->tree.n_queries, node = oracle_below(random, w->tree.n_nodes);

	if (want->drafts && oracle_below(random, 12) == 0)
		w->queries[index] = (struct work_query){.node = WORK_NONE, .n_rows = 2};
	else if (!has_draft(w, node))
		make_query_at(w, want, node, random);
	else
		return;
	if (want->windows)
		make_lows(w, want, index, random);
	w->first_row[index + 1] = w->first_row[index] + w->queries[index].n_rows;
	w->tree.n_queries++;
}

static void fill(struct world *w, struct oracle_random *random, float *at, size_t n)
{
	size_t bytes = work_dtype_bytes(w->shape.dtype);
	char *raw = must_alloc(n * bytes);

	for (size_t i = 0; i < n; i++)
		at[i] = oracle_normal(random);
	oracle_encode(w->shape.dtype, raw, at, n);
	oracle_decode(w->shape.dtype, at, raw, n);
	free(raw);
}

static void fill_kv(struct world *w, struct oracle_random *random)
{
	for (uint32_t i = 0; i < w->tree.n_slices; i++) {
		size_t at = oracle_kv_row(&w->kv, w->slices[i].page, w->slices[i].first);

		fill(w, random, w->kv.k + at, w->slices[i].count * kv_values(w));
		fill(w, random, w->kv.v + at, w->slices[i].count * kv_values(w));
	}
}

static void encode_kv(struct world *w)
{
	size_t rows = (size_t)w->kv.n_pages * w->shape.page_tokens, n = kv_values(w);
	size_t bytes = n * work_dtype_bytes(w->shape.dtype);

	if (!w->kv_raw)
		w->kv_raw = world_alloc(w, rows * bytes * 2);
	for (size_t i = 0; i < rows; i++) {
		oracle_encode(w->shape.dtype, (char *)w->kv_raw + i * bytes * 2, w->kv.k + i * n,
			      n);
		oracle_encode(w->shape.dtype, (char *)w->kv_raw + i * bytes * 2 + bytes,
			      w->kv.v + i * n, n);
	}
}

static struct backend_io kv_io(const struct world *w, const struct work_slice *slots,
			       uint32_t n_slots)
{
	uint64_t bytes = kv_values(w) * work_dtype_bytes(w->shape.dtype);

	return (struct backend_io){.k_stride = bytes * 2,
				   .v_stride = bytes * 2,
				   .slots = slots,
				   .n_slots = n_slots};
}

static void submit(struct world *w, const struct work_tree *tree, const struct work_list *list,
		   const struct backend_io *io)
{
	struct backend_job job = {.shape = &w->shape,
				  .tree = tree,
				  .list = list,
				  .io = io,
				  .layer = w->shape.n_layers - 1};
	struct backend_batch batch = {&job, 1};
	uint64_t id = 0, done = 0;

	must_work(w->ops->submit(w->backend, &batch, &id), "submit");
	do
		must_work(w->ops->completed(w->backend, &done), "completed");
	while (done < id);
}

void world_load(struct world *w)
{
	size_t bytes = kv_values(w) * work_dtype_bytes(w->shape.dtype);
	struct work_slice *slots = must_alloc(w->kv.n_pages * sizeof(*slots));
	struct work_query query = {.n_rows = w->kv.n_pages * w->shape.page_tokens};
	struct work_tree tree = {.queries = &query, .n_queries = 1};
	struct work_list list = {0};
	struct backend_io io = kv_io(w, slots, w->kv.n_pages);

	memset(w->truth.known, 0, sizeof(w->truth.known));
	encode_kv(w);
	for (uint32_t i = 0; i < w->kv.n_pages; i++)
		slots[i] = (struct work_slice){i, 0, (uint16_t)w->shape.page_tokens};
	io.k = world_address(w, w->kv_raw);
	io.v = io.k + bytes;
	submit(w, &tree, &list, &io);
	free(slots);
}

static void open_backend(struct world *w, const struct world_want *want)
{
	uint64_t extent_bytes = want->extent_bytes ? want->extent_bytes : EXTENT_BYTES;
	struct backend_config config = {.pool_bytes = w->page_step * POOL_BYTES / extent_bytes *
						      extent_bytes,
					.extent_bytes = extent_bytes,
					.n_threads = want->n_threads,
					.group = want->group};
	uint32_t n_devices = want->group ? want->group->n_devices : 1, per_extent;
	char error[256] = "";
	uint64_t page_bytes;

	w->ops = want->ops ? want->ops : &backend_cpu;
	must(w->ops->open(&config, &w->backend, error, sizeof(error)) == 0, error);
	page_bytes = w->ops->page_bytes(w->backend, &w->shape, error, sizeof(error));
	must(page_bytes > 0, error);
	per_extent = (uint32_t)(extent_bytes / n_devices / page_bytes) * n_devices;
	if (w->shape.split == WORK_HEADS)
		per_extent = (uint32_t)(extent_bytes / page_bytes);
	for (uint32_t i = 0; i * per_extent < w->kv.n_pages; i++)
		must_work(w->ops->extent_commit(w->backend, i), "extent_commit");
}

/* Between trees and pages: every page is used by one slice at most. */
static void count_pages(struct world *w, const struct world_want *want)
{
	uint32_t n = 2 + w->tree.n_nodes +
		     want->n_nodes * (want->node_tokens / w->shape.page_tokens + 2);

	w->page_step = want->shape.split == WORK_HOME ? want->group->n_devices : 1;
	n = (n % 7 ? n : n + 1) * w->page_step;
	must_work(oracle_kv_init(&w->kv, &w->shape, n), "oracle");
}

void world_init(struct world *w, const struct world_want *want, struct oracle_random *random)
{
	*w = (struct world){.shape = want->shape};
	w->tree = (struct work_tree){.nodes = w->nodes, .slices = w->slices, .queries = w->queries};
	count_pages(w, want);
	for (uint32_t i = 0; i < want->n_nodes; i++)
		make_node(w, want, random);
	for (uint32_t i = 0; i < want->n_queries; i++)
		make_query(w, want, random);
	fill_kv(w, random);
	open_backend(w, want);
	world_load(w);

	size_t n = world_rows(w) * world_row_values(w);

	w->q = must_alloc(n * sizeof(float));
	w->q_raw = world_alloc(w, n * work_dtype_bytes(w->shape.dtype));
	fill(w, random, w->q, n);
	oracle_encode(w->shape.dtype, w->q_raw, w->q, n);
	w->truth.o = must_alloc(n * sizeof(double));
	w->truth.lse = must_alloc((size_t)world_rows(w) * w->shape.n_q_heads * sizeof(double));
}

void world_done(struct world *w)
{
	while (w->n_arenas)
		world_release(w, w->arenas[0].host);
	w->ops->close(w->backend);
	oracle_kv_done(&w->kv);
	free(w->q);
	free(w->truth.o);
	free(w->truth.lse);
}

/* The slots of a query's tokens: the end of its node's slices. Returns how many; the first may be
 * cut. */
static uint32_t find_slots(const struct world *w, const struct work_query *query,
			   struct work_slice *slots)
{
	const struct work_node *node = &w->nodes[query->node];
	uint32_t pos = node->pos, n = 0;

	for (uint32_t i = 0; i < node->n_slices; i++) {
		struct work_slice slice = w->slices[node->slice + i];
		uint32_t skip = pos < query->pos ? query->pos - pos : 0;

		pos += slice.count;
		if (skip >= slice.count)
			continue;
		slots[n++] = (struct work_slice){slice.page, (uint16_t)(slice.first + skip),
						 (uint16_t)(slice.count - skip)};
	}
	return n;
}

/* K and V of the slots, in row order, as [K, V] pairs; NaN takes their place in the pages. */
static char *take_out(struct world *w, const struct work_slice *slots, uint32_t n_slots)
{
	size_t row_bytes = 2 * kv_values(w) * work_dtype_bytes(w->shape.dtype), n = 0;
	char *fresh = world_alloc(w, WORLD_ROWS * row_bytes), *nan = world_alloc(w, 64 * row_bytes);
	struct work_query query = {.n_rows = 0};
	struct work_tree tree = {.queries = &query, .n_queries = 1};
	struct work_list list = {0};

	memset(nan, 0xff, 64 * row_bytes);
	for (uint32_t i = 0; i < n_slots; i++) {
		struct backend_io io = kv_io(w, &slots[i], 1);
		size_t row = (size_t)slots[i].page * w->shape.page_tokens + slots[i].first;

		memcpy(fresh + n, (char *)w->kv_raw + row * row_bytes, slots[i].count * row_bytes);
		n += slots[i].count * row_bytes;
		query.n_rows = slots[i].count;
		io.k = world_address(w, nan);
		io.v = io.k + row_bytes / 2;
		submit(w, &tree, &list, &io);
	}
	world_release(w, nan);
	return fresh;
}

static void answer_init(const struct world *w, struct world_answer *a)
{
	size_t rows = world_rows(w), n = rows * world_row_values(w);

	a->raw_bytes = n * work_dtype_bytes(w->shape.dtype);
	a->o = must_alloc(n * sizeof(float));
	a->lse = must_alloc(rows * w->shape.n_q_heads * sizeof(float));
	a->raw = must_alloc(a->raw_bytes);
	memset(a->raw, 0xff, a->raw_bytes);
	memset(a->lse, 0xff, rows * w->shape.n_q_heads * sizeof(float));
}

void world_answer_done(struct world_answer *answer)
{
	free(answer->o);
	free(answer->lse);
	free(answer->raw);
}

void world_run(struct world *w, const struct plan_config *config, uint32_t first, uint32_t n,
	       struct world_answer *ret)
{
	struct work_tree tree = w->tree;
	struct work_list list = {0};
	struct backend_io io[WORLD_QUERIES];
	struct work_slice slots[WORLD_QUERIES][WORLD_ROWS];
	char *fresh[WORLD_QUERIES] = {NULL};
	void *raw, *lse;
	uint64_t o_bytes = world_row_values(w) * work_dtype_bytes(w->shape.dtype);
	uint64_t lse_bytes = w->shape.n_q_heads * sizeof(float);
	char error[256] = "";

	answer_init(w, ret);
	raw = world_alloc(w, ret->raw_bytes);
	lse = world_alloc(w, world_rows(w) * w->shape.n_q_heads * sizeof(float));
	memcpy(raw, ret->raw, ret->raw_bytes);
	memcpy(lse, ret->lse, world_rows(w) * w->shape.n_q_heads * sizeof(float));
	tree.queries += first;
	tree.n_queries = n;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = w->first_row[first + i];

		io[i] = kv_io(w, slots[i], 0);
		if (w->appends[first + i]) {
			io[i].n_slots = find_slots(w, &tree.queries[i], slots[i]);
			fresh[i] = take_out(w, slots[i], io[i].n_slots);
			io[i].k = world_address(w, fresh[i]);
			io[i].v = io[i].k + io[i].k_stride / 2;
		}
		io[i].q = world_address(w, w->q_raw) + row * o_bytes;
		io[i].o = world_address(w, raw) + row * o_bytes;
		io[i].lse = world_address(w, lse) + row * lse_bytes;
		io[i].q_stride = io[i].o_stride = o_bytes;
		io[i].lse_stride = lse_bytes;
		if (w->silent[first + i]) {
			io[i].q = UINT64_MAX / 3;
			io[i].o = io[i].lse = 0;
		}
	}
	must_work(plan_make(config, &tree, &list), "plan_make");
	must(plan_list_check(&tree, &list, error, sizeof(error)) == 0, error);
	submit(w, &tree, &list, io);
	memcpy(ret->raw, raw, ret->raw_bytes);
	memcpy(ret->lse, lse, world_rows(w) * w->shape.n_q_heads * sizeof(float));
	oracle_decode(w->shape.dtype, ret->o, ret->raw, world_rows(w) * world_row_values(w));
	plan_list_done(&list);
	for (uint32_t i = 0; i < n; i++)
		world_release(w, fresh[i]);
	world_release(w, raw);
	world_release(w, lse);
}

/* What is no number is worse than all. */
static double worse(double a, double b)
{
	if (isnan(b))
		return INFINITY;
	return b > a ? b : a;
}

static double distance(double a, double b)
{
	return a == b ? 0 : fabs(a - b);
}

const struct world_truth *world_truth(struct world *w, uint32_t query)
{
	size_t values = world_row_values(w), heads = w->shape.n_q_heads;

	for (uint32_t token = 0; !w->truth.known[query] && token < w->queries[query].n_rows;
	     token++) {
		size_t row = w->first_row[query] + token;

		oracle_row(&w->kv, &w->tree, query, token, w->q + row * values,
			   w->truth.o + row * values, w->truth.lse + row * heads);
	}
	w->truth.known[query] = true;
	return &w->truth;
}

/* Norm of difference / norm over the rows of a query. */
static double query_error(struct world *w, uint32_t query, const struct world_answer *answer,
			  double *worst_lse)
{
	const struct world_truth *truth = world_truth(w, query);
	size_t values = world_row_values(w), heads = w->shape.n_q_heads;
	size_t first = w->first_row[query], end = w->first_row[query + 1];
	double off = 0, norm = 0;

	for (size_t i = first * values; i < end * values; i++) {
		off += pow(truth->o[i] - answer->o[i], 2);
		norm += truth->o[i] * truth->o[i];
	}
	for (size_t i = first * heads; i < end * heads; i++)
		*worst_lse = worse(*worst_lse, distance(truth->lse[i], answer->lse[i]));
	return off == 0 ? 0 : sqrt(off / norm);
}

double world_error(struct world *w, uint32_t first, uint32_t n, const struct world_answer *answer,
		   double *ret_lse)
{
	double worst = 0, worst_lse = 0;

	for (uint32_t i = first; i < first + n; i++)
		worst = worse(worst, query_error(w, i, answer, &worst_lse));
	*ret_lse = worst_lse;
	return worst;
}
