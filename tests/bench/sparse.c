/*
 * sparse.c - coppice-bench sparse: what an estimate costs by length, stride and block; a chunk's
 * prefill with chosen blocks beside exact prefill; the small model's loss.
 *
 * One layer of dim 128 in bf16, 8/2 heads on the CPU, 32/32 on a GPU.
 */
#include "sparse_path.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_AGENT)
#include "bench.h"
#include "words.h"

#include "kernels/backend.h"
#include "proto/arith.h"
#include "kernels/plan/select.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_EXACT 1u /* the id of a plan that is kept */
#define RUNS_MOST 64u
#define WINDOWS_UNSAID UINT32_MAX
#define WINDOWS_MAX 1000u /* each has a salt of its own */
#define UNIT_TOKENS 512u /* a path is some of these */
#define UNIT_QUERIES 16u /* and a chunk of these */
#define BLOCK_MAX_TOKENS 65536u /* as coppiced has it */

static const struct args_option options[] = {
	{"backend", 'B', "NAME", "cpu or cuda (default cpu)"},
	{"module", 'm', "FILE", "coppice-cuda.so (default: the build's)"},
	{"heads", 'H', "N", "Query heads (default 8; cuda: 32)"},
	{"kv-heads", 'K', "N", "KV heads (default 2; cuda: 32)"},
	{"tokens", 't', "N", "Of the path (default 16384; cuda: 131072)"},
	{"queries", 'q', "N", "Of the chunk at its end (default 512; cuda: 4096)"},
	{"windows", 'w', "N",
	 "Of held-out text, for the small model's table of losses (default 4; cuda: 0, no table)"},
	{"stride", 's', "N", "Of what is chosen and of the model's table (default 8)"},
	{"block", 'b', "N", "The same, in tokens (default 128)"},
	{"below", 'l', NULL, "Keep the model's KV below a small pool, and choose by its summary"},
	{0},
};

static int parse_stride(struct args *args, struct sparse_options *o)
{
	uint32_t place = 0;
	int r = words_take_place(args, "8 16", &place);

	o->stride = 8u << place;
	return r;
}

static int parse(struct args *args, int key, void *to)
{
	struct sparse_options *o = to;

	switch (key) {
	case 'B':
		return words_take(args, "cpu cuda", &o->backend);
	case 'm':
		o->module = args->value;
		return 0;
	case 'H':
		return bench_take_whole(args, 1, WORK_Q_HEADS_MAX, &o->n_q_heads);
	case 'K':
		return bench_take_whole(args, 1, WORK_Q_HEADS_MAX, &o->n_kv_heads);
	case 't':
		return bench_take_whole(args, UNIT_TOKENS, BENCH_TOKENS_MAX, &o->n_tokens);
	case 'q':
		return bench_take_whole(args, UNIT_QUERIES, BENCH_TOKENS_MAX / 4, &o->n_queries);
	case 'w':
		return bench_take_whole(args, 0, WINDOWS_MAX, &o->n_windows);
	case 's':
		return parse_stride(args, o);
	case 'b':
		return bench_take_whole(args, 8, BLOCK_MAX_TOKENS, &o->block_tokens);
	case 'l':
		o->below = true;
		return 0;
	}
	return 0;
}

/* ---- estimates ------------------------------------------------------------------------------ */

static struct backend_estimate estimate_of(const struct sparse_path *p,
					   const struct sparse_options *o, uint32_t n_tokens,
					   uint32_t stride, uint32_t block)
{
	return (struct backend_estimate){.shape = &p->shape,
					 .slices = p->slices,
					 .n_slices = n_tokens / p->shape.page_tokens,
					 .q = p->q,
					 .q_stride = sparse_q_row_bytes(p),
					 .n_q = o->n_queries,
					 .q_pos = n_tokens - o->n_queries,
					 .n_k = n_tokens,
					 .stride = stride,
					 .block_tokens = block};
}

static double estimate_ms(struct sparse_path *p, const struct backend_estimate *e)
{
	const float *mass;
	double times[RUNS_MOST];
	uint32_t n = bench_reps(3) < RUNS_MOST ? bench_reps(3) : RUNS_MOST;

	if (p->ops->estimate(p->backend, e, &mass) != 0) /* memory grows */
		errx(1, "no estimate of %u tokens", e->n_k);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t start_ns = clock_now_ns();
		if (p->ops->estimate(p->backend, e, &mass) != 0)
			errx(1, "no estimate of %u tokens", e->n_k);
		times[i] = (double)(clock_now_ns() - start_ns) / 1e6;
	}
	return bench_median(times, n);
}

