/* tiers.c - coppice-bench tiers: options, and what its parts share; see tiers.h. */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include "bench.h"
#include "card.h"
#include "words.h"
#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LAYERS_MAX 1024u
#define MIB_MAX (1u << 24)
#define UNDER_WAY 2u
#define FILL_PAGES 128u /* appended at a time */

static const struct args_option options[] = {
	{"backend", 'b', "NAME", "cpu or cuda (default cpu)"},
	{"module", 'm', "FILE", "coppice-cuda.so (default: the build's)"},
	{"file", 'f', "FILE",
	 "A tier file to be made there with room for the document, and removed"},
	{"tokens", 't', "N", "Of the document (default 131072 on a GPU, else 8192)"},
	{"file-tokens", 'F', "N", "Of the document from the file (default: as many)"},
	{"layers", 'l', "N", "Layers of the document's KV (default 32 on a GPU, else 4)"},
	{"stage", 's', "MIB", "Stage of the long prefill (default 256 on a GPU, else 4)"},
	{"bytes", 'B', "MIB", "Copied in a measurement (default 4096 on a GPU, else 256)"},
	{"only", 'o', "PART", "One part alone: copies, file, document, long, recall"},
	{"tau", 'T', "X", "Of sparse long prefill too (default 0.67; 0: none)"},
	{0},
};

static int parse_mib(struct args *args, uint32_t min, uint64_t *ret_bytes)
{
	uint32_t mib;
	int r = bench_take_whole(args, min, MIB_MAX, &mib);

	if (r == 0)
		*ret_bytes = (uint64_t)mib << 20;
	return r;
}

static int parse(struct args *args, int key, void *to)
{
	struct tiers_options *o = to;

	switch (key) {
	case 'b':
		return words_take(args, "cpu cuda", &o->backend);
	case 'o':
		return words_take(args, "copies file document long recall", &o->only);
	case 'm':
		o->module = args->value;
		return 0;
	case 'f':
		o->file = args->value;
		return 0;
	case 't':
		return bench_take_whole(args, 1, BENCH_TOKENS_MAX, &o->tokens);
	case 'F':
		return bench_take_whole(args, 1, BENCH_TOKENS_MAX, &o->file_tokens);
	case 'l':
		return bench_take_whole(args, 1, LAYERS_MAX, &o->n_layers);
	case 's':
		return parse_mib(args, 1, &o->stage_bytes);
	case 'B':
		return parse_mib(args, TIERS_EXTENT_BYTES >> 20, &o->copy_bytes);
	default:
		return bench_take_share(args, &o->tau);
	}
}

/* ---- a backend with host memory ------------------------------------------------------------- */

int tiers_bench_init(struct tiers_bench *b, const struct tiers_options *o,
		     const struct backend_ops *ops, uint64_t pool_bytes, uint64_t host_bytes)
{
	const struct backend_config config = {.pool_bytes = pool_bytes,
					      .extent_bytes = TIERS_EXTENT_BYTES};
	char error[400] = "";

	*b = (struct tiers_bench){.options = o,
				  .ops = ops,
				  .pool_bytes = pool_bytes,
				  .host_bytes = host_bytes};
	int r = ops->open(&config, &b->backend, error, sizeof(error));
	if (r) {
		fprintf(stderr, "coppice-bench: %s\n", error);
		return r;
	}
	if (host_bytes == 0)
		return 0;
	char *host =
		mmap(NULL, host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED)
		return -ENOMEM;
	madvise(host, host_bytes, MADV_HUGEPAGE);
	memset(host, 1, host_bytes);
	r = ops->tier->pin(b->backend, host, host_bytes);
	if (r) {
		munmap(host, host_bytes);
		fprintf(stderr, "coppice-bench: %lu bytes cannot be pinned\n", host_bytes);
		return r;
	}
	b->host = host;
	return 0;
}

void tiers_bench_done(struct tiers_bench *b)
{
	if (b->host) {
		b->ops->tier->unpin(b->backend, b->host, b->host_bytes);
		munmap(b->host, b->host_bytes);
	}
	b->ops->close(b->backend);
}

