/*
 * tiers_recall.c - what blocks are chosen from the summary of a path whose KV is elsewhere, against
 * those chosen from all of its K: how much of the attention of a few rows, computed in full, either
 * choice holds.
 *
 * Stretches of keys lean towards the queries, each as much as chance has it, and here and there
 * stands a single key that they want: what a mean of 8 keys shows least.
 */
#include "tiers.h"

#if defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE) && defined(BENCH_HAVE_AGENT)
#include "bench.h"

#include "proto/arith.h"
#include "kernels/plan/select.h"
#include "tests/unit/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define N_TOKENS 32768u
#define N_ROWS 512u
#define SAMPLE 16u /* every so-manieth row is attended to in full */
#define BLOCK 1024u
#define N_BLOCKS (N_TOKENS / BLOCK)
#define LEAN_TOKENS 128u
#define LEAN 0.1f
#define NEEDLE 0.4f
#define NEEDLE_EVERY 512u

struct recall {
	struct tiers_bench bench;
	struct work_shape shape;
	uint32_t q_values, k_values; /* of a token */
	float *q, *k; /* owned, as bf16 has them */
	char *memory; /* owned: K, which is V too, then Q */
	uint64_t memory_bytes, base;
	struct work_slice *slices; /* owned */
	uint32_t n_slices;
	struct backend_summary *summary; /* owned */
	double *truth; /* owned, [n_kv_heads][N_BLOCKS] */
	const float *mass; /* the backend's, [n_kv_heads][blocks of rows][N_BLOCKS] */
};

/* ---- keys and queries ----------------------------------------------------------------------- */

static void fill(struct recall *r)
{
	struct oracle_random random = {88172645463325252u};
	uint32_t dim = r->shape.head_dim;
	float lean = 0;

	for (uint32_t i = 0; i < N_ROWS * r->q_values; i++)
		r->q[i] = oracle_normal(&random) + 1;
	for (uint32_t head = 0; head < r->shape.n_kv_heads; head++)
		for (uint32_t t = 0; t < N_TOKENS; t++) {
			bool needle = oracle_below(&random, NEEDLE_EVERY) == 0;
			if (t % LEAN_TOKENS == 0)
				lean = LEAN * oracle_normal(&random);
			for (uint32_t d = 0; d < dim; d++)
				r->k[t * r->k_values + head * dim + d] =
					oracle_normal(&random) + (needle ? NEEDLE : lean);
		}
	uint16_t *at = (uint16_t *)(void *)r->memory;
	oracle_encode(WORK_BF16, at, r->k, (size_t)N_TOKENS * r->k_values);
	oracle_decode(WORK_BF16, r->k, at, (size_t)N_TOKENS * r->k_values);
	at += (size_t)N_TOKENS * r->k_values;
	oracle_encode(WORK_BF16, at, r->q, (size_t)N_ROWS * r->q_values);
	oracle_decode(WORK_BF16, r->q, at, (size_t)N_ROWS * r->q_values);
}

static int append(struct recall *r)
{
	const struct backend_ops *ops = r->bench.ops;
	struct work_node node = {.parent = WORK_NONE,
				 .n_tokens = N_TOKENS,
				 .n_slices = r->n_slices};
	struct work_query query = {.n_rows = N_TOKENS};
	struct work_tree tree = {&node, r->slices, &query, 1, r->n_slices, 1};
	struct backend_io io = {.k = r->base,
				.v = r->base,
				.k_stride = r->k_values * 2,
				.v_stride = r->k_values * 2,
				.slots = r->slices,
				.n_slots = r->n_slices};
	struct backend_span span = {.shape = &r->shape,
				    .slices = r->slices,
				    .n_slices = r->n_slices};
	struct plan_config plan;
	struct work_list list = {0};
	const struct backend_job job = {.shape = &r->shape,
					.tree = &tree,
					.list = &list,
					.io = &io};
	uint64_t id = 0, done = 0;

	plan_config_init(&plan, PLAN_AUTO, &r->shape, 8);
	plan.tile_rows = ops->tile_rows(r->bench.backend, &r->shape);
	int e = plan_make(&plan, &tree, &list);
	if (!e)
		e = ops->submit(r->bench.backend, &(struct backend_batch){&job, 1}, &id);
	while (!e && done < id)
		e = ops->completed(r->bench.backend, &done);
	plan_list_done(&list);
	if (!e)
		e = ops->tier->summary->make(r->bench.backend, &r->shape, &r->summary);
	return e ? e : ops->tier->summary->add(r->bench.backend, r->summary, &span);
}

/* ---- attention in full ---------------------------------------------------------------------- */

static void attend_row(const struct recall *r, uint32_t row, uint32_t head, float *scores)
{
	uint32_t dim = r->shape.head_dim,
		 kv_head = head / (r->shape.n_q_heads / r->shape.n_kv_heads);
	uint32_t n = N_TOKENS - N_ROWS + row + 1;
	const float *q = r->q + row * r->q_values + head * dim;
	double max = -INFINITY, sum = 0;

	for (uint32_t t = 0; t < n; t++) {
		const float *k = r->k + (size_t)t * r->k_values + kv_head * dim;
		float score = 0;
		for (uint32_t d = 0; d < dim; d++)
			score += q[d] * k[d];
		scores[t] = score * r->shape.scale;
		max = fmax(max, (double)scores[t]);
	}
	for (uint32_t t = 0; t < n; t++)
		sum += exp((double)scores[t] - max);
	for (uint32_t t = 0; t < n; t++)
		r->truth[kv_head * N_BLOCKS + t / BLOCK] += exp((double)scores[t] - max) / sum;
}

