/*
 * workload.c - pages, slices and random KV for a specification's tree, appended by the backend
 * itself; and the same values again for who checks an answer.
 */
#include "workload.h"
#include "../unit/oracle.h"
#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TABLE 65536u
#define PERIOD ((size_t)32000003) /* values; a prime, so that no page repeats another's rows */
#define PAGE_BYTES 4096u
#define SAMPLE_HEADS 4u
#define SAMPLE_ROWS (WORKLOAD_SAMPLES / SAMPLE_HEADS)
/* That a head's rows see together: a second of float64, at most. */
#define SAMPLE_TOKENS (UINT64_C(1) << 20)
#define GROUP_VALUES (WORK_HEADS_MAX * 256u) /* of the query heads of a KV head, at most */

int workload_spec_levels(struct workload_spec *spec, const uint32_t *nodes, const uint32_t *tokens,
			 uint32_t n_levels)
{
	uint32_t n = 0, above = 0;

	for (uint32_t level = 0; level < n_levels; level++)
		n += nodes[level];
	spec->parents = calloc(n, sizeof(*spec->parents));
	spec->tokens = calloc(n, sizeof(*spec->tokens));
	if (!spec->parents || !spec->tokens)
		return -ENOMEM;
	spec->n_new = 1;
	for (uint32_t level = 0; level < n_levels; level++) {
		uint32_t first = spec->n_nodes;

		for (uint32_t i = 0; i < nodes[level]; i++) {
			uint32_t parent =
				level ? above + (uint32_t)((uint64_t)i * nodes[level - 1] /
							   nodes[level])
				      : WORK_NONE;

			spec->parents[spec->n_nodes] = parent;
			spec->tokens[spec->n_nodes++] = tokens[level];
		}
		above = first;
	}
	return 0;
}

void workload_spec_done(struct workload_spec *spec)
{
	free(spec->parents);
	free(spec->tokens);
	spec->parents = spec->tokens = NULL;
}

/* ---- the tree ------------------------------------------------------------------------------- */

static uint32_t pages_of(const struct workload_spec *spec, uint32_t pos, uint32_t n_tokens)
{
	uint32_t page = spec->shape.page_tokens;

	return n_tokens ? (pos + n_tokens - 1) / page - pos / page + 1 : 0;
}

/* An upper bound where nodes begin anywhere in a page. */
static uint32_t count_pages(const struct workload_spec *spec)
{
	uint32_t pages = 0;

	for (uint32_t i = 0; i < spec->n_nodes; i++)
		pages += pages_of(spec, spec->shape.page_tokens - 1, spec->tokens[i]);
	return pages;
}

uint64_t workload_pool_bytes(const struct workload_spec *spec, uint64_t page_bytes,
			     uint64_t extent_bytes)
{
	uint64_t per_extent = extent_bytes / page_bytes;

	return ceil_div_u64(count_pages(spec), per_extent) * extent_bytes;
}

static void give_pages(struct workload *w, struct work_node *node)
{
	uint32_t pos = node->pos, end = pos + node->n_tokens;

	node->slice = w->tree.n_slices;
	while (pos < end) {
		uint32_t first = pos % w->shape.page_tokens, room = w->shape.page_tokens - first;
		uint32_t count = room < end - pos ? room : end - pos;

		w->slices[w->tree.n_slices++] =
			(struct work_slice){w->n_pages++, (uint16_t)first, (uint16_t)count};
		pos += count;
	}
	node->n_slices = w->tree.n_slices - node->slice;
	w->tokens += node->n_tokens;
}

static void make_node(struct workload *w, const struct workload_spec *spec, uint32_t i)
{
	struct work_node *node = &w->nodes[i];

	*node = (struct work_node){.parent = spec->parents[i], .n_tokens = spec->tokens[i]};
	if (node->parent != WORK_NONE)
		node->pos = w->nodes[node->parent].pos + w->nodes[node->parent].n_tokens;
	give_pages(w, node);
}

/* Tokens that row i sees of the rows before it and itself. */
static uint32_t rows_seen(const struct workload *w, uint32_t i)
{
	uint32_t n = 0;

	if (!w->draft_parents)
		return i + 1;
	for (; i != WORK_NONE; i = w->draft_parents[i])
		n++;
	return n;
}

static void make_query(struct workload *w, const struct workload_spec *spec, uint32_t leaf)
{
	bool last = leaf == spec->n_nodes - 1 && spec->last_new > 0;
	uint32_t n_new = last ? spec->last_new : spec->n_new;
	uint32_t pos = w->nodes[leaf].pos + w->nodes[leaf].n_tokens - n_new;

	w->queries[w->tree.n_queries++] = (struct work_query){.node = leaf,
							      .pos = pos,
							      .n_rows = n_new,
							      .parents = w->draft_parents};
	w->n_rows += n_new;
	for (uint32_t i = 0; i < n_new; i++)
		w->path_tokens += pos + rows_seen(w, i);
}