static void bench_estimates(struct sparse_path *p, const struct sparse_options *o)
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
				bench_print("sparse", name, "estimate", estimate_ms(p, &e), "ms");
			}
}

/* ---- prefill -------------------------------------------------------------------------------- */

/* A chunk being attended to. */
struct chunk {
	struct sparse_path *path;
	const struct sparse_options *options;
	struct select_chunk of;
	uint32_t n_ranges, n_words;
	struct work_query whole;
	struct work_query *queries; /* owned, as the arrays below: of a block of queries each */
	struct backend_io io, *ios;
	struct select_query *chosen;
	uint32_t *ranges;
	/* owned, of each KV head and block of queries: chosen by the processor; every other block
	 */
	uint64_t *bits, *half;
	const uint64_t *kept; /* these, or the backend's */
	struct work_list exact, list; /* owned */
};

static void chunk_ranges(struct chunk *c)
{
	for (uint32_t i = 0; i < c->n_ranges; i++) {
		struct select_range range = select_range_at(&c->of, i);
		c->ranges[i] = range.begin;
		c->queries[i] = (struct work_query){0, c->of.pos + range.begin,
						    range.end - range.begin, NULL};
		c->ios[i] = c->io;
		c->ios[i].q += range.begin * c->io.q_stride;
		c->ios[i].o += range.begin * c->io.o_stride;
	}
}

/* Every other block, and those that a range's own queries stand in. */
static void chunk_half(struct chunk *c)
{
	for (uint32_t i = 0; i < c->path->shape.n_kv_heads * c->n_ranges; i++) {
		struct select_range rows = select_range_at(&c->of, i % c->n_ranges);
		uint32_t first = (c->of.pos + rows.begin) / c->of.block_tokens;
		uint32_t last = (c->of.pos + rows.end - 1) / c->of.block_tokens;
		uint64_t *half = c->half + (size_t)i * c->n_words;

		for (uint32_t block = 0; block <= last; block++)
			if (block % 2 == 0 || block >= first)
				half[block / 64] |= UINT64_C(1) << block % 64;
	}
}

static void chunk_init(struct chunk *c, struct sparse_path *p, const struct sparse_options *o)
{
	uint32_t pos = o->n_tokens - o->n_queries, block = o->block_tokens;

	*c = (struct chunk){.path = p, .options = o};
	c->of = (struct select_chunk){block, pos, o->n_queries, 0, ceil_div(o->n_tokens, block)};
	c->n_ranges = select_n_ranges(&c->of);
	c->n_words = select_n_words(c->of.n_blocks);
	c->whole = (struct work_query){.pos = pos, .n_rows = o->n_queries};
	c->io = (struct backend_io){.q = p->q,
				    .o = p->o,
				    .q_stride = sparse_q_row_bytes(p),
				    .o_stride = sparse_q_row_bytes(p)};
	c->queries = calloc(c->n_ranges, sizeof(*c->queries));
	c->ios = calloc(c->n_ranges, sizeof(*c->ios));
	c->chosen = calloc(c->n_ranges, sizeof(*c->chosen));
	c->ranges = calloc(c->n_ranges, sizeof(*c->ranges));
	c->bits = calloc((size_t)p->shape.n_kv_heads * c->n_ranges * c->n_words, sizeof(*c->bits));
	c->half = calloc((size_t)p->shape.n_kv_heads * c->n_ranges * c->n_words, sizeof(*c->half));
	if (!c->queries || !c->ios || !c->chosen || !c->ranges || !c->bits || !c->half)
		errx(1, "out of memory");
	chunk_ranges(c);
	chunk_half(c);
	p->tree.queries = &c->whole;
	if (plan_make(&p->plan, &p->tree, &c->exact) != 0)
		errx(1, "no plan");
}

static void chunk_done(struct chunk *c)
{
	plan_list_done(&c->exact);
	plan_list_done(&c->list);
	free(c->queries);
	free(c->ios);
	free(c->chosen);
	free(c->ranges);
	free(c->bits);
	free(c->half);
}

