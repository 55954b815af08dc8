/*
 * tiers_document.c - a document that a prompt matches in host memory or in the file: from the match
 * until all of it is on the device, and until the first step on it has ended, against what
 * computing it anew costs in attention alone.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include "bench.h"
#include "kvstore/files/tier_file.h"
#include "kvstore/files/tier_host.h"
#include "kvstore/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK 4096u
#define BUSY_NS UINT64_C(300000000)
#define UNIT_BYTES 16384u
#define DEPTH 64u

struct document {
	struct tiers_bench bench;
	struct work_shape shape;
	struct store *store; /* owned */
	struct store_model *model;
	struct tiers_step step;
	uint32_t *tokens; /* owned */
	uint32_t n_tokens;
	struct tiers_recompute recompute; /* of these */
};

/* ---- the store over the backend ------------------------------------------------------------- */

static int commit(void *ctx, uint32_t extent)
{
	struct tiers_bench *b = ctx;

	return b->ops->extent_commit(b->backend, extent);
}

static void release(void *ctx, uint32_t extent)
{
	struct tiers_bench *b = ctx;

	b->ops->extent_release(b->backend, extent);
}

static void *memory_alloc(void *ctx, size_t bytes)
{
	struct tiers_bench *b = ctx;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_HUGEPAGE);
	if (b->ops->tier->pin(b->backend, memory, bytes) == 0)
		return memory;
	munmap(memory, bytes);
	return NULL;
}

static void memory_free(void *ctx, void *memory, size_t bytes)
{
	struct tiers_bench *b = ctx;

	b->ops->tier->unpin(b->backend, memory, bytes);
	munmap(memory, bytes);
}

static struct backend_copy copy_of(const struct tier_copy *copy)
{
	return (struct backend_copy){copy->extent, copy->offset_bytes, copy->bytes, copy->host};
}

static uint64_t down(void *ctx, const struct tier_copy *copy)
{
	struct tiers_bench *b = ctx;
	struct backend_copy of = copy_of(copy);

	return b->ops->tier->down(b->backend, &of);
}

static uint64_t up(void *ctx, const struct tier_copy *copy)
{
	struct tiers_bench *b = ctx;
	struct backend_copy of = copy_of(copy);

	return b->ops->tier->up(b->backend, &of);
}

static uint64_t downs_done(void *ctx)
{
	struct tiers_bench *b = ctx;

	return b->ops->tier->downs_done(b->backend);
}

static uint64_t ups_done(void *ctx)
{
	struct tiers_bench *b = ctx;

	return b->ops->tier->ups_done(b->backend);
}

static void kick(void *ctx)
{
	struct tiers_bench *b = ctx;

	b->ops->tier->kick(b->backend);
}

static int attach(struct document *d, const char *path, uint64_t host_bytes, uint64_t file_bytes)
{
	const uint32_t chunk = (uint32_t)(TIERS_EXTENT_BYTES / UNIT_BYTES);
	struct tier_host_config host = {.memory = {&d->bench, memory_alloc, memory_free},
					.bytes = host_bytes,
					.unit_bytes = UNIT_BYTES,
					.chunk_units = chunk};
	struct tier_file_config file = {.path = path,
					.bytes = file_bytes,
					.unit_bytes = UNIT_BYTES,
					.chunk_units = chunk,
					.depth = 2 * DEPTH};
	struct store_tiers_config config = {.mover = {&d->bench, down, up, downs_done, ups_done,
						      kick},
					    .depth = DEPTH};
	struct store_tiers_found found;
	char why[400] = "";
	int r = path ? tier_file_open(&file, &config.file, why, sizeof(why)) : 0;

	if (!r)
		r = tier_host_new(&host, &config.host, why, sizeof(why));
	if (r)
		fprintf(stderr, "coppice-bench: %s\n", why);
	return r ? r : store_tiers_attach(d->store, &config, &found);
}

