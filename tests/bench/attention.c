/*
 * attention.c - coppice-bench attention: times a backend on trees of KV and checks what it wrote.
 *
 * Two cases are built in, each beside what the machine can do, measured alternately in the same
 * run:
 *      one_131072      one sequence: bound by reading. ratio_read is its rate over that of plain
 *                      vector loads.
 *      shared_4096x64  64 sequences on one prefix: bound by arithmetic. ratio_fma is its
 *                      multiply-adds over those that the same instructions reach on registers;
 *                      speedup_none compares with no sharing.
 */
#include "bench.h"

#ifdef BENCH_HAVE_KERNELS
#include "attention_cuda.h"
#include "explain.h"
#include "cases.h"
#include "costs_file.h"
#include "json_file.h"
#include "kernels/plan/plan.h"
#include "machine.h"
#include "words.h"
#include "workload.h"
#include "proto/arith.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT_BYTES (UINT64_C(32) << 20)
#define POLICIES_BYTES 256u
#define BLOCKS_USUAL 132u /* multiprocessors */

struct options {
	const char *policy;
	const char *backend;
	const char *workload;
	struct case_filter only;
	const char *module;
	const char *costs;
	uint32_t n_threads;
	struct case_options cases;
	uint32_t n_random;
	double tflops;
	bool brief;
	bool clocks;
	uint32_t explain; /* for so many multiprocessors; 0: do not */
};

enum {
	KEY_TFLOPS = 256,
	KEY_BRIEF,
	KEY_EXPLAIN,
	KEY_CLOCKS,
	KEY_COSTS,
	KEY_HEADS,
	KEY_DIM,
	KEY_RANDOM
};

static const struct args_option options[] = {
	{"policy", 'p', "POLICY",
	 "auto (default), none, cascade, fasttree, deft, deft-node, ...; cuda: several between "
	 "commas, or all"},
	{"backend", 'b', "BACKEND", "cpu (default), or cuda"},
	{"module", 'm', "FILE", "cuda: the module (default: that of this build)"},
	{"workload", 'w', "FILE", "JSON: nodes and tokens per level; else the built-in cases"},
	{"threads", 't', "N", "Threads that compute (default: one per core)"},
	{"only", 'o', "NAME", "Only cases that have NAME in theirs"},
	{"page", 'P', "N", "Tokens of a page: 16, 32 or 64 (default)"},
	{"dtype", 'd', "TYPE", "fp32, fp16 or bf16 (default)"},
	{"heads", KEY_HEADS, "Q/KV",
	 "Query and KV heads in place of the workloads' own (limits are drawn anew)"},
	{"dim", KEY_DIM, "N", "Head dim in place of the workloads' own (limits are drawn anew)"},
	{"random", KEY_RANDOM, "N",
	 "cuda, --explain: N trees drawn anew, by a seed that is printed, in place of the built-in "
	 "cases"},
	{"tflops", KEY_TFLOPS, "RATE",
	 "cuda: what the tensor cores do, for limits (default 790, an H200)"},
	{"explain", KEY_EXPLAIN, "[N]",
	 "What the GPU's planner chooses for N multiprocessors (132), and what it expects; runs "
	 "nothing"},
	{"costs", KEY_COSTS, "FILE", "cuda, --explain: plan by constants that fit --save wrote"},
	{"clocks", KEY_CLOCKS, NULL,
	 "cuda: what the time of a block goes to, too, by the module that has clocks"},
	{"brief", KEY_BRIEF, NULL, "cuda: the tables at the end alone"},
	{0},
};

static int parse_dtype(struct args *args, struct options *o)
{
	uint32_t place = 0;
	int r = words_take_place(args, "fp32 fp16 bf16", &place);

	o->cases.dtype = (enum work_dtype)place;
	return r;
}

static int parse_page(struct args *args, struct options *o)
{
	uint32_t place = 0;
	int r = words_take_place(args, "16 32 64", &place);

	o->cases.page_tokens = 16u << place;
	return r;
}

static int parse_heads(struct args *args, struct case_options *cases)
{
	uint32_t q = 0, kv = 0;
	char rest;

	if (args->value[strspn(args->value, "0123456789/")] ||
	    sscanf(args->value, "%4u/%4u%c", &q, &kv, &rest) != 2 || q < 1 ||
	    q > WORK_Q_HEADS_MAX || kv < 1 || q % kv || q / kv > WORK_HEADS_MAX)
		return args_fail(args,
				 "--heads takes a pair like 64/8, of %u query heads and %u to a KV "
				 "head at most, not \"%.40s\"",
				 WORK_Q_HEADS_MAX, WORK_HEADS_MAX, args->value);
	cases->q_heads = q;
	cases->kv_heads = kv;
	return 0;
}