struct work_shape tiers_shape(const struct tiers_bench *b, uint32_t n_layers)
{
	bool gpu = b->ops != &backend_cpu;

	return (struct work_shape){.n_layers = n_layers,
				   .n_q_heads = gpu ? 32 : 8,
				   .n_kv_heads = gpu ? 8 : 2,
				   .head_dim = 128,
				   .page_tokens = 32,
				   .dtype = WORK_BF16,
				   .scale = 1 / sqrtf(128)};
}

uint32_t tiers_extents(struct tiers_bench *b, const struct work_shape *shape, uint64_t n_tokens)
{
	uint64_t page_bytes = b->ops->page_bytes(b->backend, shape, NULL, 0);
	uint64_t n_pages = ceil_div_u64(n_tokens, shape->page_tokens);
	uint64_t each = TIERS_EXTENT_BYTES / page_bytes;

	return (uint32_t)ceil_div_u64(n_pages, each);
}

int tiers_arena_init(struct tiers_arena *a, struct tiers_bench *b, uint64_t bytes)
{
	const struct backend_ops *ops = b->ops;
	struct backend_arena arena = {0};

	*a = (struct tiers_arena){.bench = b, .bytes = (bytes + (2u << 20) - 1) >> 21 << 21};
	if (ops->arena_new) {
		int r = ops->arena_new(b->backend, a->bytes, &arena);
		a->base = r ? 0 : arena.base;
		return r;
	}
	a->host = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (a->host == MAP_FAILED) {
		a->host = NULL;
		return -ENOMEM;
	}
	return ops->arena_attach(b->backend, a->host, a->bytes, &a->base);
}

void tiers_arena_done(struct tiers_arena *a)
{
	if (a->host) {
		a->bench->ops->arena_detach(a->bench->backend, a->base, a->bytes);
		munmap(a->host, a->bytes);
	} else if (a->base) {
		a->bench->ops->arena_free(a->bench->backend, a->base);
	}
}

int tiers_plan(struct tiers_bench *b, const struct work_shape *shape, const struct work_tree *tree,
	       struct work_list *ret)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, shape, 8);
	config.tile_rows = b->ops->tile_rows(b->backend, shape);
	return plan_make(&config, tree, ret);
}

/* ---- attention to be at work ---------------------------------------------------------------- */

static void attention_tree(struct tiers_attention *a, uint32_t n, uint32_t n_old, uint32_t n_new)
{
	uint32_t page_tokens = a->shape.page_tokens, n_tokens = n_old + n_new, slice = 0;
	uint64_t row_bytes = (uint64_t)a->shape.n_q_heads * a->shape.head_dim * 2;

	for (uint32_t i = 0; i < n; i++) {
		a->nodes[i] = (struct work_node){.parent = WORK_NONE,
						 .n_tokens = n_tokens,
						 .slice = slice};
		for (uint32_t at = 0; at < n_tokens; at += page_tokens, slice++) {
			uint32_t left = n_tokens - at;
			a->slices[slice] = (struct work_slice){
				.page = slice,
				.count = (uint16_t)(left < page_tokens ? left : page_tokens)};
		}
		a->nodes[i].n_slices = slice - a->nodes[i].slice;
		a->queries[i] = (struct work_query){.node = i, .pos = n_old, .n_rows = n_new};
		a->io[i] = (struct backend_io){.q = a->arena.base + i * n_new * row_bytes,
					       .o = a->arena.base + (n + i) * n_new * row_bytes,
					       .q_stride = row_bytes,
					       .o_stride = row_bytes};
	}
	a->tree = (struct work_tree){.nodes = a->nodes,
				     .slices = a->slices,
				     .queries = a->queries,
				     .n_nodes = n,
				     .n_slices = slice,
				     .n_queries = n};
}

