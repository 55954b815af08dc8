/*
 * sparse.c - coppice-bench sparse: what an estimate costs by length, stride and block; a chunk's prefill with chosen blocks
 * beside exact prefill; the small model's loss.
 *
 * One layer, 8/2 heads of dim 128 in bf16. Keys of every seventh block of 128 lean towards the queries, so that there is something to choose.
 */
#include "sparse.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_AGENT)
#include "bench.h"

#include "kernels/backend.h"
#include "kernels/cpu/estimate.h"
#include "kernels/plan/select.h"
#include "tests/unit/oracle.h"

#include <argp.h>
#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT_BYTES (UINT64_C(2) << 20)
#define LEAN_BLOCK 128u

static const struct work_shape SHAPE = {.n_layers = 1,
					.n_q_heads = 8,
					.n_kv_heads = 2,
					.head_dim = 128,
					.page_tokens = 32,
					.dtype = WORK_BF16,
					.scale = 0.08838834764831845f};

static const struct argp_option options[] = {
	{"tokens", 't', "N", 0, "Of the path (default 16384)", 0},
	{"queries", 'q', "N", 0, "Of the chunk at its end (default 512)", 0},
	{"windows", 'w', "N", 0, "Of the model's held-out text (default 4; 0: none)", 0},
	{"stride", 's', "N", 0, "Of the model's table (default 8)", 0},
	{"block", 'b', "N", 0, "Of the model's table, in tokens (default 128)", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct sparse_options *o = state->input;

	if (key == 't')
		o->n_tokens = (uint32_t)strtoul(arg, NULL, 10);
	else if (key == 'q')
		o->n_queries = (uint32_t)strtoul(arg, NULL, 10);
	else if (key == 'w')
		o->n_windows = (uint32_t)strtoul(arg, NULL, 10);
	else if (key == 's')
		o->stride = (uint32_t)strtoul(arg, NULL, 10);
	else if (key == 'b')
		o->block_tokens = (uint32_t)strtoul(arg, NULL, 10);
	else if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = NULL;
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

/* ---- a path in pages ---------------------------------------------------------------------------------------------- */

struct path {
	struct backend *backend; /* owned */
	uint32_t n_tokens;
	struct work_slice *slices; /* owned */
	uint32_t n_slices;
	void *q, *k, *v, *o; /* owned: q and o of the chunk */
	struct work_node node;
	struct work_tree tree;
	struct plan_config plan;
};

static void *make_values(struct oracle_random *random, uint32_t n_tokens, uint32_t n_heads,
			 uint32_t lean_blocks, float lean)
{
	size_t n = (size_t)n_heads * SHAPE.head_dim;
	float *token = malloc(n * sizeof(*token));
	char *values = malloc(n_tokens * n * 2);

	if (!token || !values)
		errx(1, "out of memory");
	for (uint32_t t = 0; t < n_tokens; t++) {
		float more = t / LEAN_BLOCK % lean_blocks == 0 ? lean : 0;
		for (size_t i = 0; i < n; i++)
			token[i] = oracle_normal(random) + more;
		oracle_encode(SHAPE.dtype, values + t * n * 2, token, n);
	}
	free(token);
	return values;
}

static void run(struct path *p, const struct backend_job *jobs, uint32_t n_jobs)
{
	uint64_t id = 0, done = 0;

	if (backend_cpu.submit(p->backend, &(struct backend_batch){jobs, n_jobs}, &id) != 0)
		errx(1, "the backend does not take a batch");
	while (done < id)
		if (backend_cpu.completed(p->backend, &done) != 0)
			errx(1, "the backend has failed");
}

static void append_all(struct path *p, const struct sparse_options *o)
{
	uint64_t row_bytes = (uint64_t)SHAPE.n_kv_heads * SHAPE.head_dim * 2;
	struct backend_io io = {.k = (uintptr_t)p->k,
				.v = (uintptr_t)p->v,
				.k_stride = row_bytes,
				.v_stride = row_bytes,
				.slots = p->slices,
				.n_slots = p->n_slices};
	struct work_query all = {.n_rows = o->n_tokens};
	struct work_list list = {0};
	struct backend_job job = {.shape = &SHAPE, .tree = &p->tree, .list = &list, .io = &io};

	p->tree.queries = &all;
	if (plan_make(&p->plan, &p->tree, &list) != 0)
		errx(1, "no plan");
	run(p, &job, 1);
	plan_list_done(&list);
}

static void path_open(struct path *p, const struct sparse_options *o)
{
	uint64_t page_bytes = (uint64_t)SHAPE.page_tokens * SHAPE.n_kv_heads * SHAPE.head_dim * 4;
	uint32_t n_pages = o->n_tokens / SHAPE.page_tokens;
	uint32_t n_extents = (uint32_t)(n_pages * page_bytes / EXTENT_BYTES) + 1;
	struct backend_config config = {.pool_bytes = n_extents * EXTENT_BYTES,
					.extent_bytes = EXTENT_BYTES};
	struct oracle_random random = {88172645463325252u};
	char error[400] = "";

	*p = (struct path){.n_tokens = o->n_tokens, .n_slices = n_pages};
	if (backend_cpu.open(&config, &p->backend, error, sizeof(error)) != 0)
		errx(1, "%s", error);
	for (uint32_t i = 0; i < n_extents; i++)
		if (backend_cpu.extent_commit(p->backend, i) != 0)
			errx(1, "no memory for the pool");
	p->slices = calloc(n_pages, sizeof(*p->slices));
	p->o = malloc((size_t)o->n_queries * SHAPE.n_q_heads * SHAPE.head_dim * 2);
	if (!p->slices || !p->o)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n_pages; i++)
		p->slices[i] = (struct work_slice){i, 0, (uint16_t)SHAPE.page_tokens};
	p->q = make_values(&random, o->n_queries, SHAPE.n_q_heads, 1, 0.5f);
	p->k = make_values(&random, o->n_tokens, SHAPE.n_kv_heads, 7, 1);
	p->v = make_values(&random, o->n_tokens, SHAPE.n_kv_heads, 1, 0);
	p->node = (struct work_node){.parent = WORK_NONE,
				     .n_tokens = o->n_tokens,
				     .n_slices = n_pages};
	p->tree = (struct work_tree){.nodes = &p->node,
				     .slices = p->slices,
				     .n_nodes = 1,
				     .n_slices = n_pages,
				     .n_queries = 1};
	plan_config_init(&p->plan, PLAN_AUTO, &SHAPE, 1);
	p->plan.tile_rows = backend_cpu.tile_rows(p->backend, &SHAPE);
	append_all(p, o);
}

static void path_close(struct path *p)
{
	backend_cpu.close(p->backend);
	free(p->slices);
	free(p->q);
	free(p->k);
	free(p->v);
	free(p->o);
}

/* ---- estimates ------------------------------------------------------------------------------------------------------ */

static struct backend_estimate estimate_of(const struct path *p, const struct sparse_options *o,
					   uint32_t n_tokens, uint32_t stride, uint32_t block)
{
	return (struct backend_estimate){.shape = &SHAPE,
					 .slices = p->slices,
					 .n_slices = n_tokens / SHAPE.page_tokens,
					 .q = (uintptr_t)p->q,
					 .q_stride = (uint64_t)SHAPE.n_q_heads * SHAPE.head_dim * 2,
					 .n_q = o->n_queries,
					 .q_pos = n_tokens - o->n_queries,
					 .n_k = n_tokens,
					 .stride = stride,
					 .block_tokens = block};
}

static double estimate_ms(struct path *p, const struct backend_estimate *e, float *mass)
{
	double times[64];
	uint32_t n = bench_reps(3) < 64 ? bench_reps(3) : 64;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t start_ns = bench_now_ns();
		if (backend_cpu.estimate(p->backend, e, mass) != 0)
			errx(1, "no estimate of %u tokens", e->n_k);
		times[i] = (double)(bench_now_ns() - start_ns) / 1e6;
	}
	return bench_median(times, n);
}