static int open_store(struct document *d, const char *path, uint64_t kv_bytes)
{
	const struct store_config config = {
		.pool = {&d->bench, commit, release},
		.n_extents = (uint32_t)(d->bench.pool_bytes / TIERS_EXTENT_BYTES),
		.extent_bytes = TIERS_EXTENT_BYTES,
		.claim_ns = UINT64_MAX / 2,
		.max_seq_tokens = UINT32_MAX,
	};
	const struct store_model_info info = {.name = "bench",
					      .page_tokens = d->shape.page_tokens,
					      .page_bytes =
						      d->bench.ops->page_bytes(d->bench.backend,
									       &d->shape, NULL, 0)};
	uint64_t room = kv_bytes / 8 * 9 + 8 * TIERS_EXTENT_BYTES;
	int r = store_new(&config, &d->store);

	if (!r)
		r = attach(d, path, room, room + room / 8);
	return r ? r : store_model_open(d->store, &info, &d->model);
}

static void close_store(struct document *d)
{
	store_model_unref(d->model);
	store_free(d->store);
	d->store = NULL;
}

/* ---- a document ----------------------------------------------------------------------------- */

/* One token more than is shared, as the last is always the reader's own. */
static struct store_open prompt_of(const struct document *d)
{
	return (struct store_open){.model = d->model,
				   .tokens = d->tokens,
				   .n_tokens = d->n_tokens + 1};
}

/* The token behind the document, which joins nothing yet. */
static int step(struct document *d, struct store_seq *q)
{
	int r = store_seq_extend(q, d->tokens + d->n_tokens, 1, false, clock_now_ns());

	return r ? r : tiers_step_run(&d->step, q);
}

/* Its tokens with whatever is in the pages: what is there does not change what moving it costs. And
 * a step, as the first of all is slower than any other, wherever the document is. */
static int fill(struct document *d)
{
	struct store_open open = prompt_of(d);
	struct store_match match;
	struct store_seq *q;
	int r = store_seq_open(d->store, &open, clock_now_ns(), &q, &match);

	for (uint32_t at = 0; at < d->n_tokens && !r; at += CHUNK) {
		uint32_t n = d->n_tokens - at < CHUNK ? d->n_tokens - at : CHUNK;
		r = store_seq_extend(q, d->tokens + at, n, false, clock_now_ns());
		if (!r)
			r = store_seq_publish(q, clock_now_ns());
	}
	if (!r)
		r = step(d, q);
	store_seq_close(q, clock_now_ns());
	return r;
}

static void settle(struct document *d)
{
	while (store_tiers_poll(d->store, clock_now_ns()))
		continue;
}

/* Seconds until all of it has left the device. */
static double demote(struct document *d)
{
	uint64_t start_ns = clock_now_ns();
	struct store_stats stats;

	do {
		store_evict(d->store, NULL, UINT32_MAX, DEPTH);
		store_tiers_poll(d->store, clock_now_ns());
		store_stats(d->store, &stats);
	} while (stats.n_pages > 0);
	settle(d);
	return (double)(clock_now_ns() - start_ns) / 1e9;
}

/* Seconds from the match: until all is there; until the first step on it has ended. */
struct arrival {
	double ready_s, first_step_s;
};

static int promote(struct document *d, struct arrival *ret)
{
	uint64_t start_ns = clock_now_ns();
	struct store_open open = prompt_of(d);
	struct store_match match;
	struct store_seq *q;
	int r = store_seq_open(d->store, &open, start_ns, &q, &match);

	for (uint64_t epoch = store_epoch(d->store); !r && match.pending > 0;) {
		store_tiers_poll(d->store, clock_now_ns());
		if (store_epoch(d->store) != epoch)
			r = store_seq_rematch(q, clock_now_ns(), &match);
		epoch = store_epoch(d->store);
	}
	ret->ready_s = (double)(clock_now_ns() - start_ns) / 1e9;
	if (!r && match.cached != d->n_tokens)
		r = -ENODATA;
	if (!r)
		r = step(d, q);
	ret->first_step_s = (double)(clock_now_ns() - start_ns) / 1e9;
	store_seq_close(q, clock_now_ns());
	return r;
}

/* ---- what computing it costs ---------------------------------------------------------------- */

