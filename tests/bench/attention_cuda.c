/* attention_cuda.c - see attention_cuda.h. */
#include "attention_cuda.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"
#include "kernels/cuda/module.h"
#include "kernels/plan/plan.h"
#include "workload.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT_BYTES (UINT64_C(32) << 20)
#define FLUSH_BYTES (UINT64_C(256) << 20)
#define REPS_MAX 1000u
#define N_UNITS 132u
#define MEANS_MAX 64u
#define NAME_BYTES 64u

/* Sum of logarithms of limit / time, of a policy and a kind of workloads. */
struct mean {
	char name[2 * NAME_BYTES];
	double sum;
	uint32_t n;
};

struct bench {
	const struct attention_cuda *o;
	const struct backend_ops *ops;
	cuda_measure measure;
	cuda_arena_new arena_new;
	cuda_arena_copy arena_copy;
	cuda_arena_free arena_free;
	struct mean means[MEANS_MAX];
	uint32_t n_means;
};

static int load(struct bench *b)
{
	void *module = dlopen(b->o->module, RTLD_NOW | RTLD_LOCAL);
	cuda_ops find = NULL;

	if (module) {
		*(void **)&find = dlsym(module, CUDA_MODULE_OPS);
		*(void **)&b->measure = dlsym(module, CUDA_MODULE_MEASURE);
		*(void **)&b->arena_new = dlsym(module, CUDA_MODULE_ARENA_NEW);
		*(void **)&b->arena_copy = dlsym(module, CUDA_MODULE_ARENA_COPY);
		*(void **)&b->arena_free = dlsym(module, CUDA_MODULE_ARENA_FREE);
	}
	if (!find || !b->measure || !b->arena_new || !b->arena_copy || !b->arena_free) {
		fprintf(stderr, "coppice-bench: %s: %s\n", b->o->module, dlerror());
		return -ENOENT;
	}
	b->ops = find();
	return 0;
}

static uint32_t read_array(const json_t *array, uint32_t *to)
{
	size_t n = json_array_size(array);

	n = n < WORKLOAD_LEVELS ? n : WORKLOAD_LEVELS;
	for (size_t i = 0; i < n; i++)
		to[i] = (uint32_t)json_integer_value(json_array_get(array, i));
	return (uint32_t)n;
}

static uint32_t read_number(const json_t *entry, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(entry, key));
}

static int read_spec(const json_t *entry, const struct attention_cuda *o, struct workload_spec *ret)
{
	const char *name = json_string_value(json_object_get(entry, "name"));

	*ret = (struct workload_spec){
		.shape = {1, read_number(entry, "q_heads"), read_number(entry, "kv_heads"),
			  read_number(entry, "head_dim"), o->page_tokens, o->dtype, 0}};
	ret->n_levels = read_array(json_object_get(entry, "nodes"), ret->nodes);
	if (!name || ret->n_levels == 0 || ret->shape.n_kv_heads == 0 ||
	    read_array(json_object_get(entry, "lengths"), ret->tokens) != ret->n_levels)
		return -EINVAL;
	ret->shape.scale = 1 / sqrtf((float)ret->shape.head_dim);
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	return 0;
}

static struct mean *find_mean(struct bench *b, const char *policy, const struct workload_spec *spec)
{
	char name[2 * NAME_BYTES];
	struct mean *mean;

	snprintf(name, sizeof(name), "%s %.7s %u/%u", policy, spec->name, spec->shape.n_q_heads,
		 spec->shape.n_kv_heads);
	for (uint32_t i = 0; i < b->n_means; i++) {
		if (strcmp(b->means[i].name, name) == 0)
			return &b->means[i];
	}
	if (b->n_means == MEANS_MAX)
		return NULL;
	mean = &b->means[b->n_means++];
	*mean = (struct mean){.sum = 0};
	memcpy(mean->name, name, sizeof(name));
	return mean;
}

