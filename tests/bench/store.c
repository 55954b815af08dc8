/*
 * store.c - coppice-bench store: match, insert, split and evict as trees grow.
 *
 *   match_128k_N   131,072 tokens in N nodes, warm, against a memcmp of as many ids
 *   tree_N         N leaves of one page below one root: what an operation costs at that size
 *   evict_N        the same tree, its leaves used in random order: time per page evicted, oldest
 *                  first
 *
 * match_us is the walk down the tree itself, open_close_us the whole of opening and closing a
 * sequence. On trees match_ns is an open and close, insert_ns and split_ns an open, extend, publish
 * and close.
 */
#ifdef BENCH_HAVE_KVSTORE

#include "bench.h"

#include "kvstore/tree/core.h"
#include "kvstore/tree/radix.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_TOKENS 131072u
#define LONG_PAGE_TOKENS 64u
#define LEAF_TOKENS 16u
#define EXTENT_PAGES 64u
#define EVICT_PAGES 100u /* at a time */
#define N_WARM 32u /* calls in a row before the other side's turn */

struct bench_store {
	struct store *store; /* owned */
	struct store_model *model; /* a reference */
	uint64_t random;
};

static int commit(void *ctx, uint32_t extent)
{
	(void)ctx;
	(void)extent;
	return 0;
}

static void release(void *ctx, uint32_t extent)
{
	(void)ctx;
	(void)extent;
}

static void bench_store_init(struct bench_store *b, uint32_t n_pages, uint32_t page_tokens)
{
	struct store_config config = {
		.pool = {.commit = commit, .release = release},
		.n_extents = n_pages / EXTENT_PAGES + 2,
		.extent_bytes = EXTENT_PAGES,
		.claim_ns = UINT64_MAX,
		.max_seq_tokens = 2 * LONG_TOKENS,
	};
	struct store_model_info info = {.name = "bench",
					.page_tokens = page_tokens,
					.page_bytes = 1};

	*b = (struct bench_store){.random = 88172645463325252u};
	if (store_new(&config, &b->store) || store_model_open(b->store, &info, &b->model))
		errx(1, "no store");
}

static void bench_store_done(struct bench_store *b)
{
	store_model_unref(b->model);
	store_free(b->store);
}

static uint32_t random_below(struct bench_store *b, uint32_t n)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return (uint32_t)((b->random >> 11) % n);
}

static struct store_seq *seq_open(struct bench_store *b, const uint32_t *ids, uint32_t n,
				  struct store_match *ret)
{
	struct store_open open = {.model = b->model, .tokens = ids, .n_tokens = n};
	struct store_seq *q;

	if (store_seq_open(b->store, &open, 0, &q, ret))
		errx(1, "open failed");
	return q;
}

/* Into the tree, and left there unused. */
static void leave(struct bench_store *b, const uint32_t *ids, uint32_t n)
{
	struct store_match match;
	struct store_seq *q = seq_open(b, ids, n, &match);

	if (store_seq_extend(q, ids + match.cached, n - match.cached, false, 0) ||
	    store_seq_publish(q, 0))
		errx(1, "publish failed");
	store_seq_close(q, 0);
}

static void touch(struct bench_store *b, const uint32_t *ids, uint32_t n)
{
	struct store_match match;

	store_seq_close(seq_open(b, ids, n, &match), 0);
}

static void shuffle(struct bench_store *b, uint32_t *order, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = random_below(b, i), kept = order[i - 1];
		order[i - 1] = order[j];
		order[j] = kept;
	}
}

/* One of many token strings without a common first token. */
static void leaf_ids(uint32_t leaf, uint32_t *ret)
{
	for (uint32_t i = 0; i < LEAF_TOKENS; i++)
		ret[i] = leaf * 2654435761u + i;
}

/* ids in n_nodes nodes: cut in random order by strings that differ from there. */
static void grow_chain(struct bench_store *b, uint32_t *ids, uint32_t n_nodes)
{
	uint32_t *order = calloc(n_nodes, sizeof(*order));

	if (!order)
		err(1, NULL);
	leave(b, ids, LONG_TOKENS);
	shuffle(b, order, n_nodes);
	for (uint32_t i = 0; i < n_nodes; i++) {
		uint32_t at = (uint32_t)((uint64_t)order[i] * LONG_TOKENS / n_nodes);
		if (at == 0)
			continue;
		ids[at] ^= 1;
		leave(b, ids, at + 1);
		ids[at] ^= 1;
	}
	free(order);
}