static int attend(struct recall *r)
{
	float *scores = malloc(N_TOKENS * sizeof(*scores));

	for (uint32_t row = 0; scores && row < N_ROWS; row += SAMPLE)
		for (uint32_t head = 0; head < r->shape.n_q_heads; head++)
			attend_row(r, row, head, scores);
	free(scores);
	return scores ? 0 : -ENOMEM;
}

/* ---- choices -------------------------------------------------------------------------------- */

struct choice {
	double kept, held; /* blocks of all, attention of all */
};

static int choose(struct recall *r, bool by_summary, double tau, struct choice *ret)
{
	const struct backend_estimate e = {
		.shape = &r->shape,
		.summary = by_summary ? r->summary : NULL,
		.slices = r->slices,
		.n_slices = r->n_slices,
		.q = r->base + (uint64_t)N_TOKENS * r->k_values * 2,
		.q_stride = r->q_values * 2,
		.n_q = N_ROWS,
		.q_pos = N_TOKENS - N_ROWS,
		.n_k = N_TOKENS,
		.stride = 8,
		.block_tokens = BLOCK,
	};
	const struct select_config config = {.tau = tau, .sink_blocks = 1, .recent_blocks = 1};
	uint32_t n_kept = 0, n_heads = r->shape.n_kv_heads;
	double held = 0, all = 0;
	int error = r->bench.ops->estimate(r->bench.backend, &e, &r->mass);

	for (uint32_t head = 0; head < n_heads && !error; head++) {
		uint64_t kept[(N_BLOCKS + 63) / 64];
		struct select_result result;
		double mass[N_BLOCKS];
		for (uint32_t i = 0; i < N_BLOCKS; i++)
			mass[i] = (double)r->mass[head * N_BLOCKS + i];
		error = select_blocks(&config, mass, N_BLOCKS, kept, &result);
		n_kept += result.n_kept;
		for (uint32_t i = 0; i < N_BLOCKS; i++) {
			double truth = r->truth[head * N_BLOCKS + i];
			all += truth;
			held += select_has(kept, i) ? truth : 0;
		}
	}
	*ret = (struct choice){(double)n_kept / (n_heads * N_BLOCKS), held / all};
	return error;
}

static int compare(struct recall *r)
{
	static const double taus[] = {0.5, 0.8, 0.9, 0.95};
	struct choice summary, full;
	int error = 0;

	for (uint32_t i = 0; i < sizeof(taus) / sizeof(*taus) && !error; i++) {
		char name[64];
		error = choose(r, true, taus[i], &summary);
		if (!error)
			error = choose(r, false, taus[i], &full);
		if (error)
			break;
		snprintf(name, sizeof(name), "recall tau %g", taus[i]);
		bench_print("tiers", name, "blocks by summary", summary.kept, "of 1");
		bench_print("tiers", name, "blocks by all K", full.kept, "of 1");
		bench_print("tiers", name, "attention held", summary.held, "of 1");
		bench_print("tiers", name, "by all K", full.held, "of 1");
		bench_print("tiers", name, "recall", summary.held / full.held, "1");
	}
	return error;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int reserve(struct recall *r)
{
	uint32_t n_extents;
	int e = 0;

	r->q_values = r->shape.n_q_heads * r->shape.head_dim;
	r->k_values = r->shape.n_kv_heads * r->shape.head_dim;
	r->n_slices = N_TOKENS / r->shape.page_tokens;
	r->memory_bytes = ((uint64_t)N_TOKENS * r->k_values + (uint64_t)N_ROWS * r->q_values) * 2;
	r->memory = mmap(NULL, r->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	r->q = malloc((size_t)N_ROWS * r->q_values * sizeof(*r->q));
	r->k = malloc((size_t)N_TOKENS * r->k_values * sizeof(*r->k));
	r->slices = calloc(r->n_slices, sizeof(*r->slices));
	r->truth = calloc((size_t)r->shape.n_kv_heads * N_BLOCKS, sizeof(*r->truth));
	if (r->memory == MAP_FAILED || !r->q || !r->k || !r->slices || !r->truth)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n_slices; i++)
		r->slices[i] = (struct work_slice){i, 0, (uint16_t)r->shape.page_tokens};
	n_extents = tiers_extents(&r->bench, &r->shape, N_TOKENS);
	for (uint32_t i = 0; i < n_extents && !e; i++)
		e = r->bench.ops->extent_commit(r->bench.backend, i);
	return e ? e
		 : r->bench.ops->arena_attach(r->bench.backend, r->memory, r->memory_bytes,
					      &r->base);
}

static void done(struct recall *r)
{
	r->bench.ops->tier->summary->free(r->bench.backend, r->summary);
	if (r->base)
		r->bench.ops->arena_detach(r->bench.backend, r->base, r->memory_bytes);
	munmap(r->memory, r->memory_bytes);
	free(r->q);
	free(r->k);
	free(r->slices);
	free(r->truth);
	tiers_bench_done(&r->bench);
}

int tiers_recall(const struct tiers_options *o, const struct backend_ops *ops)
{
	struct recall r = {0};
	int e = ops->estimate && ops->tier->summary
			? tiers_bench_init(&r.bench, o, ops, 8 * TIERS_EXTENT_BYTES, 0)
			: -ENOTSUP;

	if (e)
		return e;
	r.shape = tiers_shape(&r.bench, 1);
	e = reserve(&r);
	if (!e) {
		fill(&r);
		e = append(&r);
	}
	if (!e)
		e = attend(&r);
	if (!e)
		e = compare(&r);
	done(&r);
	return e;
}
#elif defined(BENCH_HAVE_KERNELS) && defined(BENCH_HAVE_KVSTORE)
int tiers_recall(const struct tiers_options *o, const struct backend_ops *ops)
{
	(void)o;
	(void)ops;
	return 0;
}
#endif