static int parse_explain(struct args *args, struct options *o)
{
	o->explain = BLOCKS_USUAL;
	return args->value ? bench_take_whole(args, 1, UINT32_MAX, &o->explain) : 0;
}

static int parse(struct args *args, int key, void *to)
{
	struct options *o = to;
	const char *arg = args->value;

	switch (key) {
	case 'p':
		o->policy = arg;
		return 0;
	case 'b':
		return words_take(args, "cpu cuda", &o->backend);
	case 'w':
		o->workload = arg;
		return 0;
	case 'o':
		o->only.part = arg;
		return 0;
	case 'm':
		o->module = arg;
		return 0;
	case 't':
		return bench_take_whole(args, 1, BENCH_THREADS_MAX, &o->n_threads);
	case 'P':
		return parse_page(args, o);
	case KEY_RANDOM:
		return bench_take_whole(args, 1, UINT32_MAX, &o->n_random);
	case KEY_TFLOPS:
		return bench_take_rate(args, &o->tflops);
	case KEY_EXPLAIN:
		return parse_explain(args, o);
	case KEY_COSTS:
		o->costs = arg;
		return 0;
	case KEY_HEADS:
		return parse_heads(args, &o->cases);
	case KEY_DIM:
		return bench_take_head_dim(args, &o->cases.head_dim);
	case KEY_CLOCKS:
		o->clocks = true;
		return 0;
	case KEY_BRIEF:
		o->brief = true;
		return 0;
	case 'd':
		return parse_dtype(args, o);
	}
	return 0;
}

/* Several between commas, or all, where the GPU runs them. */
static int check_policies(struct args *args, const char *policies)
{
	char copy[POLICIES_BYTES], *rest = copy;
	int r = 0;

	if (strcmp(policies, "all") == 0)
		return 0;
	if (strlen(policies) >= sizeof(copy))
		return args_fail(args, "--policy takes %u letters at most", POLICIES_BYTES - 1);
	strcpy(copy, policies);
	while (r == 0 && (args->value = strsep(&rest, ",")) != NULL)
		r = words_take(args, plan_policy_words, &args->value);
	return r;
}

static int check(struct args *args, void *to)
{
	const struct options *o = to;
	bool is_cuda = strcmp(o->backend, "cuda") == 0;

	if (o->clocks && !is_cuda)
		return args_fail(args, "--clocks are of the GPU's backend: add --backend cuda");
	args->name = "policy";
	args->value = o->policy;
	if (!o->explain && is_cuda)
		return check_policies(args, o->policy);
	return words_take(args, plan_policy_words, &args->value);
}

/* A workload in a backend. */
struct run {
	const struct options *options;
	const struct workload_spec *spec;
	const struct backend_ops *ops;
	struct backend *backend; /* owned */
	struct workload workload;
	struct work_list list; /* owned */
};

static int run_plan(struct run *r, const char *policy)
{
	struct plan_config config;
	uint32_t heads = r->spec->shape.n_kv_heads;
	enum plan_policy parsed;

	plan_config_init(&config, PLAN_AUTO, &r->spec->shape, 1);
	if (plan_policy_parse(policy, &config) != 0)
		return -EINVAL;
	parsed = config.policy;
	plan_config_init(&config, parsed, &r->spec->shape, ceil_div(r->options->n_threads, heads));
	if (plan_policy_parse(policy, &config) != 0)
		return -EINVAL;
	config.tile_rows = r->ops->tile_rows(r->backend, &r->spec->shape);
	return plan_make(&config, &r->workload.tree, &r->list);
}

static int run_open(struct run *r, char *error, size_t error_bytes)
{
	const struct work_shape *shape = &r->spec->shape;
	struct backend_config config = {EXTENT_BYTES, EXTENT_BYTES, r->options->n_threads, NULL};
	uint64_t page_bytes;
	int ret = r->ops->open(&config, &r->backend, error, error_bytes);

	if (ret)
		return ret;
	page_bytes = r->ops->page_bytes(r->backend, shape, error, error_bytes);
	r->ops->close(r->backend);
	r->backend = NULL;
	if (page_bytes == 0)
		return -EINVAL;
	config.pool_bytes = workload_pool_bytes(r->spec, page_bytes, EXTENT_BYTES);
	ret = r->ops->open(&config, &r->backend, error, error_bytes);
	for (uint32_t i = 0; ret == 0 && i < config.pool_bytes / EXTENT_BYTES; i++)
		ret = r->ops->extent_commit(r->backend, i);
	return ret;
}