static void bench_estimates(struct path *p, const struct sparse_options *o, float *mass)
{
	static const uint32_t strides[] = {8, 16}, blocks[] = {128, 512, 1024, 4096};
	char name[64];

	for (uint32_t n = o->n_tokens / 4; n <= o->n_tokens; n *= 2)
		for (uint32_t s = 0; s < 2; s++)
			for (uint32_t b = 0; b < 4; b++) {
				struct backend_estimate e =
					estimate_of(p, o, n, strides[s], blocks[b]);
				snprintf(name, sizeof(name), "q%u_k%u_s%u_b%u", o->n_queries, n,
					 strides[s], blocks[b]);
				bench_print("sparse", name, "estimate", estimate_ms(p, &e, mass),
					    "ms");
			}
}

/* ---- prefill -------------------------------------------------------------------------------------------------------- */

/* A chunk being attended to. */
struct chunk {
	struct path *path;
	struct select_chunk of;
	struct work_query whole,
		*queries; /* owned, as the arrays below: of a block of queries each */
	struct backend_io io, *ios;
	struct select_query *chosen;
	uint64_t *kept;
	float *mass; /* borrowed */
};

static void chunk_init(struct chunk *c, struct path *p, const struct sparse_options *o, float *mass)
{
	uint64_t row_bytes = (uint64_t)SHAPE.n_q_heads * SHAPE.head_dim * 2;
	uint32_t pos = o->n_tokens - o->n_queries, n;

	*c = (struct chunk){.path = p, .mass = mass};
	c->of = (struct select_chunk){128, pos, o->n_queries, 0,
				      estimate_n_blocks(o->n_tokens, 128)};
	n = select_n_ranges(&c->of);
	c->whole = (struct work_query){.pos = pos, .n_rows = o->n_queries};
	c->io = (struct backend_io){.q = (uintptr_t)p->q,
				    .o = (uintptr_t)p->o,
				    .q_stride = row_bytes,
				    .o_stride = row_bytes};
	c->queries = calloc(n, sizeof(*c->queries));
	c->ios = calloc(n, sizeof(*c->ios));
	c->chosen = calloc(n, sizeof(*c->chosen));
	c->kept = calloc((size_t)n * select_n_words(c->of.n_blocks), sizeof(*c->kept));
	if (!c->queries || !c->ios || !c->chosen || !c->kept)
		errx(1, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		struct select_range range = select_range_at(&c->of, i);
		c->queries[i] =
			(struct work_query){0, pos + range.begin, range.end - range.begin, NULL};
		c->ios[i] = c->io;
		c->ios[i].q += range.begin * row_bytes;
		c->ios[i].o += range.begin * row_bytes;
		c->chosen[i] =
			(struct select_query){c->kept + (size_t)i * select_n_words(c->of.n_blocks),
					      c->of.n_blocks};
	}
}