static uint32_t count_leaves(const struct workload_spec *spec, bool *ret_inner)
{
	uint32_t n = spec->n_nodes;

	for (uint32_t i = 0; i < spec->n_nodes; i++) {
		uint32_t parent = spec->parents[i];

		if (parent != WORK_NONE && !ret_inner[parent]) {
			ret_inner[parent] = true;
			n--;
		}
	}
	return n;
}

static void make_tree(struct workload *w, const struct workload_spec *spec, const bool *inner)
{
	struct oracle_random random = {11};

	for (uint32_t i = 0; w->draft_parents && i < spec->n_new; i++) {
		uint32_t back = oracle_below(&random, i < 16 ? i + 1 : 16);

		w->draft_parents[i] = i ? i - 1 - (back < i ? back : 0) : WORK_NONE;
	}
	for (uint32_t i = 0; i < spec->n_nodes; i++) {
		make_node(w, spec, i);
		w->tree.n_nodes++;
		if (!inner[i])
			make_query(w, spec, i);
	}
}

/* From a table of normal values in the dtype. */
static int fill(enum work_dtype dtype, char *at, size_t n, uint64_t seed)
{
	struct oracle_random random = {seed};
	size_t bytes = work_dtype_bytes(dtype);
	float *table = malloc(TABLE * sizeof(*table));
	char *encoded = malloc(TABLE * bytes);
	uint64_t x = seed;

	for (size_t i = 0; table && i < TABLE; i++)
		table[i] = oracle_normal(&random);
	if (table && encoded)
		oracle_encode(dtype, encoded, table, TABLE);
	for (size_t i = 0; table && encoded && i < n && i < PERIOD; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		memcpy(at + i * bytes, encoded + (x >> 48) * bytes, bytes);
	}
	/* drawing each of billions would take longer than all else: what is there repeats */
	for (size_t i = PERIOD; i < n; i += PERIOD)
		memcpy(at + i * bytes, at, (n - i < PERIOD ? n - i : PERIOD) * bytes);
	free(table);
	free(encoded);
	return table && encoded ? 0 : -ENOMEM;
}

static size_t kv_bytes(const struct work_shape *shape)
{
	return (size_t)shape->n_kv_heads * shape->head_dim * work_dtype_bytes(shape->dtype);
}

static size_t q_bytes(const struct work_shape *shape)
{
	return (size_t)shape->n_q_heads * shape->head_dim * work_dtype_bytes(shape->dtype);
}

/* A batch to its end. */
static int run(struct workload *w, const struct backend_batch *batch)
{
	uint64_t id = 0, done = 0;
	int r = w->ops->submit(w->backend, batch, &id);

	while (!r && done < id)
		r = w->ops->completed(w->backend, &done);
	return r;
}

static int append(struct workload *w)
{
	size_t bytes = kv_bytes(&w->shape);
	struct work_slice *slots = calloc(w->n_pages, sizeof(*slots));
	struct work_query query = {.n_rows = w->n_pages * w->shape.page_tokens};
	struct work_tree tree = {.queries = &query, .n_queries = 1};
	struct work_list list = {0};
	struct backend_io io = {.k = w->arenas[0].base,
				.v = w->arenas[0].base + bytes,
				.k_stride = bytes * 2,
				.v_stride = bytes * 2,
				.slots = slots,
				.n_slots = w->n_pages};
	struct backend_job job = {.shape = &w->shape, .tree = &tree, .list = &list, .io = &io};
	struct backend_batch batch = {&job, 1};
	int r = -ENOMEM;

	for (uint32_t i = 0; slots && i < w->n_pages; i++)
		slots[i] = (struct work_slice){i, 0, (uint16_t)w->shape.page_tokens};
	for (uint32_t i = 0; slots && i < w->shape.n_layers && (i == 0 || !r); i++) {
		job.layer = i;
		r = run(w, &batch);
	}
	free(slots);
	return r;
}

