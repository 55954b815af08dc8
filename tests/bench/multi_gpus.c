/*
 * multi_gpus.c - opens the group, runs its layers, takes the devices' stamps apart into local
 * parts, exchange and rest, and checks O and the bytes that went.
 */
#include "multi_gpus.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH CUDA_MEASURE_DEPTH
#define REPS_MAX 100u
#define SUBMITS 9u
/* Before new ones are timed: as many as are kept, so that each finds memory that one before it
 * had. */
#define PLANS 16u
#define TFLOPS 790.0
#define TIMEOUT_MS 5000u
#define WATCH_US 1000u /* as the daemon has it */
#define ERROR_BOUND 4e-3 /* of bf16 */

struct gpus_run {
	struct multi_gpus *g;
	const struct workload_spec *spec;
	uint32_t n_devices;
	struct backend *backend; /* owned */
	struct backend *members[GROUP_DEVICES_MAX];
	uint64_t free_bytes[GROUP_DEVICES_MAX]; /* before anything lay there */
	struct workload workload;
	struct work_list list; /* owned */
	uint64_t pool_bytes;
	uint64_t o; /* owned: in the first device's memory */
};

int multi_gpus_init(struct multi_gpus *g, const char *module, const char *names)
{
	struct backend *b = NULL;
	void *at;
	int r = card_load(&g->card, module);

	if (r)
		return r;
	at = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	*(void **)&g->measure_group = dlsym(at, CUDA_MODULE_MEASURE_GROUP);
	*(void **)&g->free_bytes = dlsym(at, CUDA_MODULE_FREE_BYTES);
	if (!g->measure_group || !g->free_bytes)
		return -ENOENT;
	for (g->n_names = 0; *names && g->n_names < GROUP_DEVICES_MAX; g->n_names++) {
		size_t n = strcspn(names, ",");

		snprintf(g->names[g->n_names], sizeof(g->names[0]), "%.*s", (int)n, names);
		names += n + (names[n] == ',');
	}
	r = card_open(&g->card, &b);
	if (r == 0)
		r = limits_init(&g->limits, g->card.stream, TFLOPS);
	g->card.ops->close(b);
	return r;
}

/* ---- a case --------------------------------------------------------------------------------- */

/* What each device has free before there is more than a context; a backend of next to nothing makes
 * that. */
static int look_at_memory(struct gpus_run *run, char *error, size_t error_bytes)
{
	const struct backend_ops *ops = run->g->card.ops;
	struct backend_config config = {.pool_bytes = CARD_EXTENT_BYTES,
					.extent_bytes = CARD_EXTENT_BYTES};
	int r = 0;

	for (uint32_t i = 0; i < 2 * run->n_devices && r == 0; i++) {
		uint32_t device = i % run->n_devices;
		struct backend *b = NULL;

		config.device = run->g->names[device];
		r = ops->open(&config, &b, error, error_bytes);
		if (r == 0)
			r = run->g->free_bytes(b, &run->free_bytes[device]);
		ops->close(b);
	}
	return r;
}

static int open_group(struct gpus_run *run)
{
	struct group_device devices[GROUP_DEVICES_MAX];
	struct group_config group = {devices, run->n_devices, TIMEOUT_MS, WATCH_US};
	struct backend_config config = {.extent_bytes = CARD_EXTENT_BYTES * run->n_devices,
					.group = &group};
	const struct work_shape *shape = &run->spec->shape;
	uint64_t page_bytes =
		4ull * shape->page_tokens * shape->head_dim * shape->n_kv_heads * shape->n_layers;
	char error[256] = "";
	int r;

	for (uint32_t i = 0; i < run->n_devices; i++)
		devices[i] = (struct group_device){run->g->card.ops, run->g->names[i]};
	config.pool_bytes = workload_pool_bytes(run->spec, page_bytes, config.extent_bytes);
	run->pool_bytes = config.pool_bytes / run->n_devices;
	r = look_at_memory(run, error, sizeof(error));
	if (r == 0)
		r = backend_group.open(&config, &run->backend, error, sizeof(error));
	if (r == 0 && backend_group.page_bytes(run->backend, shape, error, sizeof(error)) == 0)
		r = -EINVAL;
	for (uint32_t i = 0; r == 0 && i < run->n_devices; i++)
		run->members[i] = group_backend(run->backend, i);
	for (uint32_t i = 0; r == 0 && i < config.pool_bytes / config.extent_bytes; i++)
		r = backend_group.extent_commit(run->backend, i);
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", run->spec->name, strerror(-r), error);
	return r;
}