static struct backend_job exact_job(struct chunk *c)
{
	c->path->tree.queries = &c->whole;
	c->path->tree.n_queries = 1;
	return (struct backend_job){.shape = &c->path->shape,
				    .tree = &c->path->tree,
				    .list = &c->exact,
				    .io = &c->io};
}

/* By the plan that layers share: made before. */
static void run_exact(struct chunk *c)
{
	struct backend_job job = exact_job(c);

	job.plan_id = PLAN_EXACT;
	sparse_run(c->path, &job, 1);
}

/* kept NULL: everything. False: the backend does not take it so. */
static bool run_at_once(struct chunk *c, const uint64_t *kept)
{
	const struct backend_chosen of = {c->path->slices,
					  c->path->n_slices,
					  c->of.block_tokens,
					  c->of.n_blocks,
					  c->n_ranges,
					  c->ranges,
					  kept};
	struct backend_job job = exact_job(c);

	job.chosen = &of;
	if (!c->path->ops->takes_chosen || !c->path->ops->takes_chosen(c->path->backend, &job))
		return false;
	sparse_run(c->path, &job, 1);
	return true;
}

static void run_everything(struct chunk *c)
{
	run_at_once(c, NULL);
}

/* A job for each KV head. */
static void run_heads(struct chunk *c)
{
	struct sparse_path *p = c->path;

	p->tree.queries = c->queries;
	p->tree.n_queries = c->n_ranges;
	for (uint32_t head = 0; head < p->shape.n_kv_heads; head++) {
		struct backend_job job = {.shape = &p->shape,
					  .tree = &p->tree,
					  .list = &c->list,
					  .io = c->ios,
					  .head = head,
					  .n_heads = 1};
		for (uint32_t i = 0; i < c->n_ranges; i++)
			c->chosen[i] = (struct select_query){c->kept + ((size_t)head * c->n_ranges +
									i) * c->n_words,
							     c->of.n_blocks};
		if (select_plan(&p->plan, &p->tree, c->chosen, c->of.block_tokens, &c->list) != 0)
			errx(1, "no plan of chosen blocks");
		sparse_run(p, &job, 1);
	}
}

static void run_chosen(struct chunk *c)
{
	if (!run_at_once(c, c->kept))
		run_heads(c);
}

/* By masses that the backend leaves here. */
static int pick(struct chunk *c, const struct backend_estimate *e,
		const struct select_config *config, struct select_shares *ret)
{
	const float *mass;
	int r = c->path->ops->estimate(c->path->backend, e, &mass);

	for (uint32_t head = 0; head < c->path->shape.n_kv_heads && !r; head++)
		r = select_chunk(config, &c->of, mass + (size_t)head * c->n_ranges * c->of.n_blocks,
				 c->bits + (size_t)head * c->n_ranges * c->n_words, ret);
	c->kept = c->bits;
	return r;
}

static void choose(struct chunk *c, double tau, struct select_shares *ret)
{
	const struct sparse_options *o = c->options;
	const struct backend_ops *ops = c->path->ops;
	struct select_config config = {.tau = tau, .sink_blocks = 1, .recent_blocks = 1};
	struct backend_estimate e =
		estimate_of(c->path, o, o->n_tokens, o->stride, o->block_tokens);
	int r;

	*ret = (struct select_shares){0};
	r = ops->choose ? ops->choose(c->path->backend, &e, &config, &c->of, &c->kept, ret)
			: pick(c, &e, &config, ret);
	if (r)
		errx(1, "nothing chosen");
}

static double median_ms(struct chunk *c, void (*what)(struct chunk *c))
{
	double times[RUNS_MOST];
	uint32_t n = bench_reps(3) < RUNS_MOST ? bench_reps(3) : RUNS_MOST;

	what(c);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t start_ns = clock_now_ns();
		what(c);
		times[i] = (double)(clock_now_ns() - start_ns) / 1e6;
	}
	return bench_median(times, n);
}

/* A choice of about half, then every other block: half of what there is, whatever the values. */
static void choose_and_run_half(struct chunk *c)
{
	struct select_shares shares;

	choose(c, 0.5, &shares);
	c->kept = c->half;
	run_chosen(c);
}