static int attach(struct workload *w, struct workload_arena *arena, size_t bytes, char **ret)
{
	void *at;
	int r;

	arena->bytes = (bytes + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
	if (posix_memalign(&at, PAGE_BYTES, arena->bytes) != 0)
		return -ENOMEM;
	arena->host = at;
	r = w->ops->arena_attach(w->backend, at, arena->bytes, &arena->base);
	if (r)
		arena->base = 0;
	*ret = at;
	return r;
}

static int alloc_tree(struct workload *w, const struct workload_spec *spec, uint32_t n_queries)
{
	w->nodes = calloc(spec->n_nodes, sizeof(*w->nodes));
	w->slices = calloc(count_pages(spec), sizeof(*w->slices));
	w->queries = calloc(n_queries, sizeof(*w->queries));
	w->io = calloc(n_queries, sizeof(*w->io));
	w->grown = calloc(n_queries, sizeof(*w->grown));
	if (spec->drafts)
		w->draft_parents = calloc(spec->n_new, sizeof(*w->draft_parents));
	w->tree = (struct work_tree){.nodes = w->nodes, .slices = w->slices, .queries = w->queries};
	return w->nodes && w->slices && w->queries && w->io && w->grown &&
			       (!spec->drafts || w->draft_parents)
		       ? 0
		       : -ENOMEM;
}

static int init_tree(struct workload *w, const struct workload_spec *spec)
{
	bool *inner = calloc(spec->n_nodes, sizeof(*inner));
	int r = inner ? alloc_tree(w, spec, count_leaves(spec, inner)) : -ENOMEM;

	if (!r)
		make_tree(w, spec, inner);
	free(inner);
	return r;
}

static int init_arenas(struct workload *w)
{
	size_t bytes = q_bytes(&w->shape), values = bytes / work_dtype_bytes(w->shape.dtype);
	size_t kv_values = (size_t)w->n_pages * w->shape.page_tokens * w->shape.n_kv_heads * 2 *
			   w->shape.head_dim;

	if (attach(w, &w->arenas[0], kv_values * work_dtype_bytes(w->shape.dtype), &w->kv) != 0 ||
	    attach(w, &w->arenas[1], w->n_rows * bytes, &w->q) != 0 ||
	    attach(w, &w->arenas[2], w->n_rows * bytes, &w->o) != 0 ||
	    fill(w->shape.dtype, w->q, w->n_rows * values, 3) != 0 ||
	    fill(w->shape.dtype, w->kv, kv_values, 5) != 0)
		return -ENOMEM;
	memset(w->o, 0, w->n_rows * bytes);
	return 0;
}

int workload_init_tree(struct workload *w, const struct workload_spec *spec)
{
	*w = (struct workload){.shape = spec->shape};
	return init_tree(w, spec);
}

int workload_init(struct workload *w, const struct workload_spec *spec,
		  const struct backend_ops *ops, struct backend *backend)
{
	size_t bytes = q_bytes(&spec->shape), at = 0;
	int r;

	*w = (struct workload){.ops = ops, .backend = backend, .shape = spec->shape};
	r = init_tree(w, spec);
	if (!r)
		r = init_arenas(w);
	for (uint32_t i = 0; i < w->tree.n_queries && !r; i++) {
		w->io[i] = (struct backend_io){.q = w->arenas[1].base + at,
					       .o = w->arenas[2].base + at,
					       .q_stride = bytes,
					       .o_stride = bytes};
		at += w->queries[i].n_rows * bytes;
	}
	return r ? r : append(w);
}

void workload_done(struct workload *w)
{
	free(w->nodes);
	free(w->slices);
	free(w->queries);
	free(w->draft_parents);
	free(w->io);
	free(w->grown);
	for (uint32_t i = 0; i < w->n_samples; i++)
		free(w->samples[i].want);
	for (uint32_t i = 0; i < 3; i++) {
		if (w->arenas[i].base)
			w->ops->arena_detach(w->backend, w->arenas[i].base, w->arenas[i].bytes);
		free(w->arenas[i].host);
	}
	*w = (struct workload){0};
}

/* The values of one KV head, as a model of that head alone. */
static int take_head(const struct workload *w, uint32_t head, struct oracle_kv *kv)
{
	size_t dim = w->shape.head_dim, bytes = kv_bytes(&w->shape);
	size_t at = head * dim * work_dtype_bytes(w->shape.dtype);

	for (size_t row = 0; row < (size_t)w->n_pages * w->shape.page_tokens; row++) {
		oracle_decode(w->shape.dtype, kv->k + row * dim, w->kv + row * bytes * 2 + at, dim);
		oracle_decode(w->shape.dtype, kv->v + row * dim,
			      w->kv + row * bytes * 2 + bytes + at, dim);
	}
	return 0;
}

/* ---- a step later --------------------------------------------------------------------------- */

static void lengthen(struct workload *w, uint32_t query, int by)
{
	struct work_node *node = &w->nodes[w->queries[query].node];
	struct work_slice *last = &w->slices[node->slice + node->n_slices - 1];

	last->count = (uint16_t)(last->count + by);
	node->n_tokens += (uint32_t)by;
	w->queries[query].pos += (uint32_t)by;
}

/* The rows of a page that no node has were filled with the others. */
void workload_grow(struct workload *w)
{
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		const struct work_node *node = &w->nodes[w->queries[i].node];

		w->grown[i] = w->queries[i].n_rows == 1 &&
			      (node->pos + node->n_tokens) % w->shape.page_tokens != 0;
		if (w->grown[i])
			lengthen(w, i, 1);
	}
}