/* As it is wanted, or as it has to be, which is a notice. */
static bool by_nccl(const struct gpus_run *run)
{
	const char *wanted = getenv("COPPICE_EXCHANGE");

	return group_notice(run->backend) || (wanted && strcmp(wanted, "nccl") == 0);
}

/* As the ranks of an engine have it: nothing crosses the bus. Devices with a notice do not reach
 * each other's memory. */
static int place_o(struct gpus_run *run)
{
	struct workload *w = &run->workload;
	const struct workload_arena *o = &w->arenas[2];
	int r = 0;

	if (group_notice(run->backend))
		return 0;
	r = run->g->card.arena_new(run->members[0], o->bytes, &run->o);
	for (uint32_t i = 0; r == 0 && i < w->tree.n_queries; i++)
		w->io[i].o += run->o - o->base;
	return r;
}

static int fetch_o(struct gpus_run *run)
{
	const struct workload_arena *o = &run->workload.arenas[2];

	return run->o ? run->g->card.arena_copy(run->members[0], o->host, (void *)(uintptr_t)run->o,
						o->bytes)
		      : 0;
}

static int run_init(struct gpus_run *run)
{
	struct plan_config config;
	int r = open_group(run);

	if (r == 0)
		r = workload_init(&run->workload, run->spec, &backend_group, run->backend);
	if (r)
		return r;
	plan_config_init(&config, PLAN_AUTO, &run->spec->shape, 132);
	config.tile_rows = backend_group.tile_rows(run->backend, &run->spec->shape);
	r = plan_make(&config, &run->workload.tree, &run->list);
	return r ? r : place_o(run);
}

static void run_done(struct gpus_run *run)
{
	if (run->o)
		run->g->card.arena_free(run->members[0], run->o);
	plan_list_done(&run->list);
	if (run->workload.ops)
		workload_done(&run->workload);
	backend_group.close(run->backend);
}

/* Of a layer through the group: until submit returns, and until the end. */
struct submitted {
	double submit_us, end_us;
};

static int run_once(struct gpus_run *run, uint64_t plan_id, struct submitted *ret)
{
	struct backend_job job = {.shape = &run->spec->shape,
				  .tree = &run->workload.tree,
				  .list = &run->list,
				  .io = run->workload.io,
				  .plan_id = plan_id};
	struct backend_batch batch = {&job, 1};
	uint64_t start_ns = clock_now_ns(), id = 0, done = 0;
	int r = backend_group.submit(run->backend, &batch, &id);

	ret->submit_us = (double)(clock_now_ns() - start_ns) * 1e-3;
	while (r == 0 && done < id)
		r = backend_group.completed(run->backend, &done);
	ret->end_us = (double)(clock_now_ns() - start_ns) * 1e-3;
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s: %s\n", run->spec->name, strerror(-r),
			backend_group.fault(run->backend) ? backend_group.fault(run->backend) : "");
	return r;
}

static uint32_t n_reps(void)
{
	uint32_t n = bench_reps(11);

	return n < REPS_MAX ? n : REPS_MAX;
}

/* Medians of each device. */
struct device_times {
	double us[GROUP_DEVICES_MAX], most_us;
};

/* Median of the slowest device of each repetition. stamps: [n_reps][n_devices][DEPTH], or NULL.
 * Infinite where it failed. */
static struct device_times measure(struct gpus_run *run, bool attend, bool exchange,
				   struct cuda_measure_stamp *stamps)
{
	const struct cuda_measure_layers how = {run->spec->shape.n_layers, 0, DEPTH, attend,
						exchange};
	const struct cuda_group group = {run->members, run->n_devices};
	struct device_times times = {.most_us = INFINITY};
	uint32_t n = n_reps(), n_devices = run->n_devices;
	float us[REPS_MAX * GROUP_DEVICES_MAX];
	double sorted[REPS_MAX], most[REPS_MAX] = {0};

	if (run->g->measure_group(&group, &how, n, us, stamps) != 0)
		return times;
	for (uint32_t d = 0; d < n_devices; d++) {
		for (uint32_t i = 0; i < n; i++) {
			sorted[i] = us[i * n_devices + d];
			most[i] = fmax(most[i], sorted[i]);
		}
		times.us[d] = bench_median(sorted, n);
	}
	times.most_us = bench_median(most, n);
	return times;
}