static void run_done(struct run *r)
{
	plan_list_done(&r->list);
	workload_done(&r->workload);
	r->ops->close(r->backend);
}

static int run_init(struct run *r, const struct options *o, const struct workload_spec *spec)
{
	char error[256] = "";
	int ret;

	*r = (struct run){.options = o, .spec = spec, .ops = &backend_cpu};
	ret = run_open(r, error, sizeof(error));
	if (ret == 0)
		ret = workload_init(&r->workload, spec, r->ops, r->backend);
	if (ret == 0)
		ret = run_plan(r, o->policy);
	if (ret)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", spec->name, strerror(-ret), error);
	return ret;
}

/* Seconds of one batch; infinity where it failed. */
static double run_once(struct run *r)
{
	struct backend_job job = {.shape = &r->spec->shape,
				  .tree = &r->workload.tree,
				  .list = &r->list,
				  .io = r->workload.io};
	struct backend_batch batch = {&job, 1};
	uint64_t start_ns = clock_now_ns(), id = 0, done = 0;

	if (r->ops->submit(r->backend, &batch, &id) != 0)
		return INFINITY;
	while (done < id) {
		if (r->ops->completed(r->backend, &done) != 0)
			return INFINITY;
	}
	return (double)(clock_now_ns() - start_ns) * 1e-9;
}

/* Multiply-adds of a batch. */
static double run_fmas(const struct run *r)
{
	return 2.0 * r->spec->shape.head_dim * r->spec->shape.n_q_heads *
	       (double)r->workload.path_tokens;
}

static double run_bytes(struct run *r)
{
	struct backend_counters before, after;

	r->ops->counters(r->backend, &before);
	run_once(r);
	r->ops->counters(r->backend, &after);
	return (double)(after.kv_bytes_read - before.kv_bytes_read);
}

static void print(const struct run *r, const char *metric, double value, const char *unit)
{
	bench_print("attention", r->spec->name, metric, value, unit);
}

/* False where the output is wrong. */
static bool print_common(struct run *r, double seconds, double bytes)
{
	static const double bounds[] = {2e-6, 5e-4, 4e-3};
	double error = workload_error(&r->workload);

	print(r, "time_us", seconds * 1e6, "us");
	print(r, "kv_bytes", bytes, "B");
	print(r, "gb_s", bytes / seconds * 1e-9, "GB/s");
	print(r, "gflop_s", 2 * run_fmas(r) / seconds * 1e-9, "GFLOP/s");
	print(r, "error", error, "norm/norm");
	if (error <= bounds[r->spec->shape.dtype])
		return true;
	fprintf(stderr, "coppice-bench: %s: the output is wrong\n", r->spec->name);
	return false;
}

static bool bench_plain(struct run *r)
{
	double bytes = run_bytes(r), times[BENCH_REPS_MAX];
	uint32_t reps = bench_reps(11);

	for (uint32_t i = 0; i < reps; i++)
		times[i] = run_once(r);
	return print_common(r, bench_median(times, reps), bytes);
}

static bool bench_reading(struct run *r, struct machine *machine)
{
	double bytes = run_bytes(r), times[BENCH_REPS_MAX], reads[BENCH_REPS_MAX],
	       ratios[BENCH_REPS_MAX];
	uint32_t reps = bench_reps(15);
	bool right;

	for (uint32_t i = 0; i < reps; i++) {
		reads[i] = machine_read_rate(machine);
		times[i] = run_once(r);
		ratios[i] = bytes / times[i] / reads[i];
	}
	right = print_common(r, bench_median(times, reps), bytes);
	print(r, "read_gb_s", bench_median(reads, reps) * 1e-9, "GB/s");
	print(r, "ratio_read", bench_median(ratios, reps), "1");
	return right;
}

static bool bench_sharing(struct run *r, struct machine *machine)
{
	double bytes = run_bytes(r), times[BENCH_REPS_MAX], fmas[BENCH_REPS_MAX],
	       ratios[BENCH_REPS_MAX];
	double speedups[BENCH_REPS_MAX];
	uint32_t reps = bench_reps(15);
	struct run none = *r;
	bool right;

	none.list = (struct work_list){0};
	if (run_plan(&none, "none") != 0)
		return false;
	for (uint32_t i = 0; i < reps; i++) {
		fmas[i] = machine_fma_rate(machine);
		times[i] = run_once(r);
		ratios[i] = run_fmas(r) / times[i] / fmas[i];
		speedups[i] = run_once(&none) / times[i];
	}
	plan_list_done(&none.list);
	run_once(r);
	right = print_common(r, bench_median(times, reps), bytes);
	print(r, "fma_gflop_s", 2 * bench_median(fmas, reps) * 1e-9, "GFLOP/s");
	print(r, "ratio_fma", bench_median(ratios, reps), "1");
	print(r, "speedup_none", bench_median(speedups, reps), "x");
	return right;
}

