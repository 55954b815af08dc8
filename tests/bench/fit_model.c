/*
 * fit_model.c - the experiments, a table of families and what grows in each, and the fit:
 * Gauss-Newton with damping, then constants moved one at a time while the planner's choices by them
 * get better.
 */
#include "fit_model.h"

#ifdef BENCH_HAVE_KERNELS
#include "kernels/plan/plan.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_TOKENS 32u
#define KV_BLOCK_KB 4 /* of head dim 128 */
#define KV_TILE_KB (DEVICE_KV_TILE_BLOCKS * KV_BLOCK_KB)
#define PAGES_PER_EXTENT 64u
#define ROUNDS 60u
#define STEP 0.01 /* of a constant, for slopes */
#define DAMPING_LEAST 1e-6 /* what no experiment tells stays where it was */
#define DAMPING_MOST 1e4
#define ENOUGH 1e-4 /* of what is left, less than which no round is worth */
#define N_FACTORS 8u

static const struct {
	const char *name;
	size_t offset;
} constants[FIT_CONSTANTS] = {
	{"launch_ns", offsetof(struct costs, launch_ns)},
	{"work_tile_ns", offsetof(struct costs, work_tile_ns)},
	{"row_ns_per_kb", offsetof(struct costs, row_ns_per_kb)},
	{"read_ns_per_kb", offsetof(struct costs, read_ns_per_kb)},
	{"copy_ns", offsetof(struct costs, copy_ns)},
	{"kv_tile_ns_per_kb", offsetof(struct costs, kv_tile_ns_per_kb)},
	{"wide_tile_ns_per_kb", offsetof(struct costs, wide_tile_ns_per_kb)},
	{"kv_tile_ns", offsetof(struct costs, kv_tile_ns)},
	{"wide_tile_ns", offsetof(struct costs, wide_tile_ns)},
	{"turned_times", offsetof(struct costs, turned_times)},
	{"part_ns_per_kb", offsetof(struct costs, part_ns_per_kb)},
	{"merge_ns", offsetof(struct costs, merge_ns)},
	{"memory_ns_per_kb", offsetof(struct costs, memory_ns_per_kb)},
	{"flush_ns_per_kb", offsetof(struct costs, flush_ns_per_kb)},
	{"cache_kb", offsetof(struct costs, cache_kb)},
};

const char *fit_constant_name(uint32_t i)
{
	return constants[i].name;
}

double *fit_constant(struct costs *costs, uint32_t i)
{
	return (double *)((char *)costs + constants[i].offset);
}

/* ---- experiments ---------------------------------------------------------------------------- */

/* Two levels, in 16 query heads a KV head; nodes in 24ths of the multiprocessors, 0: one. Work
 * tiles of so many tokens (of 16 rows each), cut to this share of a block's. */
struct design {
	const char *name;
	uint32_t head_dim;
	uint32_t roots, leaves;
	uint32_t root_tokens, leaf_tokens;
	uint32_t work_tile_tokens;
	double share;
	uint32_t page_tokens, kv_heads; /* 0: 32, 1 */
};