/* In about (-1.7, 1.7), as bf16. */
static void draw(uint16_t *at, size_t n)
{
	uint64_t random = 1;

	for (size_t i = 0; i < n; i++) {
		random = random * UINT64_C(6364136223846793005) + 1;
		float value = (float)(int32_t)(random >> 32) * 8e-10f;
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		at[i] = (uint16_t)(bits >> 16);
	}
}

static int arena_fill(struct tiers_attention *a)
{
	const struct tiers_bench *b = a->bench;
	uint16_t *values = a->arena.host ? a->arena.host : malloc(a->arena.bytes);
	int r = values ? 0 : -ENOMEM;

	if (!r)
		draw(values, a->arena.bytes / 2);
	if (!r && !a->arena.host)
		r = b->options->arena_copy(b->backend, (void *)(uintptr_t)a->arena.base, values,
					   a->arena.bytes);
	if (!a->arena.host)
		free(values);
	return r;
}

/* Pages [page, page + n) are appended from the arena's values. */
static int pages_fill(struct tiers_attention *a, uint32_t page, uint32_t n)
{
	const struct tiers_bench *b = a->bench;
	uint64_t row_bytes = (uint64_t)a->shape.n_kv_heads * a->shape.head_dim * 2;
	uint32_t n_rows = n * a->shape.page_tokens;
	struct work_slice *slices = calloc(n, sizeof(*slices));
	struct work_node node = {.parent = WORK_NONE, .n_tokens = n_rows, .n_slices = n};
	struct work_query query = {.n_rows = n_rows};
	struct work_tree tree = {&node, slices, &query, 1, n, 1};
	struct backend_io io = {.k = a->arena.base,
				.v = a->arena.base + n_rows * row_bytes,
				.k_stride = row_bytes,
				.v_stride = row_bytes,
				.slots = slices,
				.n_slots = n};
	struct work_list list = {0};
	const struct backend_job job = {.shape = &a->shape,
					.tree = &tree,
					.list = &list,
					.io = &io};
	int r = slices ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && !r; i++)
		slices[i] = (struct work_slice){page + i, 0, (uint16_t)a->shape.page_tokens};
	if (!r)
		r = tiers_plan(a->bench, &a->shape, &tree, &list);
	if (!r)
		r = b->ops->submit(b->backend, &(struct backend_batch){&job, 1}, &a->n_asked);
	if (!r)
		r = tiers_attention_settle(a);
	plan_list_done(&list);
	free(slices);
	return r;
}

static int attention_fill(struct tiers_attention *a)
{
	uint64_t row_bytes = (uint64_t)a->shape.n_kv_heads * a->shape.head_dim * 2;
	uint64_t n_rows = a->arena.bytes / (2 * row_bytes);
	uint32_t most = (uint32_t)(n_rows / a->shape.page_tokens), n = a->tree.n_slices;
	int r = arena_fill(a);

	most = most < FILL_PAGES ? most : FILL_PAGES;
	for (uint32_t page = 0; page < n && !r; page += most)
		r = pages_fill(a, page, n - page < most ? n - page : most);
	return r;
}

int tiers_attention_init(struct tiers_attention *a, struct tiers_bench *b, uint32_t n,
			 uint32_t n_old, uint32_t n_new)
{
	static uint64_t n_plans;

	*a = (struct tiers_attention){.bench = b,
				      .shape = tiers_shape(b, 1),
				      .plan_id = UINT64_C(1) << 32 | ++n_plans};
	uint32_t pages = ceil_div(n_old + n_new, a->shape.page_tokens);
	uint32_t n_extents =
		tiers_extents(b, &a->shape, (uint64_t)n * pages * a->shape.page_tokens);
	int r = 0;

	for (uint32_t i = 0; i < n_extents && !r; i++) {
		r = b->ops->extent_commit(b->backend, i);
		r = r == -EINVAL ? 0 : r; /* it has some already */
	}
	a->nodes = calloc(n, sizeof(*a->nodes));
	a->slices = calloc((size_t)n * pages, sizeof(*a->slices));
	a->queries = calloc(n, sizeof(*a->queries));
	a->io = calloc(n, sizeof(*a->io));
	if (!a->nodes || !a->slices || !a->queries || !a->io)
		return -ENOMEM;
	if (!r)
		r = tiers_arena_init(&a->arena, b,
				     (uint64_t)2 * n * n_new * a->shape.n_q_heads *
					     a->shape.head_dim * 2);
	if (r)
		return r;
	attention_tree(a, n, n_old, n_new);
	r = attention_fill(a);
	return r ? r : tiers_plan(b, &a->shape, &a->tree, &a->list);
}