static double time_memcmp(const uint32_t *a, const uint32_t *b)
{
	double ns[N_WARM];

	for (uint32_t i = 0; i < N_WARM; i++) {
		uint64_t begin = clock_now_ns();
		if (memcmp(a, b, LONG_TOKENS * sizeof(*a)))
			errx(1, "copies differ");
		__asm__ volatile("" ::: "memory");
		ns[i] = (double)(clock_now_ns() - begin);
	}
	return bench_median(ns, N_WARM);
}

static double time_match(struct bench_store *b, const uint32_t *ids)
{
	struct store_node *root = TAILQ_FIRST(&b->store->all_namespaces)->root;
	double ns[N_WARM];

	for (uint32_t i = 0; i < N_WARM; i++) {
		struct store_position at = {.node = root};
		uint64_t begin = clock_now_ns();
		if (radix_match(b->store, &at, ids, LONG_TOKENS) != LONG_TOKENS)
			errx(1, "match too short");
		ns[i] = (double)(clock_now_ns() - begin);
	}
	return bench_median(ns, N_WARM);
}

static double time_open(struct bench_store *b, const uint32_t *ids)
{
	double ns[N_WARM];

	for (uint32_t i = 0; i < N_WARM; i++) {
		uint64_t begin = clock_now_ns();
		touch(b, ids, LONG_TOKENS);
		ns[i] = (double)(clock_now_ns() - begin);
	}
	return bench_median(ns, N_WARM);
}

static void bench_match(const char *name, uint32_t n_nodes)
{
	uint32_t reps = bench_reps(21);
	uint32_t *ids = malloc(LONG_TOKENS * sizeof(*ids));
	uint32_t *copy = malloc(LONG_TOKENS * sizeof(*copy));
	double *memcmp_ns = calloc(reps, sizeof(*memcmp_ns));
	double *match_ns = calloc(reps, sizeof(*match_ns));
	double *open_ns = calloc(reps, sizeof(*open_ns));
	struct bench_store b;

	if (!ids || !copy || !memcmp_ns || !match_ns || !open_ns)
		err(1, NULL);
	bench_store_init(&b, LONG_TOKENS / LONG_PAGE_TOKENS + n_nodes, LONG_PAGE_TOKENS);
	for (uint32_t i = 0; i < LONG_TOKENS; i++)
		ids[i] = random_below(&b, 100000) * 2;
	grow_chain(&b, ids, n_nodes);
	memcpy(copy, ids, LONG_TOKENS * sizeof(*ids));
	for (uint32_t i = 0; i < reps; i++) {
		memcmp_ns[i] = time_memcmp(ids, copy);
		match_ns[i] = time_match(&b, ids);
		open_ns[i] = time_open(&b, ids);
	}
	double base_ns = bench_median(memcmp_ns, reps), ns = bench_median(match_ns, reps);
	bench_print("store", name, "memcmp_us", base_ns / 1e3, "us");
	bench_print("store", name, "match_us", ns / 1e3, "us");
	bench_print("store", name, "open_close_us", bench_median(open_ns, reps) / 1e3, "us");
	bench_print("store", name, "ratio_memcmp", ns / base_ns, "");
	bench_store_done(&b);
	free(ids);
	free(copy);
	free(memcmp_ns);
	free(match_ns);
	free(open_ns);
}

/* What an operation costs on a tree of so many leaves, mean over all of them, in one pass each. */
struct tree_times {
	double insert_ns, match_ns, split_ns, evict_ns;
};

static void time_insert(struct bench_store *b, const uint32_t *order, uint32_t n,
			struct tree_times *ret)
{
	uint32_t ids[LEAF_TOKENS];
	uint64_t begin = clock_now_ns();

	for (uint32_t i = 0; i < n; i++) {
		leaf_ids(order[i], ids);
		leave(b, ids, LEAF_TOKENS);
	}
	ret->insert_ns = (double)(clock_now_ns() - begin) / n;
}