static const struct design designs[] = {
	/* one work tile a multiprocessor, then two and more: launch, work tile */
	{"work_tiles_1", 128, 24, 24, 31, 1, 1, 0},
	{"work_tiles_2", 128, 48, 48, 31, 1, 1, 0},
	{"work_tiles_3", 128, 72, 72, 31, 1, 1, 0},
	{"work_tiles_4", 128, 96, 96, 31, 1, 1, 0},
	/* more to read of each, the same for all and each its own, up to the cache's size and
	 * beyond: read; memory, flush, cache */
	{"again_1024", 128, 0, 24, 1024, 1, 1, 0},
	{"again_4096", 128, 0, 24, 4096, 1, 1, 0},
	/* the same in pages half as long, of which each head's lie apart: copy */
	{"apart_1024", 128, 0, 12, 1024, 1, 1, 0, 16, 2},
	{"apart_4096", 128, 0, 12, 4096, 1, 1, 0, 16, 2},
	{"read_128", 128, 24, 24, 127, 1, 1, 0},
	{"read_512", 128, 24, 24, 511, 1, 1, 0},
	{"read_1024", 128, 24, 24, 1023, 1, 1, 0},
	{"read_2048", 128, 24, 24, 2047, 1, 1, 0},
	{"read_4096", 128, 24, 24, 4095, 1, 1, 0},
	{"read_8192", 128, 24, 24, 8191, 1, 1, 0},
	/* 128 rows on what all read, in wide tiles, and of a head dim that has none: wide tile, KV
	 * tile */
	{"wide_tiles_1024", 128, 0, 192, 1024, 1, 8, 0},
	{"wide_tiles_4096", 128, 0, 192, 4096, 1, 8, 0},
	{"wide_tiles_8192", 128, 0, 192, 8192, 1, 8, 0},
	/* with 64 rows, whose warp groups take wide tiles by turns, and of another head dim */
	{"turned_1024", 128, 0, 96, 1024, 1, 4, 0},
	{"turned_4096", 128, 0, 96, 4096, 1, 4, 0},
	{"turned_8192", 128, 0, 96, 8192, 1, 4, 0},
	{"wide_64_4096", 64, 0, 192, 4096, 1, 8, 0},
	{"turned_64_4096", 64, 0, 96, 4096, 1, 4, 0},
	/* 32 rows, which have no wide tiles, of other head dims: what does not go by it */
	{"narrow_4096", 128, 0, 48, 4096, 1, 2, 0},
	{"narrow_64_1024", 64, 0, 48, 1024, 1, 2, 0},
	{"narrow_64_4096", 64, 0, 48, 4096, 1, 2, 0},
	{"narrow_64_8192", 64, 0, 48, 8192, 1, 2, 0},
	{"narrow_256_4096", 256, 0, 48, 4096, 1, 2, 0},
	{"kv_tiles_512", 256, 0, 192, 512, 1, 8, 0},
	{"kv_tiles_2048", 256, 0, 192, 2048, 1, 8, 0},
	/* 16 rows and more, each block of them with a KV tile of its own, of 32 tokens or of one:
	 * row */
	{"rows_16", 128, 24, 24, 256, 32, 1, 0},
	{"rows_32", 128, 24, 48, 256, 32, 2, 0},
	{"rows_64", 128, 24, 96, 256, 32, 4, 0},
	{"rows_128", 128, 24, 192, 256, 32, 8, 0},
	{"rows_128_2", 128, 48, 384, 256, 32, 8, 0},
	{"small_64", 128, 24, 96, 256, 1, 4, 0},
	{"small_128", 128, 24, 192, 256, 1, 8, 0},
	/* the same, on what all read, cut in two, three and four, with many rows and few: merge,
	 * part */
	{"cut_1x128", 128, 0, 192, 512, 32, 8, 0},
	{"cut_2x128", 128, 0, 96, 1024, 32, 8, 1},
	{"cut_3x128", 128, 0, 64, 1536, 32, 8, 1},
	{"cut_4x128", 128, 0, 48, 2048, 32, 8, 1},
	{"cut_2x16", 128, 0, 12, 2048, 32, 1, 1},
	{"cut_4x16", 128, 0, 6, 4096, 32, 1, 1},
	{"cut_8x16", 128, 0, 3, 8192, 32, 1, 1},
};

uint32_t fit_count(void)
{
	return sizeof(designs) / sizeof(designs[0]);
}

static struct work_shape shape_of(const struct design *d)
{
	uint32_t kv_heads = d->kv_heads ? d->kv_heads : 1;

	return (struct work_shape){.n_layers = 1,
				   .n_q_heads = 16 * kv_heads,
				   .n_kv_heads = kv_heads,
				   .head_dim = d->head_dim,
				   .page_tokens = d->page_tokens ? d->page_tokens : PAGE_TOKENS,
				   .dtype = WORK_FP16,
				   .scale = 1 / sqrtf((float)d->head_dim)};
}

static uint32_t nodes_of(uint32_t part, const struct fit_card *card)
{
	uint32_t n = part * card->n_blocks / 24;

	return n ? n : 1;
}

/* As the backend's. */
static int plan(struct fit_experiment *e)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &e->spec.shape, 1);
	config.tile_rows = PLAN_DEVICE_ROWS;
	return plan_make(&config, &e->workload.tree, &e->list);
}

int fit_experiment_of(struct fit_experiment *e, struct workload_spec *spec)
{
	int r;

	*e = (struct fit_experiment){.spec = *spec};
	*spec = (struct workload_spec){0};
	r = workload_init_tree(&e->workload, &e->spec);
	return r ? r : plan(e);
}

int fit_experiment_init(struct fit_experiment *e, uint32_t i, const struct fit_card *card)
{
	const struct design *d = &designs[i];
	uint32_t nodes[] = {nodes_of(d->roots, card), nodes_of(d->leaves, card)};
	uint32_t tokens[] = {d->root_tokens, d->leaf_tokens};
	struct workload_spec spec = {.shape = shape_of(d)};
	int r;

	*e = (struct fit_experiment){0};
	snprintf(spec.name, sizeof(spec.name), "%s", d->name);
	r = workload_spec_levels(&spec, nodes, tokens, 2);
	if (!r)
		r = fit_experiment_of(e, &spec);
	workload_spec_done(&spec);
	e->choice = (struct schedule_choice){d->work_tile_tokens, d->share};
	return r;
}

