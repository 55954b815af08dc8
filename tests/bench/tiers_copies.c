/*
 * tiers_copies.c - slices between pool and host memory, by their size: each way, both at once, and
 * both beside attention over KV of which nothing is in the caches; against copies of whole extents,
 * the most that the machine gives. Slices lie scattered, or in order, as a layer's parts of pages
 * do that follow one another.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
#include "bench.h"

#include <stdio.h>

#define KICK 248u /* copies */
#define UNDER_WAY 1000u
/* Copies wait for batches that were submitted before: more than these take the time of. */
#define UNDER_WAY_BESIDE 2000u
/* Attention alone and beside copies, in turn: it is small differences that count. */
#define ROUNDS 5u
#define ALONE_NS UINT64_C(100000000)

struct way {
	uint64_t n_asked, n_done;
	uint64_t (*copy)(struct backend *b, const struct backend_copy *copy);
	uint64_t (*done)(struct backend *b);
	bool on;
};

/* Attention's batches, from the end of one to the end of another. */
struct pace {
	uint64_t first, last;
	uint64_t first_ns, last_ns;
};

struct copies {
	struct tiers_bench bench;
	struct tiers_attention attention;
	uint32_t first_extent, n_extents; /* of what is copied */
	struct way ways[2]; /* down, up */
	uint64_t before[2]; /* tokens of earlier measurements */
	bool in_order; /* else scattered */
};

/* Scattered, and each once: slice i of n, an odd multiple of it. */
static struct backend_copy slice_of(const struct copies *c, uint64_t i, uint64_t bytes,
				    uint32_t way)
{
	uint64_t each = TIERS_EXTENT_BYTES / bytes, n = each * c->n_extents;
	uint64_t at = i * 2654435761u % n, host = i * 40503u % n;

	if (c->in_order) {
		at = i % n;
		host = 2 * at % n + 2 * at / n;
	}
	return (struct backend_copy){
		.extent = c->first_extent + (uint32_t)(at / each),
		.offset_bytes = at % each * bytes,
		.bytes = bytes,
		.host = c->bench.host + (way * c->n_extents) * TIERS_EXTENT_BYTES +
			host / each * TIERS_EXTENT_BYTES + host % each * bytes,
	};
}

static void way_go_on(struct copies *c, uint32_t i, uint64_t bytes, uint64_t n, uint32_t under_way)
{
	struct way *w = &c->ways[i];
	uint32_t asked = 0;

	w->n_done = w->done(c->bench.backend) - c->before[i];
	for (; w->n_asked < n && w->n_asked - w->n_done < under_way && asked < KICK; asked++) {
		struct backend_copy copy = slice_of(c, w->n_asked, bytes, i);
		w->n_asked = w->copy(c->bench.backend, &copy) - c->before[i];
	}
	if (asked > 0)
		c->bench.ops->tier->kick(c->bench.backend);
}

static int pump(struct copies *c, struct pace *p)
{
	uint64_t before = c->attention.n_done;
	int r = tiers_attention_pump(&c->attention);

	if (c->attention.n_done == before)
		return r;
	p->last = c->attention.n_done;
	p->last_ns = clock_now_ns();
	if (p->first_ns == 0) {
		p->first = p->last;
		p->first_ns = p->last_ns;
	}
	return r;
}

/* Batches a second; 0: too few have ended. */
static double pace_of(const struct pace *p)
{
	return p->last_ns > p->first_ns
		       ? (double)(p->last - p->first) / ((double)(p->last_ns - p->first_ns) / 1e9)
		       : 0;
}

/* So many bytes each way that is on; returns the seconds that the ways took, 0 for one that is off.
 * pace: attention is at work meanwhile; NULL: it is not. */
static int measure(struct copies *c, uint64_t bytes, struct pace *pace, double ret_s[2])
{
	uint64_t n = c->bench.options->copy_bytes / bytes, start_ns = clock_now_ns();
	int r = 0;

	ret_s[0] = ret_s[1] = 0;
	for (uint32_t i = 0; i < 2; i++) {
		c->before[i] = c->ways[i].done(c->bench.backend);
		c->ways[i].n_asked = c->ways[i].n_done = 0;
	}
	for (bool more = true; more && !r;) {
		more = false;
		for (uint32_t i = 0; i < 2; i++) {
			if (!c->ways[i].on || ret_s[i] > 0)
				continue;
			way_go_on(c, i, bytes, n, pace ? UNDER_WAY_BESIDE : UNDER_WAY);
			more = true;
			if (c->ways[i].n_done == n)
				ret_s[i] = (double)(clock_now_ns() - start_ns) / 1e9;
		}
		if (pace)
			r = pump(c, pace);
	}
	return r;
}

/* For so long, and until two batches have ended. */
static int attention_alone(struct copies *c, struct pace *pace)
{
	uint64_t start_ns = clock_now_ns();
	int r = 0;

	while (!r && (clock_now_ns() - start_ns < ALONE_NS || pace->last == pace->first))
		r = pump(c, pace);
	return r;
}

static void print_rate(const struct copies *c, const char *name, const char *metric, double s)
{
	if (s > 0)
		bench_print("tiers", name, metric, (double)c->bench.options->copy_bytes / s / 1e9,
			    "GB/s");
}

/* One way beside attention that never rests: medians of rounds, of each its batches beside copies
 * over those just before. */