/* One batch, for the plan; then one alone. */
static int chunk_once(struct tiers_attention *a, double *ret_s)
{
	const struct tiers_bench *b = a->bench;
	const struct backend_job job = {.shape = &a->shape,
					.tree = &a->tree,
					.list = &a->list,
					.io = a->io,
					.plan_id = a->plan_id};
	int r = 0;

	for (uint32_t i = 0; i < 2 && !r; i++) {
		uint64_t start_ns = clock_now_ns();
		r = b->ops->submit(b->backend, &(struct backend_batch){&job, 1}, &a->n_asked);
		if (!r)
			r = tiers_attention_settle(a);
		*ret_s = (double)(clock_now_ns() - start_ns) / 1e9;
	}
	return r;
}

/* So many nanoseconds of batches, one behind the other. */
static int chunk_over_and_over(struct tiers_attention *a, uint64_t ns, double *ret_s)
{
	uint64_t start_ns = clock_now_ns(), first = a->n_done;
	int r = 0;

	while (!r && clock_now_ns() - start_ns < ns)
		r = tiers_attention_pump(a);
	if (!r)
		r = tiers_attention_settle(a);
	*ret_s = (double)(clock_now_ns() - start_ns) / 1e9 / (double)(a->n_done - first);
	return r;
}

/* Of one layer's attention of a chunk that follows n_old tokens. */
static int chunk_seconds(struct tiers_bench *b, uint32_t n_old, uint32_t n_new,
			 struct tiers_recompute *ret)
{
	uint64_t busy_ns = b->ops == &backend_cpu ? 0 : BUSY_NS;
	struct tiers_attention a;
	int r = tiers_attention_init(&a, b, 1, n_old, n_new);

	if (!r)
		r = chunk_once(&a, &ret->once_s);
	ret->busy_s = ret->once_s;
	for (uint32_t i = 0; i < 2 && !r && busy_ns; i++)
		r = chunk_over_and_over(&a, busy_ns, &ret->busy_s);
	tiers_attention_done(&a);
	return r;
}

/* Of all chunks and layers; chunks cost what lies between the first's and the last's, as their keys
 * do. */