void fit_experiment_done(struct fit_experiment *e)
{
	plan_list_done(&e->list);
	workload_done(&e->workload);
	workload_spec_done(&e->spec);
}

int fit_expect(const struct fit_experiment *e, const struct fit_card *card,
	       const struct costs *costs, double *ret_us)
{
	struct schedule schedule = {0};
	struct schedule_want want = {.shape = &e->spec.shape,
				     .list = &e->list,
				     .costs = costs,
				     .n_blocks = card->n_blocks,
				     .code = card->code,
				     .flushed = true,
				     .choice = e->choice};
	int r = schedule_estimate(&schedule, &want);

	*ret_us = schedule.expect.all_ns / 1e3;
	schedule_done(&schedule);
	return r;
}

/* ---- least squares -------------------------------------------------------------------------- */

struct system {
	double a[FIT_CONSTANTS][FIT_CONSTANTS], b[FIT_CONSTANTS];
};

/* By elimination; a is symmetric and, with the ridge, definite. */
static void solve(struct system *s, double *x)
{
	for (uint32_t i = 0; i < FIT_CONSTANTS; i++) {
		for (uint32_t j = i + 1; j < FIT_CONSTANTS; j++) {
			double f = s->a[j][i] / s->a[i][i];

			for (uint32_t k = i; k < FIT_CONSTANTS; k++)
				s->a[j][k] -= f * s->a[i][k];
			s->b[j] -= f * s->b[i];
		}
	}
	for (uint32_t i = FIT_CONSTANTS; i-- > 0;) {
		x[i] = s->b[i];
		for (uint32_t k = i + 1; k < FIT_CONSTANTS; k++)
			x[i] -= s->a[i][k] * x[k];
		x[i] /= s->a[i][i];
	}
}

/* Sum of squares of relative residuals. */
static int misfit(const struct fit_experiment *experiments, uint32_t n, const struct fit_card *card,
		  const struct costs *costs, double *ret)
{
	*ret = 0;
	for (uint32_t i = 0; i < n; i++) {
		double us;
		int r = fit_expect(&experiments[i], card, costs, &us);

		if (r)
			return r;
		*ret += pow(us / experiments[i].us - 1, 2);
	}
	return 0;
}

/* Relative slopes of an experiment's time, a constant growing by its own size. */
static int slopes(const struct fit_experiment *e, const struct fit_card *card,
		  const struct costs *costs, double *ret_residual, double *ret)
{
	double us, more;
	int r = fit_expect(e, card, costs, &us);

	*ret_residual = us / e->us - 1;
	for (uint32_t j = 0; j < FIT_CONSTANTS && !r; j++) {
		struct costs moved = *costs;

		*fit_constant(&moved, j) *= 1 + STEP;
		r = fit_expect(e, card, &moved, &more);
		ret[j] = (more - us) / (STEP * e->us);
	}
	return r;
}

static int make_system(const struct fit_experiment *experiments, uint32_t n,
		       const struct fit_card *card, const struct costs *costs, struct system *ret)
{
	*ret = (struct system){0};
	for (uint32_t i = 0; i < n; i++) {
		double slope[FIT_CONSTANTS], residual;
		int r = slopes(&experiments[i], card, costs, &residual, slope);

		if (r)
			return r;
		for (uint32_t j = 0; j < FIT_CONSTANTS; j++) {
			for (uint32_t k = 0; k < FIT_CONSTANTS; k++)
				ret->a[j][k] += slope[j] * slope[k];
			ret->b[j] -= slope[j] * residual;
		}
	}
	return 0;
}

/* Costs a damped step further, no constant moved by more than half of itself. */
static struct costs moved_by(const struct costs *costs, struct system system, double damping)
{
	struct costs moved = *costs;
	double step[FIT_CONSTANTS];

	for (uint32_t j = 0; j < FIT_CONSTANTS; j++)
		system.a[j][j] += damping;
	solve(&system, step);
	for (uint32_t j = 0; j < FIT_CONSTANTS; j++)
		*fit_constant(&moved, j) *= 1 + fmax(-0.5, fmin(0.5, step[j]));
	return moved;
}

/* Where all of it is said to go by KB, half begins as what every KV block takes. */
static void split_fold(double *ns_per_kb, double *ns)
{
	if (*ns > 0)
		return;
	*ns_per_kb /= 2;
	*ns = *ns_per_kb * KV_BLOCK_KB;
}