static int one_beside(struct copies *c, const char *name, uint64_t bytes, uint32_t way)
{
	static const char *const busy[] = {"busy_down", "busy_up"};
	static const char *const left[] = {"attention_down", "attention_up"};
	double s[2], taken_s[ROUNDS], of_alone[ROUNDS];
	struct pace warm = {0};
	int r = attention_alone(c, &warm);

	for (uint32_t i = 0; i < ROUNDS && !r; i++) {
		struct pace alone = {0}, beside = {0};
		r = attention_alone(c, &alone);
		if (!r)
			r = measure(c, bytes, &beside, s);
		taken_s[i] = s[way];
		of_alone[i] = pace_of(&beside) / pace_of(&alone);
	}
	if (!r)
		r = tiers_attention_settle(&c->attention);
	if (r)
		return r;
	print_rate(c, name, busy[way], bench_median(taken_s, ROUNDS));
	bench_print("tiers", name, left[way], bench_median(of_alone, ROUNDS), "of alone");
	return 0;
}

static int one_size(struct copies *c, const char *name, uint64_t bytes, bool busy)
{
	static const char *const ways[] = {"down", "up"}, *const both[] = {"both_down", "both_up"};
	double s[2];
	int r = 0;

	for (uint32_t i = 0; i < 2 && !r; i++) {
		c->ways[i].on = true;
		c->ways[1 - i].on = false;
		r = measure(c, bytes, NULL, s);
		print_rate(c, name, ways[i], s[i]);
		if (!r && busy)
			r = one_beside(c, name, bytes, i);
	}
	c->ways[0].on = c->ways[1].on = true;
	if (!r)
		r = measure(c, bytes, NULL, s);
	for (uint32_t i = 0; i < 2 && !r; i++)
		print_rate(c, name, both[i], s[i]);
	return r;
}

static int beside_one(struct copies *c, const char *what, const char *name, uint64_t bytes)
{
	char full[64];

	snprintf(full, sizeof(full), "%s %s", what, name);
	return one_size(c, full, bytes, true);
}

/* Attention that waits for memory, and attention that computes: the same slices beside either, as
 * they come and in order. */
static int beside(struct copies *c, const char *name)
{
	struct pace warm = {0}, alone = {0};
	int r = attention_alone(c, &warm);

	if (!r)
		r = attention_alone(c, &alone);
	if (!r)
		r = tiers_attention_settle(&c->attention);
	bench_print("tiers", name, "alone", pace_of(&alone), "batches/s");
	if (!r)
		r = beside_one(c, "64K", name, 65536);
	c->in_order = true;
	if (!r)
		r = beside_one(c, "64K in order", name, 65536);
	c->in_order = false;
	return r ? r : beside_one(c, "extents", name, TIERS_EXTENT_BYTES);
}

static int all_sizes(struct copies *c)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} sizes[] = {{"extents", TIERS_EXTENT_BYTES},
		     {"16K", 16384},
		     {"64K", 65536},
		     {"128K", 131072},
		     {"256K", 262144},
		     {"1M", 1u << 20},
		     {"4M", 4u << 20}};
	int r = 0;

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r; i++)
		r = one_size(c, sizes[i].name, sizes[i].bytes, false);
	return r;
}

static int copies_init(struct copies *c, const struct tiers_options *o,
		       const struct backend_ops *ops, uint32_t attention_extents)
{
	uint32_t n_extents = ops == &backend_cpu ? 4 : 16;
	*c = (struct copies){.n_extents = n_extents, .first_extent = attention_extents};
	int r = tiers_bench_init(&c->bench, o, ops,
				 (attention_extents + n_extents) * TIERS_EXTENT_BYTES,
				 2 * n_extents * TIERS_EXTENT_BYTES);

	if (r)
		return r;
	c->ways[0] = (struct way){.copy = ops->tier->down, .done = ops->tier->downs_done};
	c->ways[1] = (struct way){.copy = ops->tier->up, .done = ops->tier->ups_done};
	for (uint32_t i = 0; i < n_extents && !r; i++)
		r = ops->extent_commit(c->bench.backend, c->first_extent + i);
	return r;
}

int tiers_up_rate(const struct tiers_options *o, const struct backend_ops *ops, double *ret)
{
	const uint64_t bytes = 131072;
	double s[2];
	struct copies c;
	int r = copies_init(&c, o, ops, 0);

	if (r)
		return r;
	c.ways[1].on = true;
	r = measure(&c, bytes, NULL, s);
	tiers_bench_done(&c.bench);
	*ret = (double)(o->copy_bytes / bytes * bytes) / s[1];
	return r;
}

int tiers_copies(const struct tiers_options *o, const struct backend_ops *ops)
{
	bool gpu = ops != &backend_cpu;
	static const char *const names[] = {"beside decode", "beside prefill"};
	const uint32_t n[] = {gpu ? 64 : 4, 1}, old[] = {gpu ? 4095 : 2047, gpu ? 8192 : 1024};
	const uint32_t n_new[] = {1, gpu ? 2048 : 64};
	struct copies c;
	int r = copies_init(&c, o, ops, gpu ? 40 : 4);

	if (r)
		return r;
	r = all_sizes(&c);
	for (uint32_t i = 0; i < 2 && !r; i++) {
		r = tiers_attention_init(&c.attention, &c.bench, n[i], old[i], n_new[i]);
		if (!r)
			r = beside(&c, names[i]);
		tiers_attention_done(&c.attention);
	}
	tiers_bench_done(&c.bench);
	return r;
}
#endif
