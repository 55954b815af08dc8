/*
 * attention_cuda.c - one workload after the other: what is measured of each, and what the file says
 * of other systems beside it.
 */
#include "attention_cuda.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"
#include "card.h"
#include "cases.h"
#include "clocks.h"
#include "costs_file.h"
#include "json_file.h"
#include "kernels/cuda/schedule/schedule.h"
#include "limits.h"
#include "results.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 128u

struct bench {
	const struct attention_cuda *o;
	struct card card;
	struct cuda_card known;
	struct costs costs; /* with o->costs */
	struct limits limits;
	struct results results;
};

/* ---- what the file says of other systems ---------------------------------------------------- */

/* Microseconds of a key that is another system's time, else 0; ret_name is the system's. */
static double peer_us(const char *key, const json_t *value, char ret_name[NAME_BYTES])
{
	size_t n = strlen(key);
	bool us = n > 3 && strcmp(key + n - 3, "_us") == 0;

	if (!json_is_number(value) || (!us && !(n > 3 && strcmp(key + n - 3, "_ms") == 0)) ||
	    strcmp(key, "limit_us") == 0 || strcmp(key, "floor_us") == 0)
		return 0;
	snprintf(ret_name, NAME_BYTES, "ratio_%.*s", (int)(n - 3), key);
	return json_number_value(value) * (us ? 1 : 1000);
}

static double best_peer(const json_t *entry)
{
	char name[NAME_BYTES];
	const char *key;
	double best = 0;
	json_t *value;

	json_object_foreach((json_t *)entry, key, value)
	{
		double us = peer_us(key, value, name);

		if (us > 0 && (best == 0 || us < best))
			best = us;
	}
	return best;
}

static void print_peers(const json_t *entry, const char *name, double us)
{
	char metric[NAME_BYTES];
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)entry, key, value)
	{
		double peer = peer_us(key, value, metric);

		if (peer > 0)
			bench_print("attention", name, metric, peer / us, "x");
	}
}

static void print_result(const json_t *entry, const struct result *x)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%s/%s", x->name, x->policy);
	bench_print("attention", name, "time", x->us, "us");
	bench_print("attention", name, "limit", x->limit_us, "us");
	bench_print("attention", name, "ratio_limit", x->limit_us / x->us, "1");
	print_peers(entry, name, x->us);
	if (x->peer_us > 0)
		bench_print("attention", name, "ratio_best_peer", x->peer_us / x->us, "x");
	bench_print("attention", name, "expected", x->expect_us, "us");
	bench_print("attention", name, "ratio_expected", x->expect_us / x->us, "1");
	bench_print("attention", name, "tflops", x->tflops, "TFLOP/s");
	bench_print("attention", name, "plan", x->plan_us, "us");
	bench_print("attention", name, "submit_first", x->submit_us, "us");
	bench_print("attention", name, "submit_again", x->again_us, "us");
	bench_print("attention", name, "submit_next", x->next_us, "us");
	bench_print("attention", name, "error", x->error, "norm/norm");
}

/* ---- one workload in its own backend -------------------------------------------------------- */

struct run {
	struct bench *bench;
	const json_t *entry; /* of the file, or NULL */
	struct workload_spec spec;
	struct card_run on;
};

/* The list, twice, so that its memory is there at the second; a batch of a new plan, and others of
 * the same. */
static int run_planned(struct run *r, const struct plan_config *config, struct result *x)
{
	double again_us[5], first_us;
	uint64_t start_ns;
	int ret = plan_make(config, &r->on.workload.tree, &r->on.list);

	start_ns = clock_now_ns();
	if (!ret)
		ret = plan_make(config, &r->on.workload.tree, &r->on.list);
	x->plan_us = (double)(clock_now_ns() - start_ns) / 1e3;
	r->bench->card.plan_id++;
	if (!ret)
		ret = card_run_once(&r->on, &first_us);
	for (uint32_t i = 0; i < 5 && !ret; i++)
		ret = card_run_once(&r->on, &again_us[i]);
	if (ret)
		return ret;
	x->submit_us = first_us;
	x->again_us = bench_median(again_us, 5);
	return 0;
}