/* Arithmetic that hides behind reading has no slope, nor has what is nothing: starts above. */
static void start_above(struct costs *costs)
{
	double read = costs->read_ns_per_kb + costs->copy_ns / KV_TILE_KB;
	double hidden = 1.5 * read / DEVICE_WARPS;

	costs->kv_tile_ns_per_kb = fmax(costs->kv_tile_ns_per_kb, hidden);
	costs->wide_tile_ns_per_kb = fmax(costs->wide_tile_ns_per_kb, hidden);
	split_fold(&costs->kv_tile_ns_per_kb, &costs->kv_tile_ns);
	split_fold(&costs->wide_tile_ns_per_kb, &costs->wide_tile_ns);
	for (uint32_t j = 0; j < FIT_CONSTANTS; j++) {
		if (*fit_constant(costs, j) <= 0)
			*fit_constant(costs, j) = 1;
	}
}

int fit_solve(const struct fit_experiment *experiments, uint32_t n, const struct fit_card *card,
	      struct costs *costs)
{
	double damping = DAMPING_LEAST, now, next;
	int r;

	start_above(costs);
	r = misfit(experiments, n, card, costs, &now);
	for (uint32_t round = 0; round < ROUNDS && !r && damping < DAMPING_MOST; round++) {
		struct system system;
		double before = now;

		r = make_system(experiments, n, card, costs, &system);
		for (bool better = false; !r && !better && damping < DAMPING_MOST;) {
			struct costs moved = moved_by(costs, system, damping);

			r = misfit(experiments, n, card, &moved, &next);
			better = !r && next < now;
			damping = better ? fmax(damping / 10, DAMPING_LEAST) : damping * 10;
			if (!better)
				continue;
			*costs = moved;
			now = next;
		}
		if (before - now < ENOUGH * before)
			break;
	}
	return r;
}

/* ---- choices -------------------------------------------------------------------------------- */

/* How many experiments from the i-th on are one workload under choices that are told. */
static uint32_t choices_from(const struct fit_experiment *experiments, uint32_t n, uint32_t i)
{
	uint32_t end = i;

	while (end < n && experiments[end].choice.work_tile_tokens &&
	       strcmp(experiments[end].spec.name, experiments[i].spec.name) == 0)
		end++;
	return end - i > 1 ? end - i : 0;
}

/* By how much less than the best of its choices, as a logarithm, a workload gets if the model
 * chooses. expected: of each choice. */
static double regret(const struct fit_experiment *choices, const double *expected, uint32_t n)
{
	double least = INFINITY;
	uint32_t chosen = 0;

	for (uint32_t i = 0; i < n; i++) {
		least = fmin(least, choices[i].us);
		if (expected[i] < expected[chosen])
			chosen = i;
	}
	return log(choices[chosen].us / least);
}

/* Mean square of relative residuals, and mean regret. */
static int badness(const struct fit_experiment *experiments, uint32_t n,
		   const struct fit_card *card, const struct costs *costs, double *ret)
{
	double *expected = calloc(n + 1, sizeof(*expected)), squares = 0, regrets = 0;
	uint32_t n_workloads = 0;
	int r = expected ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && !r; i++) {
		r = fit_expect(&experiments[i], card, costs, &expected[i]);
		squares += pow(expected[i] / experiments[i].us - 1, 2);
	}
	for (uint32_t i = 0, k; i < n && !r; i += k ? k : 1) {
		k = choices_from(experiments, n, i);
		regrets += k ? regret(&experiments[i], &expected[i], k) : 0;
		n_workloads += k > 0;
	}
	free(expected);
	*ret = squares / n + (n_workloads ? regrets / n_workloads : 0);
	return r;
}

int fit_choose(const struct fit_experiment *experiments, uint32_t n, const struct fit_card *card,
	       struct costs *costs)
{
	static const double factors[N_FACTORS] = {0.7, 0.9, 0.97, 0.99, 1.01, 1.03, 1.1, 1.4};
	double now, next;
	int r = badness(experiments, n, card, costs, &now);

	for (bool better = true; better && !r;) {
		better = false;
		for (uint32_t i = 0; i < N_FACTORS * FIT_CONSTANTS && !r; i++) {
			struct costs moved = *costs;

			*fit_constant(&moved, i / N_FACTORS) *= factors[i % N_FACTORS];
			r = badness(experiments, n, card, &moved, &next);
			if (r || next >= now * (1 - ENOUGH))
				continue;
			better = true;
			*costs = moved;
			now = next;
		}
	}
	return r;
}
#endif
