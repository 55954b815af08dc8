/* workload.c - see workload.h. */
#include "workload.h"
#include "../unit/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TABLE 65536u
#define PERIOD ((size_t)32000003) /* values; a prime, so that no page repeats another's rows */
#define PAGE_BYTES 4096u
#define SAMPLE_QUERIES 3u
#define SAMPLE_HEADS 2u

static uint32_t pages_of(const struct workload_spec *spec, uint32_t pos, uint32_t n_tokens)
{
	uint32_t page = spec->shape.page_tokens;

	return n_tokens ? (pos + n_tokens - 1) / page - pos / page + 1 : 0;
}

static uint32_t count_pages(const struct workload_spec *spec, uint32_t *ret_nodes)
{
	uint32_t pos = 0, pages = 0;

	*ret_nodes = 0;
	for (uint32_t i = 0; i < spec->n_levels; i++) {
		pages += spec->nodes[i] * pages_of(spec, pos, spec->tokens[i]);
		pos += spec->tokens[i];
		*ret_nodes += spec->nodes[i];
	}
	return pages;
}

uint64_t workload_pool_bytes(const struct workload_spec *spec, uint64_t page_bytes,
			     uint64_t extent_bytes)
{
	uint32_t nodes, pages = count_pages(spec, &nodes);
	uint64_t per_extent = extent_bytes / page_bytes;

	return (pages + per_extent - 1) / per_extent * extent_bytes;
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

static void make_level(struct workload *w, const struct workload_spec *spec, uint32_t level,
		       uint32_t above)
{
	for (uint32_t i = 0; i < spec->nodes[level]; i++) {
		struct work_node *node = &w->nodes[w->tree.n_nodes++];

		*node = (struct work_node){.parent = WORK_NONE, .n_tokens = spec->tokens[level]};
		if (level > 0) {
			node->parent = above + (uint32_t)((uint64_t)i * spec->nodes[level - 1] /
							  spec->nodes[level]);
			node->pos = w->nodes[node->parent].pos + w->nodes[node->parent].n_tokens;
		}
		give_pages(w, node);
	}
}

static void make_tree(struct workload *w, const struct workload_spec *spec)
{
	uint32_t above = 0;

	for (uint32_t level = 0; level < spec->n_levels; level++) {
		uint32_t first = w->tree.n_nodes;

		make_level(w, spec, level, above);
		above = first;
	}
	for (uint32_t node = above; node < w->tree.n_nodes; node++) {
		uint32_t end = w->nodes[node].pos + w->nodes[node].n_tokens;

		w->queries[w->tree.n_queries++] =
			(struct work_query){.node = node, .pos = end - 1, .n_rows = 1};
		w->path_tokens += end;
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
	if (slots)
		r = run(w, &batch);
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

static int alloc(struct workload *w, const struct workload_spec *spec)
{
	uint32_t n_nodes, n_pages = count_pages(spec, &n_nodes);
	uint32_t n_queries = spec->nodes[spec->n_levels - 1];

	w->nodes = calloc(n_nodes, sizeof(*w->nodes));
	w->slices = calloc(n_pages, sizeof(*w->slices));
	w->queries = calloc(n_queries, sizeof(*w->queries));
	w->io = calloc(n_queries, sizeof(*w->io));
	if (!w->nodes || !w->slices || !w->queries || !w->io ||
	    attach(w, &w->arenas[0],
		   (size_t)n_pages * w->shape.page_tokens * kv_bytes(&w->shape) * 2, &w->kv) != 0 ||
	    attach(w, &w->arenas[1], n_queries * q_bytes(&w->shape), &w->q) != 0 ||
	    attach(w, &w->arenas[2], n_queries * q_bytes(&w->shape), &w->o) != 0)
		return -ENOMEM;
	memset(w->o, 0, n_queries * q_bytes(&w->shape));
	w->tree = (struct work_tree){.nodes = w->nodes, .slices = w->slices, .queries = w->queries};
	return 0;
}

int workload_init(struct workload *w, const struct workload_spec *spec,
		  const struct backend_ops *ops, struct backend *backend)
{
	size_t bytes = q_bytes(&spec->shape);
	int r;

	*w = (struct workload){.ops = ops, .backend = backend, .shape = spec->shape};
	r = alloc(w, spec);
	if (r)
		return r;
	make_tree(w, spec);
	if (fill(w->shape.dtype, w->q, w->tree.n_queries * bytes / work_dtype_bytes(w->shape.dtype),
		 3) != 0 ||
	    fill(w->shape.dtype, w->kv,
		 (size_t)w->n_pages * w->shape.page_tokens * w->shape.n_kv_heads * 2 *
			 w->shape.head_dim,
		 5) != 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->tree.n_queries; i++)
		w->io[i] = (struct backend_io){.q = w->arenas[1].base + i * bytes,
					       .o = w->arenas[2].base + i * bytes,
					       .q_stride = bytes,
					       .o_stride = bytes};
	return append(w);
}

void workload_done(struct workload *w)
{
	free(w->nodes);
	free(w->slices);
	free(w->queries);
	free(w->io);
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

static void add_sample(const struct workload *w, const struct oracle_kv *kv, uint32_t query,
		       uint32_t head, double *off, double *norm)
{
	uint32_t group = kv->shape->n_q_heads, dim = kv->shape->head_dim;
	size_t at = query * q_bytes(&w->shape) +
		    (size_t)head * group * dim * work_dtype_bytes(w->shape.dtype);
	float q[16 * 256], o[16 * 256];
	double want[16 * 256], lse[16];

	oracle_decode(w->shape.dtype, q, w->q + at, (size_t)group * dim);
	oracle_decode(w->shape.dtype, o, w->o + at, (size_t)group * dim);
	oracle_row(kv, &w->tree, query, 0, q, want, lse);
	for (uint32_t i = 0; i < group * dim; i++) {
		*off += (want[i] - o[i]) * (want[i] - o[i]);
		*norm += want[i] * want[i];
	}
}

double workload_error(const struct workload *w)
{
	struct work_shape one = w->shape;
	struct oracle_kv kv;
	double off = 0, norm = 0;

	one.n_q_heads /= one.n_kv_heads;
	one.n_kv_heads = 1;
	if (oracle_kv_init(&kv, &one, w->n_pages) != 0) {
		oracle_kv_done(&kv);
		return NAN;
	}
	for (uint32_t i = 0; i < SAMPLE_HEADS; i++) {
		uint32_t head = i * (w->shape.n_kv_heads - 1);

		take_head(w, head, &kv);
		for (uint32_t j = 0; j < SAMPLE_QUERIES; j++)
			add_sample(w, &kv, j * (w->tree.n_queries - 1) / (SAMPLE_QUERIES - 1), head,
				   &off, &norm);
	}
	oracle_kv_done(&kv);
	return sqrt(off / norm);
}
