/*
 * explain.c - makes the lists and schedules of the workloads without a device and prints what they
 * are made of and what each part is modelled to take.
 */
#include "explain.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"
#include "json_file.h"
#include "kernels/cuda/schedule/schedule.h"
#include "kernels/plan/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGES_PER_EXTENT 64u
#define NEXT_TOKENS 16u /* two new KV blocks for each sequence */

static void print_head(const struct costs *costs)
{
	printf("costs of %s (%s); the cache was flushed by a write, as the bench does\n\n",
	       costs->architecture, costs->fitted);
	printf("%-28s %5s %6s %5s %6s %6s %6s %6s %7s | %6s %8s %6s %6s %6s %6s %6s %8s us "
	       "expected | %8s us of this CPU\n",
	       "workload", "rows", "tiles", "cut", "waves", "wide", "KV", "read x", "partials",
	       "launch", "KV", "tiles", "parts", "idle", "memory", "merge", "all", "a token");
}

static bool is_decode(const struct work_tree *tree)
{
	for (uint32_t i = 0; i < tree->n_queries; i++) {
		if (tree->queries[i].n_rows != 1 || tree->queries[i].parents)
			return false;
	}
	return true;
}

/* The mean time that it takes to take the next token of every sequence into list and schedule. 0,
 * or -ESTALE: this is no plan for that. */
static int time_tokens(const struct schedule *schedule, struct work_list *list, double *ret_us)
{
	struct schedule_growth growth = {0};
	int r = schedule->tails ? schedule_growth_init(&growth, schedule) : -ESTALE;
	uint64_t start_ns = clock_now_ns();

	for (uint32_t t = 0; t < NEXT_TOKENS && !r; t++) {
		for (uint32_t i = 0; i < list->n_rows && !r; i++)
			r = schedule_advance(&schedule->tails[i], ++list->rows[i].pos,
					     schedule->tails[i].source, &growth);
		schedule_growth_written(&growth);
	}
	*ret_us = (double)(clock_now_ns() - start_ns) / 1e3 / NEXT_TOKENS;
	schedule_growth_done(&growth);
	return r;
}

static void print_schedule(const struct workload *w, const char *name, const struct schedule *p,
			   uint32_t n_blocks)
{
	const struct schedule_expect *e = &p->expect;
	const struct device_kv_tile *kv_tiles = p->arrays[SCHEDULE_KV_TILES].at;
	uint32_t heads = w->shape.n_q_heads / w->shape.n_kv_heads, n_wide = 0;
	double n_entries = (double)p->n[SCHEDULE_WORK_TILES] * w->shape.n_kv_heads;

	for (uint32_t i = 0; i < p->n[SCHEDULE_KV_TILES]; i++)
		n_wide += kv_tiles[i].wide;
	printf("%-28s %5u %6u %5u %6.2f %6u %6u %6.2f %8u | ", name, e->work_tile_tokens * heads,
	       p->n[SCHEDULE_WORK_TILES], e->n_cut, n_entries / n_blocks,
	       n_wide / DEVICE_WIDE_KV_TILES, p->n[SCHEDULE_KV_TILES] - n_wide,
	       (double)p->n_kv_blocks * KV_BLOCK_TOKENS / (double)w->tokens, p->n_parts);
	printf("%6.1f %8.1f %6.1f %6.1f %6.1f %6.1f %6.1f %8.1f             | ", e->launch_ns / 1e3,
	       e->kv_blocks_ns / 1e3, e->work_tiles_ns / 1e3, e->parts_ns / 1e3, e->idle_ns / 1e3,
	       e->memory_ns / 1e3, e->merge_ns / 1e3, e->all_ns / 1e3);
}

static int explain(const struct workload *w, const char *name, const struct explain *e,
		   struct work_list *list, struct schedule *schedule)
{
	uint64_t page_bytes =
		4 * (uint64_t)w->shape.head_dim * w->shape.page_tokens * w->shape.n_kv_heads;
	struct schedule_want want = {
		.shape = &w->shape,
		.list = list,
		.pages = {PAGES_PER_EXTENT, page_bytes / KV_SOURCE_BYTES,
			  PAGES_PER_EXTENT * page_bytes / KV_SOURCE_BYTES},
		.costs = e->costs,
		.flushed = true,
		.n_blocks = e->n_blocks,
		.code = CODE_WGMMA,
	};
	struct plan_config config;
	double token_us;
	int r;

	plan_config_init(&config, PLAN_AUTO, &w->shape, e->n_blocks);
	r = plan_policy_parse(e->policy, &config);
	config.tile_rows = PLAN_DEVICE_ROWS;
	if (!r)
		r = plan_make(&config, &w->tree, list);
	if (!r)
		r = schedule_make(schedule, &want);
	if (r)
		return r;
	print_schedule(w, name, schedule, e->n_blocks);
	want.tails = is_decode(&w->tree);
	r = schedule_make(schedule, &want);
	if (!r && time_tokens(schedule, list, &token_us) == 0)
		printf("%8.1f\n", token_us);
	else
		printf("%8s\n", "-");
	return r;
}

static int explain_spec(const struct explain *e, const struct workload_spec *spec)
{
	struct schedule schedule = {0};
	struct work_list list = {0};
	struct workload w;
	int r;

	if (!case_wanted(e->only, spec->name))
		return 0;
	r = workload_init_tree(&w, spec);
	if (!r)
		r = explain(&w, spec->name, e, &list, &schedule);
	schedule_done(&schedule);
	plan_list_done(&list);
	workload_done(&w);
	return r;
}

static int explain_file(const struct explain *e, const json_t *root)
{
	int r = 0;

	for (size_t i = 0; i < json_array_size(root) && !r; i++) {
		struct workload_spec spec;

		r = case_read(json_array_get(root, i), &e->cases, &spec);
		if (!r)
			r = explain_spec(e, &spec);
		workload_spec_done(&spec);
	}
	return r;
}

static int explain_built_in(const struct explain *e)
{
	int r = 0;

	for (uint32_t i = 0; i < case_count() && !r; i++) {
		struct workload_spec spec;

		r = case_built_in(i, &e->cases, &spec);
		if (!r)
			r = explain_spec(e, &spec);
		workload_spec_done(&spec);
	}
	return r;
}

static int explain_random(const struct explain *e)
{
	struct oracle_random random = oracle_seed("explain");
	int r = 0;

	for (uint32_t i = 0; i < e->n_random && !r; i++) {
		struct workload_spec spec;

		r = case_random(i, &random, &e->cases, &spec);
		if (!r)
			r = explain_spec(e, &spec);
		workload_spec_done(&spec);
	}
	return r;
}

int explain_main(const struct explain *e)
{
	json_t *root = e->workload ? json_file_read_array(e->workload, "workloads") : NULL;
	int r;

	if (e->workload && !root)
		return 1;
	print_head(e->costs);
	r = e->workload	  ? explain_file(e, root)
	    : e->n_random ? explain_random(e)
			  : explain_built_in(e);
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s\n", e->workload ? e->workload : "explain",
			strerror(-r));
	json_decref(root);
	return r ? 1 : 0;
}
#endif