static void choose_half(struct chunk *c)
{
	struct select_shares shares;

	choose(c, 0.5, &shares);
}

static void bench_exact(struct chunk *c, const char *name)
{
	uint64_t start_ns = clock_now_ns();
	double exact_ms;

	run_exact(c);
	bench_print("sparse", name, "exact_and_plan", (double)(clock_now_ns() - start_ns) / 1e6,
		    "ms");
	exact_ms = median_ms(c, run_exact);
	bench_print("sparse", name, "exact", exact_ms, "ms");
	if (run_at_once(c, NULL))
		bench_print("sparse", name, "exact_at_once", median_ms(c, run_everything), "ms");
	bench_print("sparse", name, "choice", median_ms(c, choose_half), "ms");
	double half_ms = median_ms(c, choose_and_run_half);
	bench_print("sparse", name, "half", half_ms, "ms");
	bench_print("sparse", name, "half_over_exact", exact_ms / half_ms, "x");
}

static void bench_tau(struct chunk *c, const char *name, double tau)
{
	struct select_shares shares;
	uint64_t start_ns;
	double ms;

	choose(c, tau, &shares);
	run_chosen(c);
	start_ns = clock_now_ns();
	choose(c, tau, &shares);
	run_chosen(c);
	ms = (double)(clock_now_ns() - start_ns) / 1e6;
	bench_print("sparse", name, "sparse", ms, "ms");
	bench_print("sparse", name, "attended", shares.attended / shares.visible, "of 1");
	bench_print("sparse", name, "mass", shares.kept_mass / shares.total_mass, "of 1");
}

static void bench_prefill(struct sparse_path *p, const struct sparse_options *o)
{
	static const double taus[] = {0.8, 0.9, 0.95, 0.99};
	struct chunk c;
	char name[64];

	chunk_init(&c, p, o);
	snprintf(name, sizeof(name), "q%u_k%u", o->n_queries, o->n_tokens);
	bench_exact(&c, name);
	for (uint32_t i = 0; i < sizeof(taus) / sizeof(taus[0]); i++) {
		snprintf(name, sizeof(name), "q%u_k%u_tau%g", o->n_queries, o->n_tokens, taus[i]);
		bench_tau(&c, name, taus[i]);
	}
	chunk_done(&c);
}

/* What was not asked for. */
static void defaults(struct sparse_options *o)
{
	bool gpu = strcmp(o->backend, "cuda") == 0;

	o->n_q_heads = o->n_q_heads ? o->n_q_heads : gpu ? 32 : 8;
	o->n_kv_heads = o->n_kv_heads ? o->n_kv_heads : gpu ? 32 : 2;
	o->n_tokens = o->n_tokens ? o->n_tokens : gpu ? 131072 : 16384;
	o->n_queries = o->n_queries ? o->n_queries : gpu ? 4096 : 512;
	if (o->n_windows == WINDOWS_UNSAID)
		o->n_windows = gpu ? 0 : 4;
	o->n_tokens -= o->n_tokens % UNIT_TOKENS;
	o->n_queries -= o->n_queries % UNIT_QUERIES;
	if (o->n_queries > o->n_tokens / 4)
		errx(CLI_USAGE, "a chunk has a quarter of the path's tokens at most");
}

int sparse_main(int argc, char **argv)
{
	struct sparse_options o = {.backend = "cpu",
				   .module = BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda.so",
				   .n_windows = WINDOWS_UNSAID,
				   .stride = 8,
				   .block_tokens = 128};
	struct sparse_path path;
	struct card card;
	const struct bench_options how = {
		.table = options,
		.take = parse,
		.to = &o,
		.doc = "Prefill that attends to part of its path: what is chosen, what it takes, "
		       "what it loses.",
	};
	bool gpu;
	int r;

	r = bench_read(&how, argc, argv);
	if (r >= 0)
		return r;
	defaults(&o);
	gpu = strcmp(o.backend, "cuda") == 0;
	if (gpu && card_load(&card, o.module) != 0)
		return 1;
	sparse_path_open(&path, &o, gpu ? &card : NULL);
	bench_estimates(&path, &o);
	bench_prefill(&path, &o);
	sparse_path_close(&path);
	if (o.n_windows)
		sparse_model(&o);
	return 0;
}
#endif