int tiers_recompute_seconds(const struct tiers_options *o, const struct backend_ops *ops,
			    uint32_t n_layers, struct tiers_recompute *ret)
{
	uint32_t chunk = o->tokens < CHUNK ? o->tokens : CHUNK, n = o->tokens / chunk;
	struct tiers_bench b;
	struct tiers_recompute first = {0}, last = {0};
	struct work_shape shape;
	int r = tiers_bench_init(&b, o, ops, TIERS_EXTENT_BYTES, 0);

	if (r)
		return r;
	shape = tiers_shape(&b, 1);
	uint64_t bytes = tiers_extents(&b, &shape, o->tokens) * TIERS_EXTENT_BYTES;
	tiers_bench_done(&b);
	r = tiers_bench_init(&b, o, ops, bytes, 0);
	if (r)
		return r;
	r = chunk_seconds(&b, 0, chunk, &first);
	if (!r)
		r = chunk_seconds(&b, o->tokens - chunk, chunk, &last);
	tiers_bench_done(&b);
	ret->once_s = (first.once_s + last.once_s) / 2 * n * n_layers;
	ret->busy_s = (first.busy_s + last.busy_s) / 2 * n * n_layers;
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* A document shorter than asked for says so. */
static void document_name(const struct document *d, const struct tiers_options *o, const char *rest,
			  char *ret, size_t bytes)
{
	if (d->n_tokens == o->tokens)
		snprintf(ret, bytes, "document%s", rest);
	else
		snprintf(ret, bytes, "document of %u%s", d->n_tokens, rest);
}

static void print_arrival(const struct document *d, const struct tiers_options *o, const char *from,
			  double bytes, const struct arrival *arrival)
{
	double recompute_s = d->recompute.once_s;
	char name[64];

	document_name(d, o, from, name, sizeof(name));
	bench_print("tiers", name, "ready", arrival->ready_s * 1e3, "ms");
	bench_print("tiers", name, "rate", bytes / arrival->ready_s / 1e9, "GB/s");
	bench_print("tiers", name, "first_step", arrival->first_step_s * 1e3, "ms");
	bench_print("tiers", name, "over_recompute", recompute_s / arrival->ready_s, "x");
}

static void print_recompute(const struct document *d, const struct tiers_options *o)
{
	char name[64];

	document_name(d, o, "", name, sizeof(name));
	bench_print("tiers", name, "recompute", d->recompute.once_s * 1e3, "ms");
	bench_print("tiers", name, "recompute_busy", d->recompute.busy_s * 1e3, "ms");
}

static int from_file(struct document *d, const struct tiers_options *o, double bytes)
{
	struct arrival arrival = {0};
	int r = fill(d);

	demote(d);
	store_tiers_flush(d->store);
	settle(d);
	close_store(d);
	if (!r)
		r = open_store(d, o->file, (uint64_t)bytes);
	if (!r)
		r = promote(d, &arrival);
	if (!r)
		print_arrival(d, o, " from file", bytes, &arrival);
	return r;
}

static int from_host(struct document *d, const struct tiers_options *o, double bytes)
{
	struct arrival arrival = {0};
	int r = fill(d);

	if (r)
		return r;
	double s = demote(d);
	bench_print("tiers", "document to host", "time", s * 1e3, "ms");
	bench_print("tiers", "document to host", "rate", bytes / s / 1e9, "GB/s");
	r = promote(d, &arrival);
	if (!r)
		print_arrival(d, o, " from host", bytes, &arrival);
	return r;
}

/* A store over a backend with room for the document and the step's token, and the file if there is
 * a path. */
static int run_in(struct document *d, const struct tiers_options *o, const char *path)
{
	struct tiers_bench *b = &d->bench;
	double bytes = (double)d->n_tokens / d->shape.page_tokens *
		       (double)b->ops->page_bytes(b->backend, &d->shape, NULL, 0);
	int r = open_store(d, path, (uint64_t)bytes);

	if (!r)
		r = tiers_step_init(&d->step, b, &d->shape);
	if (!r)
		r = path ? from_file(d, o, bytes) : from_host(d, o, bytes);
	tiers_step_done(&d->step);
	if (!r)
		close_store(d);
	return r;
}

static int one(struct document *d, const struct tiers_options *o, const struct backend_ops *ops,
	       const char *path)
{
	int r = tiers_bench_init(&d->bench, o, ops, TIERS_EXTENT_BYTES, 0);

	if (r)
		return r;
	d->shape = tiers_shape(&d->bench, o->n_layers);
	uint64_t n_extents = tiers_extents(&d->bench, &d->shape, d->n_tokens);
	tiers_bench_done(&d->bench);
	r = tiers_bench_init(&d->bench, o, ops, (n_extents + 2) * TIERS_EXTENT_BYTES, 0);
	if (!r)
		r = run_in(d, o, path);
	if (!r)
		tiers_bench_done(&d->bench);
	return r;
}

/* The document has so many tokens from now on; what computing them costs. */
static int recompute(struct document *d, const struct tiers_options *o,
		     const struct backend_ops *ops, uint32_t n_tokens)
{
	struct tiers_options of = *o;

	of.tokens = n_tokens;
	d->n_tokens = n_tokens;
	int r = tiers_recompute_seconds(&of, ops, o->n_layers, &d->recompute);
	if (!r)
		print_recompute(d, o);
	return r;
}

int tiers_document(const struct tiers_options *o, const struct backend_ops *ops)
{
	uint32_t most = o->tokens > o->file_tokens ? o->tokens : o->file_tokens;
	struct document d = {.tokens = calloc(most + 1, sizeof(*d.tokens))};
	int r = d.tokens ? recompute(&d, o, ops, o->tokens) : -ENOMEM;

	for (uint32_t i = 0; !r && i <= most; i++)
		d.tokens[i] = i;
	if (!r)
		r = one(&d, o, ops, NULL);
	if (!r && o->file && o->file_tokens != o->tokens)
		r = recompute(&d, o, ops, o->file_tokens);
	if (!r && o->file) {
		r = one(&d, o, ops, o->file);
		unlink(o->file);
	}
	free(d.tokens);
	return r;
}
#endif