/* Of a layer, in us. */
struct layer_parts {
	double local, exchange, rest, skew;
};

/* stamps: the layer's and that of the layer before, DEPTH apart from device to device. */
static struct layer_parts layer_parts_of(const struct cuda_measure_stamp *stamps,
					 uint32_t n_devices)
{
	double most = 0, sum = 0, all = 0, least = INFINITY;

	for (uint32_t i = 0; i < n_devices; i++, stamps += DEPTH) {
		double local = (double)(stamps[1].begin_ns - stamps[0].end_ns);

		most = fmax(most, local);
		sum += local / n_devices;
		all += (double)(stamps[1].end_ns - stamps[0].end_ns) / n_devices;
		least = fmin(least, (double)(stamps[1].end_ns - stamps[1].begin_ns));
	}
	return (struct layer_parts){most * 1e-3, least * 1e-3, (all - most) * 1e-3,
				    (most - sum) * 1e-3};
}

#define N_PARTS (sizeof(struct layer_parts) / sizeof(double))

/* Medians over the layers of all repetitions but the first of each. Nothing is set where there were
 * no stamps, or no memory. */
static void find_parts(const struct gpus_run *run, const struct cuda_measure_stamp *stamps,
		       struct layer_parts *ret)
{
	uint32_t n = n_reps() * (DEPTH - 1);
	double *of = calloc(N_PARTS * (size_t)n, sizeof(double)), medians[N_PARTS];

	if (!of || stamps[0].end_ns == 0) {
		free(of);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t rep = i / (DEPTH - 1), layer = i % (DEPTH - 1);
		struct layer_parts parts =
			layer_parts_of(&stamps[rep * run->n_devices * DEPTH + layer],
				       run->n_devices);

		for (uint32_t k = 0; k < N_PARTS; k++)
			of[k * n + i] = ((const double *)&parts)[k];
	}
	for (uint32_t k = 0; k < N_PARTS; k++)
		medians[k] = bench_median(&of[k * n], n);
	memcpy(ret, medians, sizeof(*ret));
	free(of);
}

struct gpus_sums {
	double exchange_bytes, kv_bytes[GROUP_DEVICES_MAX];
};

static struct gpus_sums take_sums(struct gpus_run *run)
{
	struct gpus_sums sums = {0};

	for (uint32_t i = 0; i < run->n_devices; i++) {
		struct group_stats stats;

		group_stats(run->backend, i, &stats);
		sums.exchange_bytes += (double)stats.exchange_bytes;
		sums.kv_bytes[i] = (double)stats.kv_bytes_read;
	}
	return sums;
}

static void print(const struct gpus_run *run, const char *metric, double value, const char *unit)
{
	bench_print("multi", run->spec->name, metric, value, unit);
}

/* Beside context and KV, of the device that has most. */
static double beside_bytes(struct gpus_run *run)
{
	double most = 0;

	for (uint32_t i = 0; i < run->n_devices; i++) {
		uint64_t now = 0;

		if (run->g->free_bytes(run->members[i], &now) == 0)
			most = fmax(most, (double)run->free_bytes[i] - (double)now -
						  (double)run->pool_bytes);
	}
	return most;
}

static double fullest(const struct gpus_run *run, const struct gpus_sums *before,
		      const struct gpus_sums *after)
{
	double most = 0;

	for (uint32_t i = 0; i < run->n_devices; i++)
		most = fmax(most, after->kv_bytes[i] - before->kv_bytes[i]);
	return most;
}

/* Layers without an exchange. */
static void print_alone(struct gpus_run *run)
{
	struct device_times alone = measure(run, true, false, NULL);

	print(run, "local_alone", alone.most_us, "us");
	for (uint32_t i = 0; run->n_devices > 1 && i < run->n_devices; i++) {
		char metric[32];

		snprintf(metric, sizeof(metric), "local_alone_%u", i);
		print(run, metric, alone.us[i], "us");
	}
}

/* Returns the local part. */
static double print_layer(struct gpus_run *run, struct multi_exchange *ret)
{
	struct cuda_measure_stamp *stamps =
		calloc((size_t)n_reps() * run->n_devices * DEPTH, sizeof(*stamps));
	double all = measure(run, true, true, stamps).most_us;
	struct layer_parts parts = {.local = all};

	if (stamps)
		find_parts(run, stamps, &parts);
	free(stamps);
	print(run, "time", all, "us");
	print(run, "local", parts.local, "us");
	print(run, "exchange", parts.exchange, "us");
	print(run, "rest", parts.rest, "us");
	print(run, "skew", parts.skew, "us");
	print_alone(run);
	ret->us = parts.exchange;
	if (run->n_devices > 1 && run->spec->shape.split == WORK_TOKENS) {
		ret->alone_us = measure(run, false, true, NULL).most_us;
		print(run, "exchange_alone", ret->alone_us, "us");
	}
	return parts.local;
}