void tiers_attention_done(struct tiers_attention *a)
{
	tiers_attention_settle(a);
	tiers_arena_done(&a->arena);
	plan_list_done(&a->list);
	free(a->nodes);
	free(a->slices);
	free(a->queries);
	free(a->io);
}

int tiers_attention_pump(struct tiers_attention *a)
{
	const struct backend_ops *ops = a->bench->ops;
	int r = a->n_asked ? ops->completed(a->bench->backend, &a->n_done) : 0;

	for (uint32_t i = 0; !r && i < UNDER_WAY && a->n_asked - a->n_done < UNDER_WAY; i++) {
		const struct backend_job job = {.shape = &a->shape,
						.tree = &a->tree,
						.list = &a->list,
						.io = a->io,
						.plan_id = a->plan_id};
		r = ops->submit(a->bench->backend, &(struct backend_batch){&job, 1}, &a->n_asked);
		if (!r)
			r = ops->completed(a->bench->backend, &a->n_done);
	}
	return r;
}

int tiers_attention_settle(struct tiers_attention *a)
{
	int r = 0;

	while (!r && a->n_done < a->n_asked)
		r = a->bench->ops->completed(a->bench->backend, &a->n_done);
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void defaults(struct tiers_options *o, bool gpu)
{
	o->tokens = o->tokens ? o->tokens : gpu ? 131072 : 8192;
	o->file_tokens = o->file_tokens ? o->file_tokens : o->tokens;
	o->n_layers = o->n_layers ? o->n_layers : gpu ? 32 : 4;
	o->stage_bytes = o->stage_bytes ? o->stage_bytes : UINT64_C(1) << (gpu ? 28 : 22);
	o->copy_bytes = o->copy_bytes ? o->copy_bytes : UINT64_C(1) << (gpu ? 32 : 28);
}

static bool is_asked(const struct tiers_options *o, const char *part)
{
	return !o->only || strcmp(o->only, part) == 0;
}

int tiers_main(int argc, char **argv)
{
	struct tiers_options o = {.backend = "cpu",
				  .tau = 0.67,
				  .module = BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda.so"};
	const struct backend_ops *ops = &backend_cpu;
	struct card card;
	const struct bench_options how = {
		.table = options,
		.take = parse,
		.to = &o,
		.doc = "How fast KV goes down and comes back: slices between pool and host memory, "
		       "alone and beside attention, pages of the file, and a document that a "
		       "prompt matches in each tier: until it is there, until the first "
		       "step on it has ended, and what computing it anew costs.",
	};
	int r;

	r = bench_read(&how, argc, argv);
	if (r >= 0)
		return r;
	if (strcmp(o.backend, "cuda") == 0) {
		if (card_load(&card, o.module) != 0)
			return 1;
		ops = card.ops;
		o.arena_copy = card.arena_copy;
	}
	defaults(&o, ops != &backend_cpu);
	r = is_asked(&o, "copies") ? tiers_copies(&o, ops) : 0;
	if (!r && o.file && is_asked(&o, "file"))
		r = tiers_file(&o);
	if (!r && is_asked(&o, "document"))
		r = tiers_document(&o, ops);
	if (!r && is_asked(&o, "long"))
		r = tiers_long(&o, ops);
	if (!r && is_asked(&o, "recall"))
		r = tiers_recall(&o, ops);
	if (r)
		fprintf(stderr, "coppice-bench: tiers: %s\n", strerror(-r));
	return r != 0;
}
#endif