/* A token later, the shape of the tree being the same: the median of a few such steps. */
static int run_next(struct run *r, const struct plan_config *config, struct result *x)
{
	double next_us[5], submit_us;
	int ret = 0;

	for (uint32_t i = 0; i < 5 && !ret; i++) {
		uint64_t start_ns;

		if (i % 2)
			workload_shrink(&r->on.workload);
		else
			workload_grow(&r->on.workload);
		r->bench->card.plan_id++;
		start_ns = clock_now_ns();
		ret = plan_make(config, &r->on.workload.tree, &r->on.list);
		next_us[i] = (double)(clock_now_ns() - start_ns) / 1e3;
		if (!ret)
			ret = card_run_once(&r->on, &submit_us);
		next_us[i] += submit_us;
	}
	workload_shrink(&r->on.workload);
	if (!ret)
		x->next_us = bench_median(next_us, 5);
	return ret;
}

/* What the planner expected of the plan that was timed. */
static int run_expect(struct run *r, struct result *x)
{
	struct schedule schedule = {0};
	struct schedule_want want = {.shape = &r->spec.shape,
				     .list = &r->on.list,
				     .costs = r->bench->known.costs,
				     .n_blocks = r->bench->known.n_blocks,
				     .code = r->bench->known.code,
				     .flushed = true};
	int ret = schedule_estimate(&schedule, &want);

	x->expect_us = schedule.expect.all_ns / 1e3;
	schedule_done(&schedule);
	return ret;
}

/* O is garbage before and the batch's after. */
static int run_whole(struct run *r, const struct plan_config *config, struct result *x)
{
	int ret = card_run_spoil(&r->on);

	if (!ret)
		ret = run_planned(r, config, x);
	if (!ret)
		ret = card_run_time(&r->on, bench_reps(21), &x->us);
	if (!ret)
		ret = card_run_fetch(&r->on);
	if (!ret)
		ret = run_expect(r, x);
	return ret ? ret : run_next(r, config, x);
}