/* In an order of its own, which becomes the order of eviction. */
static void time_touch(struct bench_store *b, uint32_t *order, uint32_t n, struct tree_times *ret)
{
	uint32_t ids[LEAF_TOKENS + 1];

	shuffle(b, order, n);
	ids[LEAF_TOKENS] = 1;
	uint64_t begin = clock_now_ns();
	for (uint32_t i = 0; i < n; i++) {
		leaf_ids(order[i], ids);
		touch(b, ids, LEAF_TOKENS + 1);
	}
	ret->match_ns = (double)(clock_now_ns() - begin) / n;
}

/* A tenth of the leaves is evicted, so many at a time; the median is that of a hundred pages
 * undisturbed. */
static void time_evict(struct bench_store *b, uint32_t n, struct tree_times *ret)
{
	uint32_t n_batches = n / 10 / EVICT_PAGES;
	double *ns = calloc(n_batches, sizeof(*ns));

	if (!ns)
		err(1, NULL);
	for (uint32_t i = 0; i < n_batches; i++) {
		uint64_t begin = clock_now_ns();
		if (store_evict(b->store, NULL, EVICT_PAGES, EVICT_PAGES) != EVICT_PAGES)
			errx(1, "evicted too few");
		ns[i] = (double)(clock_now_ns() - begin) / EVICT_PAGES;
	}
	ret->evict_ns = bench_median(ns, n_batches);
	free(ns);
}

/* Of those used last, so that they are there. */
static void time_split(struct bench_store *b, const uint32_t *order, uint32_t n,
		       struct tree_times *ret)
{
	uint32_t n_splits = n / 10;
	uint32_t ids[LEAF_TOKENS];
	uint64_t begin = clock_now_ns();

	for (uint32_t i = 0; i < n_splits; i++) {
		leaf_ids(order[n - 1 - i], ids);
		ids[LEAF_TOKENS / 2] = 1;
		leave(b, ids, LEAF_TOKENS);
	}
	ret->split_ns = (double)(clock_now_ns() - begin) / n_splits;
}

static struct tree_times tree_pass(uint32_t n)
{
	uint32_t *order = calloc(n, sizeof(*order));
	struct tree_times times;
	struct bench_store b;

	if (!order)
		err(1, NULL);
	bench_store_init(&b, 2 * n, LEAF_TOKENS);
	shuffle(&b, order, n);
	time_insert(&b, order, n, &times);
	time_touch(&b, order, n, &times);
	time_evict(&b, n, &times);
	time_split(&b, order, n, &times);
	bench_store_done(&b);
	free(order);
	return times;
}

static double median_of(const struct tree_times *times, uint32_t n, size_t offset)
{
	double *values = calloc(n, sizeof(*values));

	if (!values)
		err(1, NULL);
	for (uint32_t i = 0; i < n; i++)
		memcpy(&values[i], (const char *)&times[i] + offset, sizeof(*values));
	double median = bench_median(values, n);
	free(values);
	return median;
}

static void bench_tree(uint32_t n, uint32_t reps)
{
	struct tree_times *times = calloc(reps, sizeof(*times));
	char tree[32], evict[32];

	if (!times)
		err(1, NULL);
	for (uint32_t i = 0; i < reps; i++)
		times[i] = tree_pass(n);
	snprintf(tree, sizeof(tree), "tree_%u", n);
	snprintf(evict, sizeof(evict), "evict_%u", n);
#define MEDIAN(member) median_of(times, reps, offsetof(struct tree_times, member))
	bench_print("store", tree, "match_ns", MEDIAN(match_ns), "ns");
	bench_print("store", tree, "insert_ns", MEDIAN(insert_ns), "ns");
	bench_print("store", tree, "split_ns", MEDIAN(split_ns), "ns");
	bench_print("store", evict, "page_ns", MEDIAN(evict_ns), "ns");
#undef MEDIAN
	free(times);
}

int store_main(int argc, char **argv)
{
	const struct bench_options options = {
		.doc = "Match, insert, split and evict as trees grow from 1e3 to 1e6 nodes."};
	int r = bench_read(&options, argc, argv);

	if (r >= 0)
		return r;
	bench_match("match_128k_1", 1);
	bench_match("match_128k_2000", 2000);
	bench_tree(1000, bench_reps(101));
	bench_tree(10000, bench_reps(21));
	bench_tree(100000, bench_reps(5));
	bench_tree(1000000, bench_reps(3));
	return 0;
}

#endif