void workload_shrink(struct workload *w)
{
	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		if (w->grown[i])
			lengthen(w, i, -1);
		w->grown[i] = false;
	}
}

/* ---- what is right -------------------------------------------------------------------------- */

/* Bytes of the first value of a sample's row in Q and O. */
static size_t sample_at(const struct workload *w, const struct workload_sample *s)
{
	uint32_t row = s->token, group = w->shape.n_q_heads / w->shape.n_kv_heads;

	for (uint32_t i = 0; i < s->query; i++)
		row += w->queries[i].n_rows;
	return row * q_bytes(&w->shape) +
	       (size_t)s->head * group * w->shape.head_dim * work_dtype_bytes(w->shape.dtype);
}

static int sample_make(const struct workload *w, const struct oracle_kv *kv,
		       struct workload_sample *s)
{
	size_t n = (size_t)kv->shape->n_q_heads * kv->shape->head_dim;
	float q[GROUP_VALUES];
	double lse[16];

	s->want = calloc(n, sizeof(*s->want));
	if (!s->want)
		return -ENOMEM;
	oracle_decode(w->shape.dtype, q, w->q + sample_at(w, s), n);
	oracle_row(kv, &w->tree, s->query, s->token, q, s->want, lse);
	return 0;
}

/* The i-th of n, spread evenly from the first to the last of so many. */
static uint32_t spread(uint32_t i, uint32_t n, uint32_t of)
{
	return n > 1 ? (uint32_t)((uint64_t)i * (of - 1) / (n - 1)) : 0;
}

/* At least the first, one between and the last. */
static uint32_t n_samples_of_head(const struct workload *w)
{
	uint64_t n = SAMPLE_TOKENS * w->n_rows / w->path_tokens;

	n = n < 3 ? 3 : n > SAMPLE_ROWS ? SAMPLE_ROWS : n;
	return n < w->n_rows ? (uint32_t)n : w->n_rows;
}

/* Whose row of all queries' that is, and which. */
static void find_row(const struct workload *w, uint32_t row, struct workload_sample *s)
{
	s->query = 0;
	for (; row >= w->queries[s->query].n_rows; s->query++)
		row -= w->queries[s->query].n_rows;
	s->token = row;
}

/* Of all queries' rows, spread evenly. */
static int samples_of_head(struct workload *w, struct oracle_kv *kv, uint32_t head)
{
	uint32_t n = n_samples_of_head(w);
	int r = take_head(w, head, kv);

	for (uint32_t i = 0; i < n && !r; i++) {
		struct workload_sample *s = &w->samples[w->n_samples];

		find_row(w, spread(i, n, w->n_rows), s);
		s->head = head;
		r = sample_make(w, kv, s);
		if (!r)
			w->n_samples++;
	}
	return r;
}

static int samples_init(struct workload *w)
{
	uint32_t n_heads = w->shape.n_kv_heads < SAMPLE_HEADS ? w->shape.n_kv_heads : SAMPLE_HEADS;
	struct work_shape one = w->shape;
	struct oracle_kv kv;
	int r;

	one.n_q_heads /= one.n_kv_heads;
	one.n_kv_heads = 1;
	r = oracle_kv_init(&kv, &one, w->n_pages);
	for (uint32_t i = 0; i < n_heads && !r; i++)
		r = samples_of_head(w, &kv, spread(i, n_heads, w->shape.n_kv_heads));
	oracle_kv_done(&kv);
	return r;
}

double workload_error(struct workload *w)
{
	size_t n = (size_t)w->shape.n_q_heads / w->shape.n_kv_heads * w->shape.head_dim;
	double off = 0, norm = 0;
	float o[GROUP_VALUES];

	if (!w->n_samples && samples_init(w) != 0)
		return NAN;
	for (uint32_t i = 0; i < w->n_samples; i++) {
		const struct workload_sample *s = &w->samples[i];

		oracle_decode(w->shape.dtype, o, w->o + sample_at(w, s), n);
		for (size_t j = 0; j < n; j++) {
			off += (s->want[j] - o[j]) * (s->want[j] - o[j]);
			norm += s->want[j] * s->want[j];
		}
	}
	return sqrt(off / norm);
}

uint64_t workload_bytes(const struct workload *w)
{
	return w->tokens * kv_bytes(&w->shape) * 2 + w->n_rows * q_bytes(&w->shape) * 2;
}

double workload_flops(const struct workload *w)
{
	return 4.0 * w->shape.head_dim * w->shape.n_q_heads * (double)w->path_tokens;
}
