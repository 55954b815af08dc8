/*
 * sparse_path.c - see sparse_path.h. One layer of dim 128 in bf16. Keys of every seventh block of
 * 128 lean towards the queries, so that there is something to choose; after PERIOD tokens the same
 * come again, at other positions.
 */
#include "sparse_path.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_AGENT)
#include "tests/unit/oracle.h"

#include <err.h>
#include <stdlib.h>

#define EXTENT_BYTES (UINT64_C(32) << 20)
#define LEAN_BLOCK 128u
#define LEAN_EACH 7u
#define PERIOD (4 * LEAN_EACH * LEAN_BLOCK)

uint64_t sparse_q_row_bytes(const struct sparse_path *p)
{
	return (uint64_t)p->shape.n_q_heads * p->shape.head_dim * 2;
}

static uint64_t k_row_bytes(const struct sparse_path *p)
{
	return (uint64_t)p->shape.n_kv_heads * p->shape.head_dim * 2;
}

/* Memory that the backend reaches, with a copy of host memory (which is its own from here on) if
 * there is any. */
static uint64_t place(const struct sparse_path *p, void *from, uint64_t bytes)
{
	uint64_t at = (uintptr_t)from;

	if (!p->card) {
		at = at ? at : (uintptr_t)malloc(bytes);
		if (!at)
			errx(1, "out of memory");
		return at;
	}
	if (p->card->arena_new(p->backend, bytes, &at) != 0 ||
	    (from && p->card->arena_copy(p->backend, (void *)(uintptr_t)at, from, bytes) != 0))
		errx(1, "no memory on the device");
	free(from);
	return at;
}

static void displace(const struct sparse_path *p, uint64_t at)
{
	if (p->card)
		p->card->arena_free(p->backend, at);
	else
		free((void *)(uintptr_t)at);
}

static uint64_t make_values(const struct sparse_path *p, struct oracle_random *random,
			    uint32_t n_tokens, uint32_t n_heads, uint32_t lean_blocks, float lean)
{
	size_t n = (size_t)n_heads * p->shape.head_dim;
	float *token = malloc(n * sizeof(*token));
	char *values = malloc(n_tokens * n * 2);

	if (!token || !values)
		errx(1, "out of memory");
	for (uint32_t t = 0; t < n_tokens; t++) {
		float more = t / LEAN_BLOCK % lean_blocks == 0 ? lean : 0;
		for (size_t i = 0; i < n; i++)
			token[i] = oracle_normal(random) + more;
		oracle_encode(p->shape.dtype, values + t * n * 2, token, n);
	}
	free(token);
	return place(p, values, n_tokens * n * 2);
}

void sparse_run(struct sparse_path *p, const struct backend_job *jobs, uint32_t n_jobs)
{
	uint64_t id = 0, done = 0;

	if (p->ops->submit(p->backend, &(struct backend_batch){jobs, n_jobs}, &id) != 0)
		errx(1, "the backend does not take a batch");
	while (done < id)
		if (p->ops->completed(p->backend, &done) != 0)
			errx(1, "the backend has failed");
}

/* Tokens [from, from + n), a period at most. */
static void append_some(struct sparse_path *p, uint32_t from, uint32_t n)
{
	struct backend_io io = {.k = p->k,
				.v = p->v,
				.k_stride = k_row_bytes(p),
				.v_stride = k_row_bytes(p),
				.slots = p->slices + from / p->shape.page_tokens,
				.n_slots = n / p->shape.page_tokens};
	struct work_query some = {.pos = from, .n_rows = n};
	struct work_list list = {0};
	struct backend_job job = {.shape = &p->shape, .tree = &p->tree, .list = &list, .io = &io};

	p->tree.queries = &some;
	if (plan_make(&p->plan, &p->tree, &list) != 0)
		errx(1, "no plan");
	sparse_run(p, &job, 1);
	plan_list_done(&list);
}

static void open_backend(struct sparse_path *p, uint32_t n_pages)
{
	uint64_t page_bytes = (uint64_t)p->shape.page_tokens * k_row_bytes(p) * 2;
	uint32_t n_extents = (uint32_t)(n_pages / (EXTENT_BYTES / page_bytes)) + 1;
	struct backend_config config = {.pool_bytes = n_extents * EXTENT_BYTES,
					.extent_bytes = EXTENT_BYTES};
	char error[400] = "";

	if (p->ops->open(&config, &p->backend, error, sizeof(error)) != 0)
		errx(1, "%s", error);
	for (uint32_t i = 0; i < n_extents; i++)
		if (p->ops->extent_commit(p->backend, i) != 0)
			errx(1, "no memory for the pool");
}

static void fill_path(struct sparse_path *p, const struct sparse_options *o)
{
	struct oracle_random random = {88172645463325252u};

	p->q = make_values(p, &random, o->n_queries, p->shape.n_q_heads, 1, 0.5f);
	p->k = make_values(p, &random, PERIOD, p->shape.n_kv_heads, LEAN_EACH, 1);
	p->v = make_values(p, &random, PERIOD, p->shape.n_kv_heads, 1, 0);
	p->o = place(p, NULL, o->n_queries * sparse_q_row_bytes(p));
	for (uint32_t at = 0; at < o->n_tokens; at += PERIOD)
		append_some(p, at, o->n_tokens - at < PERIOD ? o->n_tokens - at : PERIOD);
}

void sparse_path_open(struct sparse_path *p, const struct sparse_options *o,
		      const struct card *card)
{
	*p = (struct sparse_path){.ops = card ? card->ops : &backend_cpu,
				  .card = card,
				  .shape = {.n_layers = 1,
					    .n_q_heads = o->n_q_heads,
					    .n_kv_heads = o->n_kv_heads,
					    .head_dim = 128,
					    .page_tokens = 32,
					    .dtype = WORK_BF16,
					    .scale = 0.08838834764831845f},
				  .n_tokens = o->n_tokens};
	p->n_slices = o->n_tokens / p->shape.page_tokens;
	open_backend(p, p->n_slices);
	p->slices = calloc(p->n_slices, sizeof(*p->slices));
	if (!p->slices)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < p->n_slices; i++)
		p->slices[i] = (struct work_slice){i, 0, (uint16_t)p->shape.page_tokens};
	p->node = (struct work_node){.parent = WORK_NONE,
				     .n_tokens = o->n_tokens,
				     .n_slices = p->n_slices};
	p->tree = (struct work_tree){.nodes = &p->node,
				     .slices = p->slices,
				     .n_nodes = 1,
				     .n_slices = p->n_slices,
				     .n_queries = 1};
	plan_config_init(&p->plan, PLAN_AUTO, &p->shape, 1);
	p->plan.tile_rows = p->ops->tile_rows(p->backend, &p->shape);
	fill_path(p, o);
}

void sparse_path_close(struct sparse_path *p)
{
	displace(p, p->q);
	displace(p, p->k);
	displace(p, p->v);
	displace(p, p->o);
	p->ops->close(p->backend);
	free(p->slices);
}
#endif