typedef bool (*bench_built_in)(struct run *, struct machine *);

static int built_in(struct options *o, const struct workload_spec *spec, bench_built_in bench)
{
	struct machine machine = {0};
	struct run r;
	int status = 1;

	if (!case_wanted(&o->only, spec->name))
		return 0;
	if (run_init(&r, o, spec) == 0 && machine_init(&machine, o->n_threads) == 0)
		status = bench(&r, &machine) ? 0 : 1;
	machine_done(&machine);
	run_done(&r);
	return status;
}

static int all_built_in(struct options *o)
{
	static const uint32_t nodes[] = {1, 64}, one_tokens = 131072, tokens[] = {4096, 1};
	struct workload_spec one = {.name = "one_131072",
				    .shape = {1, 32, 8, 128, o->cases.page_tokens, o->cases.dtype,
					      0.0883883f}};
	struct workload_spec shared = {.name = "shared_4096x64", .shape = one.shape};
	int status = 1;

	if (workload_spec_levels(&one, nodes, &one_tokens, 1) == 0 &&
	    workload_spec_levels(&shared, nodes, tokens, 2) == 0)
		status = built_in(o, &one, bench_reading) | built_in(o, &shared, bench_sharing);
	workload_spec_done(&one);
	workload_spec_done(&shared);
	return status;
}

static int bench_entry(const json_t *entry, struct options *o)
{
	struct workload_spec spec;
	struct run r;
	int status = 1;

	if (case_read(entry, &o->cases, &spec) != 0) {
		fprintf(stderr,
			"coppice-bench: %s: an entry lacks name, nodes, lengths, q_heads, "
			"kv_heads or head_dim\n",
			o->workload);
	} else if (!case_wanted(&o->only, spec.name)) {
		status = 0;
	} else {
		if (run_init(&r, o, &spec) == 0)
			status = bench_plain(&r) ? 0 : 1;
		run_done(&r);
	}
	workload_spec_done(&spec);
	return status;
}

static int whole_file(struct options *o)
{
	json_t *root = json_file_read_array(o->workload, "workloads");
	int status = root ? 0 : 1;

	for (size_t i = 0; i < json_array_size(root); i++)
		status |= bench_entry(json_array_get(root, i), o);
	json_decref(root);
	return status;
}

static uint32_t n_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static int on_cuda(struct options *o)
{
	const char *usual = o->clocks ? BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda-clocks.so"
				      : BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda.so";
	struct attention_cuda cuda = {.module = o->module ? o->module : usual,
				      .policies = o->policy,
				      .workload = o->workload,
				      .only = &o->only,
				      .n_random = o->n_random,
				      .cases = o->cases,
				      .tflops = o->tflops,
				      .costs = o->costs,
				      .brief = o->brief,
				      .clocks = o->clocks};

	if (o->cases.dtype != WORK_FP32)
		return attention_cuda_main(&cuda);
	fprintf(stderr, "coppice-bench: --backend cuda takes --dtype fp16 or bf16\n");
	return CLI_USAGE;
}

static int explained(struct options *o)
{
	struct costs costs = *costs_find(CODE_WGMMA);

	if (o->costs && !costs_file_read(o->costs, &costs))
		return 1;
	return explain_main(&(struct explain){o->workload, &o->only, o->policy, o->n_random,
					      o->cases, o->explain, &costs});
}

static int attend(struct options *o)
{
	if (o->explain)
		return explained(o);
	if (strcmp(o->backend, "cuda") == 0)
		return on_cuda(o);
	o->n_threads = o->n_threads ? o->n_threads : n_cores();
	return o->workload ? whole_file(o) : all_built_in(o);
}

int attention_main(int argc, char **argv)
{
	struct options o = {.policy = "auto",
			    .backend = "cpu",
			    .cases = {.page_tokens = 64, .dtype = WORK_BF16},
			    .tflops = 790};
	const struct bench_options how = {
		.table = options,
		.take = parse,
		.check = check,
		.to = &o,
		.most_reps = BENCH_REPS_MAX,
		.doc = "Times attention over trees of KV and checks a sample of rows against "
		       "float64.",
	};
	int r;

	r = bench_read(&how, argc, argv);
	if (r >= 0)
		return r;
	r = attend(&o);
	if (r || !o.only.part || o.only.n_found)
		return r;
	fprintf(stderr, "coppice-bench: no case has \"%s\" in its name\n", o.only.part);
	return CLI_USAGE;
}
#endif