/* The time of the fastest of the others, 0 where the file names none. */
static double best_peer(const json_t *entry)
{
	static const char *const keys[] = {"fasttree_us", "deft_us", "pat_us", "flashinfer_us"};
	double best = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		double us = json_number_value(json_object_get(entry, keys[i]));

		if (us > 0 && (best == 0 || us < best))
			best = us;
	}
	return best;
}

static void print_peers(const json_t *entry, const char *name, double us)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)entry, key, value)
	{
		size_t n = strlen(key);
		char metric[NAME_BYTES];

		if (n < 4 || strcmp(key + n - 3, "_us") != 0 || !json_is_number(value) ||
		    strcmp(key, "limit_us") == 0 || strcmp(key, "floor_us") == 0)
			continue;
		snprintf(metric, sizeof(metric), "ratio_%.*s", (int)(n - 3), key);
		bench_print("attention", name, metric, json_number_value(value) / us, "x");
	}
}

static bool print_result(struct bench *b, const json_t *entry, const struct workload_spec *spec,
			 const char *policy, double us, double error)
{
	static const double bounds[] = {[WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
	double limit = json_number_value(json_object_get(entry, "limit_us")),
	       peer = best_peer(entry);
	struct mean *mean = find_mean(b, policy, spec);
	char name[2 * NAME_BYTES];
	bool right = error <= bounds[spec->shape.dtype];

	snprintf(name, sizeof(name), "%s/%s", spec->name, policy);
	bench_print("attention", name, "time", us, "us");
	bench_print("attention", name, "limit", limit, "us");
	bench_print("attention", name, "ratio_limit", limit / us, "1");
	print_peers(entry, name, us);
	if (peer > 0)
		bench_print("attention", name, "ratio_best_peer", peer / us, "x");
	bench_print("attention", name, "error", error, "norm/norm");
	if (mean && limit > 0) {
		mean->sum += log(limit / us);
		mean->n++;
	}
	if (!right)
		fprintf(stderr, "coppice-bench: %s: the output is wrong\n", name);
	return right;
}

/* One workload in its own backend. */
struct run {
	struct bench *bench;
	struct workload_spec spec;
	struct backend *backend; /* owned */
	struct workload workload;
	struct work_list list; /* owned */
	uint64_t q, o; /* owned, device memory of as many bytes as the workload's */
};

/* Q and O in device memory, where the published systems have them. */
static int run_place(struct run *r)
{
	struct workload *w = &r->workload;
	const struct workload_arena *q = &w->arenas[1], *o = &w->arenas[2];
	int ret = r->bench->arena_new(r->backend, q->bytes, &r->q);

	if (!ret)
		ret = r->bench->arena_new(r->backend, o->bytes, &r->o);
	if (!ret)
		ret = r->bench->arena_copy(r->backend, (void *)(uintptr_t)r->q, q->host, q->bytes);
	for (uint32_t i = 0; i < w->tree.n_queries && !ret; i++) {
		w->io[i].q = r->q + (w->io[i].q - q->base);
		w->io[i].o = r->o + (w->io[i].o - o->base);
	}
	return ret;
}

static int run_open(struct run *r, char *error, size_t error_bytes)
{
	const struct backend_ops *ops = r->bench->ops;
	struct backend_config config = {.pool_bytes = EXTENT_BYTES, .extent_bytes = EXTENT_BYTES};
	uint64_t page_bytes = 4 * (uint64_t)r->spec.shape.head_dim * r->spec.shape.page_tokens *
			      r->spec.shape.n_kv_heads;
	int ret;

	config.pool_bytes = workload_pool_bytes(&r->spec, page_bytes, EXTENT_BYTES);
	ret = ops->open(&config, &r->backend, error, error_bytes);
	if (ret)
		return ret;
	if (ops->page_bytes(r->backend, &r->spec.shape, error, error_bytes) != page_bytes)
		return -EINVAL;
	for (uint32_t i = 0; ret == 0 && i < config.pool_bytes / EXTENT_BYTES; i++)
		ret = ops->extent_commit(r->backend, i);
	if (!ret)
		ret = workload_init(&r->workload, &r->spec, ops, r->backend);
	return ret ? ret : run_place(r);
}

static int run_once(struct run *r)
{
	const struct backend_ops *ops = r->bench->ops;
	struct backend_job job = {.shape = &r->spec.shape,
				  .tree = &r->workload.tree,
				  .list = &r->list,
				  .io = r->workload.io};
	struct backend_batch batch = {&job, 1};
	uint64_t id = 0, done = 0;
	int ret = ops->submit(r->backend, &batch, &id);

	while (!ret && done < id)
		ret = ops->completed(r->backend, &done);
	return ret;
}

static bool run_policy(struct run *r, const json_t *entry, const char *policy)
{
	struct plan_config config;
	float times_us[REPS_MAX];
	double sorted[REPS_MAX];
	uint32_t reps = bench_reps(21);

	plan_config_init(&config, PLAN_AUTO, &r->spec.shape,
			 N_UNITS / r->spec.shape.n_kv_heads + 1);
	if (plan_policy_parse(policy, &config) != 0) {
		fprintf(stderr, "coppice-bench: no policy \"%s\"\n", policy);
		return false;
	}
	config.tile_rows = r->bench->ops->tile_rows(r->backend, &r->spec.shape);
	memset(r->workload.o, 0xff, r->workload.arenas[2].bytes);
	if (r->bench->arena_copy(r->backend, (void *)(uintptr_t)r->o, r->workload.o,
				 r->workload.arenas[2].bytes) != 0 ||
	    plan_make(&config, &r->workload.tree, &r->list) != 0 || run_once(r) != 0 ||
	    r->bench->measure(r->backend, FLUSH_BYTES, reps, times_us) != 0 ||
	    r->bench->arena_copy(r->backend, r->workload.o, (void *)(uintptr_t)r->o,
				 r->workload.arenas[2].bytes) != 0) {
		fprintf(stderr, "coppice-bench: %s: %s failed\n", r->spec.name, policy);
		return false;
	}
	for (uint32_t i = 0; i < reps; i++)
		sorted[i] = times_us[i];
	return print_result(r->bench, entry, &r->spec, policy, bench_median(sorted, reps),
			    workload_error(&r->workload));
}

static bool bench_entry(struct bench *b, const json_t *entry)
{
	struct run r = {.bench = b};
	char error[256] = "", names[256], *rest = names, *policy;
	bool right = false;
	int ret;

	if (read_spec(entry, b->o, &r.spec) != 0) {
		fprintf(stderr, "coppice-bench: %s: an entry lacks name, nodes, lengths or heads\n",
			b->o->workload);
		return false;
	}
	if (b->o->only && !strstr(r.spec.name, b->o->only))
		return true;
	ret = run_open(&r, error, sizeof(error));
	if (ret)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", r.spec.name, strerror(-ret), error);
	snprintf(names, sizeof(names), "%s", b->o->policies);
	for (right = !ret; !ret && (policy = strsep(&rest, ",")) != NULL;)
		right = run_policy(&r, entry, policy) && right;
	plan_list_done(&r.list);
	if (r.q)
		b->arena_free(r.backend, r.q);
	if (r.o)
		b->arena_free(r.backend, r.o);
	workload_done(&r.workload);
	b->ops->close(r.backend);
	return right;
}

int attention_cuda_main(const struct attention_cuda *options)
{
	struct bench b = {.o = options};
	json_error_t error;
	json_t *root;
	bool right = true;

	if (load(&b) != 0)
		return 1;
	root = json_load_file(options->workload, 0, &error);
	if (!json_is_array(root)) {
		fprintf(stderr, "coppice-bench: %s: line %d: %s\n", options->workload, error.line,
			root ? "no array of workloads" : error.text);
		json_decref(root);
		return 1;
	}
	for (size_t i = 0; i < json_array_size(root); i++)
		right = bench_entry(&b, json_array_get(root, i)) && right;
	for (uint32_t i = 0; i < b.n_means; i++)
		bench_print("attention", b.means[i].name, "mean_ratio_limit",
			    exp(b.means[i].sum / b.means[i].n), "1");
	json_decref(root);
	return right ? 0 : 1;
}
#endif