/* Medians of layers of new plans, or of one plan, once there are others. */
static int print_submits(struct gpus_run *run, bool new_plans)
{
	double submit_us[SUBMITS], end_us[SUBMITS];
	uint32_t n_before = new_plans ? PLANS : 1;

	for (uint32_t i = 0; i < n_before + SUBMITS; i++) {
		struct submitted us;
		int r = run_once(run, new_plans ? 2 + i : 1, &us);

		if (r)
			return r;
		submit_us[i % SUBMITS] = us.submit_us;
		end_us[i % SUBMITS] = us.end_us;
	}
	print(run, new_plans ? "submit_new_plan" : "submit", bench_median(submit_us, SUBMITS),
	      "us");
	if (!new_plans)
		print(run, "submit_to_end", bench_median(end_us, SUBMITS), "us");
	return 0;
}

static void print_times(struct gpus_run *run, double kv_bytes, struct multi_exchange *ret)
{
	double flops = workload_flops(&run->workload) / run->n_devices;
	double limit = limits_us(&run->g->limits, kv_bytes, flops);

	if (run->n_devices > 1 && run->spec->shape.split == WORK_TOKENS && by_nccl(run)) {
		fprintf(stderr,
			"coppice-bench: %s: NCCL exchanges, which is no part of a graph: a layer "
			"is timed from submit to end, and its parts are not\n",
			run->spec->name);
		print_alone(run);
	} else {
		print(run, "local_ratio", limit / print_layer(run, ret), "limit/time");
	}
	print(run, "limit", limit, "us");
	print(run, "fullest_kv_bytes", kv_bytes, "B");
}

/* Each row's owner has those of all others, or by NCCL all have all. */
static double formula_bytes(const struct gpus_run *run)
{
	double n = run->n_devices, row = (double)group_met_row_bytes(&run->spec->shape);

	if (run->spec->shape.split != WORK_TOKENS)
		return 0;
	return (n - 1) * (by_nccl(run) ? n : 1) * row * run->list.n_rows;
}

static bool check(struct gpus_run *run, double bytes)
{
	struct backend_counters counters;
	double want = formula_bytes(run);
	double error = fetch_o(run) == 0 ? workload_error(&run->workload) : INFINITY;

	backend_group.counters(run->backend, &counters);
	print(run, "kv_bytes_moved", (double)counters.kv_bytes_moved, "B");
	print(run, "exchange_bytes", bytes, "B");
	print(run, "formula_bytes", want, "B");
	print(run, "error", error, "norm/norm");
	if (error <= ERROR_BOUND && bytes == want && counters.kv_bytes_moved == 0)
		return true;
	fprintf(stderr, "coppice-bench: %s: the output is wrong\n", run->spec->name);
	return false;
}

static bool run_case(struct gpus_run *run, struct multi_exchange *ret)
{
	struct gpus_sums before, after;
	struct submitted us;

	if (run_init(run) != 0 || run_once(run, 1, &us) != 0)
		return false;
	before = take_sums(run);
	if (run_once(run, 1, &us) != 0)
		return false;
	after = take_sums(run);
	/* before there are plans that nobody but the next lines wants */
	print(run, "beside_kv_bytes", beside_bytes(run), "B");
	if (print_submits(run, true) != 0 || print_submits(run, false) != 0)
		return false;
	print(run, "beside_kv_bytes_of_many_plans", beside_bytes(run), "B");
	print_times(run, fullest(run, &before, &after), ret);
	ret->bytes = after.exchange_bytes - before.exchange_bytes;
	return check(run, ret->bytes);
}

bool multi_gpus_case(struct multi_gpus *g, const struct workload_spec *spec, uint32_t n_devices,
		     struct multi_exchange *ret)
{
	struct gpus_run run = {.g = g, .spec = spec, .n_devices = n_devices};
	bool right = false;

	if (n_devices > g->n_names)
		fprintf(stderr, "coppice-bench: %u devices are wanted, %u are named\n", n_devices,
			g->n_names);
	else
		right = run_case(&run, ret);
	run_done(&run);
	return right;
}
#endif