static void chunk_done(struct chunk *c)
{
	free(c->queries);
	free(c->ios);
	free(c->chosen);
	free(c->kept);
}

static double exact_ms(struct chunk *c)
{
	uint64_t start_ns = bench_now_ns();
	struct work_list list = {0};
	struct backend_job job = {.shape = &SHAPE,
				  .tree = &c->path->tree,
				  .list = &list,
				  .io = &c->io};

	c->path->tree.queries = &c->whole;
	c->path->tree.n_queries = 1;
	if (plan_make(&c->path->plan, &c->path->tree, &list) != 0)
		errx(1, "no plan");
	run(c->path, &job, 1);
	plan_list_done(&list);
	return (double)(bench_now_ns() - start_ns) / 1e6;
}

static double sparse_ms(struct chunk *c, const struct sparse_options *o, double tau,
			struct select_shares *ret)
{
	struct select_config config = {.tau = tau, .sink_blocks = 1, .recent_blocks = 1};
	struct backend_estimate e = estimate_of(c->path, o, o->n_tokens, 8, 128);
	uint32_t n = select_n_ranges(&c->of);
	uint64_t start_ns = bench_now_ns();
	struct work_list list = {0};

	*ret = (struct select_shares){0};
	c->path->tree.queries = c->queries;
	c->path->tree.n_queries = n;
	if (backend_cpu.estimate(c->path->backend, &e, c->mass) != 0)
		errx(1, "no estimate");
	for (uint32_t head = 0; head < SHAPE.n_kv_heads; head++) {
		struct backend_job job = {.shape = &SHAPE,
					  .tree = &c->path->tree,
					  .list = &list,
					  .io = c->ios,
					  .head = head,
					  .n_heads = 1};
		if (select_chunk(&config, &c->of, c->mass + (size_t)head * n * c->of.n_blocks,
				 c->kept, ret) != 0 ||
		    select_plan(&c->path->plan, &c->path->tree, c->chosen, 128, &list) != 0)
			errx(1, "no plan of chosen blocks");
		run(c->path, &job, 1);
	}
	plan_list_done(&list);
	return (double)(bench_now_ns() - start_ns) / 1e6;
}

static void bench_prefill(struct path *p, const struct sparse_options *o, float *mass)
{
	static const double taus[] = {0.8, 0.9, 0.95, 0.99};
	struct select_shares shares;
	struct chunk c;
	char name[64];

	chunk_init(&c, p, o, mass);
	exact_ms(&c);
	snprintf(name, sizeof(name), "q%u_k%u", o->n_queries, o->n_tokens);
	bench_print("sparse", name, "exact", exact_ms(&c), "ms");
	for (uint32_t i = 0; i < sizeof(taus) / sizeof(taus[0]); i++) {
		double ms = sparse_ms(&c, o, taus[i], &shares);
		snprintf(name, sizeof(name), "q%u_k%u_tau%g", o->n_queries, o->n_tokens, taus[i]);
		bench_print("sparse", name, "sparse", ms, "ms");
		bench_print("sparse", name, "attended", shares.attended / shares.visible, "of 1");
		bench_print("sparse", name, "mass", shares.kept_mass / shares.total_mass, "of 1");
	}
	chunk_done(&c);
}

int sparse_main(int argc, char **argv)
{
	static const struct argp_child children[] = {{&bench_common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {.options = options, .parser = parse, .children = children};
	struct sparse_options o = {.n_tokens = 16384,
				   .n_queries = 512,
				   .n_windows = 4,
				   .stride = 8,
				   .block_tokens = 128};
	struct path path;

	if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0)
		return 64;
	o.n_tokens -= o.n_tokens % 512;
	o.n_queries -= o.n_queries % 16;
	if (o.n_queries == 0 || o.n_queries > o.n_tokens / 4)
		errx(64, "a chunk has 16 queries at least, and a quarter of the path at most");
	path_open(&path, &o);
	float *mass = malloc((size_t)SHAPE.n_kv_heads * estimate_n_blocks(o.n_queries, 128) *
			     estimate_n_blocks(o.n_tokens, 128) * sizeof(*mass));
	if (!mass)
		errx(1, "out of memory");
	bench_estimates(&path, &o, mass);
	bench_prefill(&path, &o, mass);
	free(mass);
	path_close(&path);
	if (o.n_windows)
		sparse_model(&o);
	return 0;
}
#endif