static void run_compare(struct run *r, struct result *x)
{
	static const double bounds[] = {[WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
	double named = json_number_value(json_object_get(r->entry, "limit_us"));
	double flops = workload_flops(&r->on.workload);

	x->limit_us = named > 0 ? named
				: limits_us(&r->bench->limits,
					    (double)workload_bytes(&r->on.workload), flops);
	x->peer_us = best_peer(r->entry);
	x->tflops = flops / x->us * 1e-6;
	x->error = workload_error(&r->on.workload);
	x->right = x->error <= bounds[r->spec.shape.dtype];
}

/* Trees and cascades of a file by the letters of their names; what is built in is one kind. */
static void name_result(const struct run *r, const char *policy, struct result *x)
{
	const char *name = r->spec.name;
	int letters = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz");

	snprintf(x->name, sizeof(x->name), "%s", name);
	snprintf(x->policy, sizeof(x->policy), "%s", policy);
	if (r->entry)
		snprintf(x->kind, sizeof(x->kind), "%.*s %u/%u", letters > 20 ? 20 : letters, name,
			 r->spec.shape.n_q_heads, r->spec.shape.n_kv_heads);
	else
		snprintf(x->kind, sizeof(x->kind), r->bench->o->n_random ? "random" : "built in");
}

static bool run_policy(struct run *r, const char *policy)
{
	struct plan_config config;
	struct result x = {.right = false};

	plan_config_init(&config, PLAN_AUTO, &r->spec.shape,
			 r->bench->known.n_blocks / r->spec.shape.n_kv_heads + 1);
	if (plan_policy_parse(policy, &config) != 0)
		return false;
	config.tile_rows = r->on.card->ops->tile_rows(r->on.backend, &r->spec.shape);
	name_result(r, policy, &x);
	if (run_whole(r, &config, &x) != 0) {
		fprintf(stderr, "coppice-bench: %s: %s failed\n", r->spec.name, policy);
		return false;
	}
	run_compare(r, &x);
	results_add(&r->bench->results, &x);
	if (!r->bench->o->brief)
		print_result(r->entry, &x);
	if (r->bench->o->clocks)
		x.right = clocks_show(&r->on, x.name, policy) == 0 && x.right;
	if (!x.right)
		fprintf(stderr, "coppice-bench: %s/%s: the output is wrong\n", x.name, policy);
	return x.right;
}

/* All of those that names has, with commas between. */
static bool run_policies(struct run *r, const char *names)
{
	char copy[256], *rest = copy, *policy;
	bool right = true;

	snprintf(copy, sizeof(copy), "%s", names);
	while ((policy = strsep(&rest, ",")) != NULL)
		right = run_policy(r, policy) && right;
	return right;
}

static bool run_all_policies(struct run *r)
{
	bool right = true;

	for (uint32_t i = 0; i < PLAN_N_WAYS; i++)
		right = run_policy(r, plan_ways[i]) && right;
	return right;
}

/* All policies on r->spec, which it frees. */
static bool bench_spec(struct run *r)
{
	const struct attention_cuda *o = r->bench->o;
	char error[256] = "";
	bool right;
	int ret;

	if (!case_wanted(o->only, r->spec.name)) {
		workload_spec_done(&r->spec);
		return true;
	}
	ret = card_run_init(&r->on, &r->bench->card, &r->spec, error, sizeof(error));
	if (ret)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", r->spec.name, strerror(-ret), error);
	else if (o->costs)
		r->bench->card.plan_as(r->on.backend, &r->bench->costs,
				       &(struct schedule_choice){0});
	right = !ret && (strcmp(o->policies, "all") == 0 ? run_all_policies(r)
							 : run_policies(r, o->policies));
	card_run_done(&r->on);
	workload_spec_done(&r->spec);
	return right;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static bool bench_file(struct bench *b, const struct case_options *cases)
{
	json_t *root = json_file_read_array(b->o->workload, "workloads");
	bool right = root != NULL;

	for (size_t i = 0; i < json_array_size(root); i++) {
		struct run r = {.bench = b, .entry = json_array_get(root, i)};

		if (case_read(r.entry, cases, &r.spec) == 0) {
			/* what it says of times is of other heads then */
			if (cases->q_heads || cases->head_dim)
				r.entry = NULL;
			right = bench_spec(&r) && right;
			continue;
		}
		fprintf(stderr,
			"coppice-bench: %s: entry %zu lacks name, nodes, lengths or heads\n",
			b->o->workload, i + 1);
		workload_spec_done(&r.spec);
		right = false;
	}
	json_decref(root);
	return right;
}

static bool bench_built_in(struct bench *b, const struct case_options *cases)
{
	bool right = true;

	for (uint32_t i = 0; i < case_count(); i++) {
		struct run r = {.bench = b};

		if (case_built_in(i, cases, &r.spec) == 0)
			right = bench_spec(&r) && right;
		else
			right = false;
	}
	return right;
}

/* Trees drawn anew, by a seed that is printed. */
static bool bench_random(struct bench *b, const struct case_options *cases)
{
	struct oracle_random random = oracle_seed("attention");
	bool right = true;

	for (uint32_t i = 0; i < b->o->n_random; i++) {
		struct run r = {.bench = b};

		if (case_random(i, &random, cases, &r.spec) == 0)
			right = bench_spec(&r) && right;
		else
			right = false;
	}
	return right;
}

static int measure_card(struct bench *b)
{
	struct backend *backend = NULL;
	int ret = card_open(&b->card, &backend);

	if (ret)
		return ret;
	b->card.describe(backend, &b->known);
	ret = limits_init(&b->limits, b->card.stream, b->o->tflops);
	if (ret)
		fprintf(stderr, "coppice-bench: the card cannot be measured\n");
	b->card.ops->close(backend);
	return ret;
}

int attention_cuda_main(const struct attention_cuda *options)
{
	struct case_options cases = options->cases;
	struct bench b = {.o = options};
	bool right;

	if (card_load(&b.card, options->module) != 0 || measure_card(&b) != 0)
		return 1;
	if (options->costs) {
		b.costs = *b.known.costs;
		b.known.costs = &b.costs;
		if (!costs_file_read(options->costs, &b.costs))
			return 1;
	}
	right = options->workload   ? bench_file(&b, &cases)
		: options->n_random ? bench_random(&b, &cases)
				    : bench_built_in(&b, &cases);
	results_print_means(&b.results);
	results_print(&b.results, stdout);
	results_done(&b.results);
	return right ? 0 : 1;
}
#endif
