/*
 * multi.c - coppice-bench multi: sequences whose KV is shared out to several devices, which are the
 * CPU or (multi_gpus.h) GPUs.
 *
 * For each number of devices, split, batch and length: the time of a layer; its local part (of the
 * slowest device) and its exchange (of the device that waits least for the others); the bytes
 * exchanged, beside what the formula says; the KV of the fullest device. At the end, of each that
 * was measured at several lengths: how far its exchange is from the same at all. A file of peers'
 * figures (gpus, batch, tokens and times in us) gives the cases instead, and its figures are
 * printed beside.
 */
#include "bench.h"

#ifdef BENCH_HAVE_KERNELS
#include "json_file.h"
#include "kernels/group/exchange.h"
#include "kernels/group/group.h"
#include "kernels/plan/plan.h"
#include "machine.h"
#include "multi_gpus.h"
#include "words.h"
#include "workload.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT_BYTES (UINT64_C(4) << 20)
#define LIST_MAX 8u
#define AGENTS 64u
#define OWN_TOKENS 256u
#define GPU_PAGE_TOKENS 32u
#define FLATS_MAX 64u
#define GPU_LAYERS 2u /* taken in turn, so that none is in a cache when it comes */

/* Least and most over the lengths at which something was measured. */
struct range {
	double least, most;
};

/* Of a number of devices, a split and a batch. */
struct flat {
	char name[48];
	uint32_t n_lengths;
	struct range us, alone_us, bytes;
};

struct options {
	const char *workload, *module, *on, *split;
	struct multi_gpus *gpus; /* NULL: the CPU */
	bool agents;
	uint32_t devices[LIST_MAX], tokens[LIST_MAX], batches[LIST_MAX];
	uint32_t n_devices, n_tokens, n_batches;
	uint32_t n_threads;
	uint32_t most_tokens;
	struct flat flats[FLATS_MAX];
	uint32_t n_flats;
};

static const struct args_option options[] = {
	{"devices", 'D', "N,...", "Numbers of devices (default 1,2,4)"},
	{"tokens", 'l', "N,...", "Lengths (default 16384,131072)"},
	{"batch", 'b', "N,...", "Sequences of that length (default 1)"},
	{"workload", 'w', "FILE", "JSON: cases and figures of other systems"},
	{"most", 'm', "N", "Leave out cases of more tokens (default 262144)"},
	{"on", 'o', "LIST", "On these GPUs, by index or UUID, the first so many of them"},
	{"module", 'M', "FILE", "Of the GPUs (default: that of this build)"},
	{"split", 's', "HOW", "tokens or heads (default: both)"},
	{"agents", 'a', NULL, "64 agents with 256 tokens each on a prefix of each length"},
	{"threads", 't', "N", "Threads, shared out to the devices (default: one per core)"},
	{0},
};

static int parse(struct args *args, int key, void *to)
{
	struct options *o = to;
	const char *arg = args->value;

	switch (key) {
	case 'D':
		return bench_take_list(args, GROUP_DEVICES_MAX, LIST_MAX, o->devices,
				       &o->n_devices);
	case 'l':
		return bench_take_list(args, INT32_MAX, LIST_MAX, o->tokens, &o->n_tokens);
	case 'b':
		return bench_take_list(args, UINT16_MAX, LIST_MAX, o->batches, &o->n_batches);
	case 'w':
		o->workload = arg;
		return 0;
	case 'm':
		return bench_take_whole(args, 1, UINT32_MAX, &o->most_tokens);
	case 'o':
		o->on = arg;
		return 0;
	case 'M':
		o->module = arg;
		return 0;
	case 's':
		return words_take(args, "tokens heads", &o->split);
	case 'a':
		o->agents = true;
		return 0;
	case 't':
		return bench_take_whole(args, 1, BENCH_THREADS_MAX, &o->n_threads);
	}
	return 0;
}

struct multi {
	uint32_t n_devices, n_threads;
	struct workload_spec spec;
	struct backend *backend; /* owned */
	struct workload workload;
	struct work_list list; /* owned */
};

/* Sums over a group's devices, and the extremes. */
struct sums {
	double local_ns[GROUP_DEVICES_MAX], exchange_ns[GROUP_DEVICES_MAX];
	double kv_bytes[GROUP_DEVICES_MAX];
	double exchange_bytes;
};

static int open_group(struct multi *m)
{
	struct group_device devices[GROUP_DEVICES_MAX];
	struct group_config group = {devices, m->n_devices, 0};
	struct backend_config config = {.extent_bytes = EXTENT_BYTES * m->n_devices,
					.n_threads = m->n_threads,
					.group = &group};
	const struct work_shape *shape = &m->spec.shape;
	uint64_t page_bytes = 2ull * shape->page_tokens * shape->head_dim * shape->n_kv_heads *
			      work_dtype_bytes(shape->dtype);
	char error[256] = "";
	int r;

	for (uint32_t i = 0; i < m->n_devices; i++)
		devices[i] = (struct group_device){&backend_cpu, NULL};
	config.pool_bytes = workload_pool_bytes(&m->spec, page_bytes, config.extent_bytes);
	r = backend_group.open(&config, &m->backend, error, sizeof(error));
	if (r == 0 && backend_group.page_bytes(m->backend, shape, error, sizeof(error)) == 0)
		r = -EINVAL;
	for (uint32_t i = 0; r == 0 && i < config.pool_bytes / config.extent_bytes; i++)
		r = backend_group.extent_commit(m->backend, i);
	if (r)
		fprintf(stderr, "coppice-bench: %s: %s %s\n", m->spec.name, strerror(-r), error);
	return r;
}

static int multi_init(struct multi *m)
{
	struct plan_config config;
	int r = open_group(m);

	if (r == 0)
		r = workload_init(&m->workload, &m->spec, &backend_group, m->backend);
	if (r)
		return r;
	plan_config_init(&config, PLAN_AUTO, &m->spec.shape, m->n_threads);
	config.tile_rows = backend_group.tile_rows(m->backend, &m->spec.shape);
	return plan_make(&config, &m->workload.tree, &m->list);
}

static void multi_done(struct multi *m)
{
	plan_list_done(&m->list);
	if (m->workload.ops)
		workload_done(&m->workload);
	backend_group.close(m->backend);
	workload_spec_done(&m->spec);
}

/* Seconds of one layer; infinity where it failed. */
static double run_once(struct multi *m)
{
	struct backend_job job = {.shape = &m->spec.shape,
				  .tree = &m->workload.tree,
				  .list = &m->list,
				  .io = m->workload.io,
				  .plan_id = 1};
	struct backend_batch batch = {&job, 1};
	uint64_t start_ns = clock_now_ns(), id = 0;

	if (backend_group.submit(m->backend, &batch, &id) != 0 ||
	    backend_group.completed(m->backend, &id) != 0)
		return INFINITY;
	return (double)(clock_now_ns() - start_ns) * 1e-9;
}

static void take_sums(const struct multi *m, struct sums *ret)
{
	*ret = (struct sums){0};
	for (uint32_t i = 0; i < m->n_devices; i++) {
		struct group_stats stats;

		group_stats(m->backend, i, &stats);
		ret->local_ns[i] = (double)stats.local_ns;
		ret->exchange_ns[i] = (double)stats.exchange_ns;
		ret->kv_bytes[i] = (double)stats.kv_bytes_read;
		ret->exchange_bytes += (double)stats.exchange_bytes;
	}
}

static void print(const struct multi *m, const char *metric, double value, const char *unit)
{
	bench_print("multi", m->spec.name, metric, value, unit);
}

static double formula_bytes(const struct multi *m)
{
	if (m->spec.shape.split == WORK_HEADS)
		return 0;
	return (double)exchange_bytes(EXCHANGE_DIRECT, false, m->n_devices,
				      group_parts_bytes(&m->spec.shape, m->list.n_rows));
}

/* False where the output is wrong or more was exchanged than the formula says. */
static bool print_case(struct multi *m, double seconds, uint32_t reps, const struct sums *before,
		       const struct sums *after, struct multi_exchange *ret)
{
	double local = 0, exchange = INFINITY, fullest = 0, error = workload_error(&m->workload);
	double bytes = (after->exchange_bytes - before->exchange_bytes) / reps;
	struct backend_counters counters;

	for (uint32_t i = 0; i < m->n_devices; i++) {
		local = fmax(local, (after->local_ns[i] - before->local_ns[i]) / reps);
		exchange = fmin(exchange, (after->exchange_ns[i] - before->exchange_ns[i]) / reps);
		fullest = fmax(fullest, (after->kv_bytes[i] - before->kv_bytes[i]) / reps);
	}
	print(m, "time_us", seconds * 1e6, "us");
	print(m, "local_us", local * 1e-3, "us");
	print(m, "exchange_us", exchange * 1e-3, "us");
	backend_group.counters(m->backend, &counters);
	print(m, "kv_bytes_moved", (double)counters.kv_bytes_moved, "B");
	print(m, "exchange_bytes", bytes, "B");
	print(m, "formula_bytes", formula_bytes(m), "B");
	print(m, "fullest_kv_bytes", fullest, "B");
	print(m, "error", error, "norm/norm");
	*ret = (struct multi_exchange){.us = exchange * 1e-3, .bytes = bytes};
	if (error <= 4e-3 && bytes == formula_bytes(m) && counters.kv_bytes_moved == 0)
		return true;
	fprintf(stderr, "coppice-bench: %s: the output is wrong\n", m->spec.name);
	return false;
}

/* All devices are one CPU: what they read comes through its one memory. */
static void print_limit(const struct multi *m)
{
	struct machine machine = {0};

	if (machine_init(&machine, m->n_threads) == 0)
		print(m, "limit_us",
		      (double)workload_bytes(&m->workload) / machine_read_rate(&machine) * 1e6,
		      "us");
	machine_done(&machine);
}

static bool bench_case(struct multi *m, struct multi_exchange *ret)
{
	uint32_t reps = bench_reps(11);
	double times[BENCH_REPS_MAX];
	struct sums before, after;

	if (multi_init(m) != 0)
		return false;
	run_once(m);
	take_sums(m, &before);
	for (uint32_t i = 0; i < reps; i++)
		times[i] = run_once(m);
	take_sums(m, &after);
	print_limit(m);
	return print_case(m, bench_median(times, reps), reps, &before, &after, ret);
}

/* ---- over lengths --------------------------------------------------------------------------- */

static void widen(struct range *r, double value, bool first)
{
	r->least = first ? value : fmin(r->least, value);
	r->most = first ? value : fmax(r->most, value);
}

/* What the length has no part in has one name for all of them. */
static void add_length(struct options *o, const char *name, const struct multi_exchange *x)
{
	struct flat *f = o->flats;

	while (f < o->flats + o->n_flats && strcmp(f->name, name) != 0)
		f++;
	if (f == o->flats + FLATS_MAX)
		return;
	if (f == o->flats + o->n_flats) {
		*f = (struct flat){.n_lengths = 0};
		snprintf(f->name, sizeof(f->name), "%s", name);
		o->n_flats++;
	}
	widen(&f->us, x->us, f->n_lengths == 0);
	widen(&f->alone_us, x->alone_us, f->n_lengths == 0);
	widen(&f->bytes, x->bytes, f->n_lengths == 0);
	f->n_lengths++;
}

static void print_flat(const struct flat *f, const char *metric, const struct range *r)
{
	if (r->least > 0)
		bench_print("multi", f->name, metric, r->most / r->least, "most/least");
}

static void print_flats(const struct options *o)
{
	for (uint32_t i = 0; i < o->n_flats; i++) {
		const struct flat *f = &o->flats[i];

		if (f->n_lengths < 2 || f->bytes.most == 0)
			continue;
		print_flat(f, "exchange_flat", &f->us);
		print_flat(f, "exchange_alone_flat", &f->alone_us);
		print_flat(f, "exchange_bytes_flat", &f->bytes);
	}
}

/* ---- cases ---------------------------------------------------------------------------------- */

static bool bench_one(struct options *o, uint32_t n_devices, enum work_split split, uint32_t batch,
		      uint32_t tokens)
{
	struct multi m = {.n_devices = n_devices, .n_threads = o->n_threads};
	struct multi_exchange exchange = {0};
	char name[sizeof(o->flats[0].name)];
	bool right = false;

	const uint32_t nodes[] = {o->agents ? 1 : batch, AGENTS}, lengths[] = {tokens, OWN_TOKENS};

	m.spec.shape = (struct work_shape){1, 32, 8, 128, 64, WORK_BF16, 0.0883883f, split};
	if (o->gpus)
		m.spec.shape.page_tokens = GPU_PAGE_TOKENS;
	if (o->gpus)
		m.spec.shape.n_layers = GPU_LAYERS;
	snprintf(name, sizeof(name), "%ux %s %s%u", n_devices,
		 split == WORK_HEADS ? "heads" : "tokens", o->agents ? "agents" : "b",
		 o->agents ? AGENTS : batch);
	snprintf(m.spec.name, sizeof(m.spec.name), "%s l%u", name, tokens);
	if (workload_spec_levels(&m.spec, nodes, lengths, o->agents ? 2 : 1) == 0)
		right = o->gpus ? multi_gpus_case(o->gpus, &m.spec, n_devices, &exchange)
				: bench_case(&m, &exchange);
	if (right)
		add_length(o, name, &exchange);
	if (o->gpus)
		workload_spec_done(&m.spec);
	else
		multi_done(&m);
	return right;
}

static bool wants(const struct options *o, const char *split)
{
	return !o->split || strcmp(o->split, split) == 0;
}

/* Both splits, but heads where the devices do not divide them. */
static bool bench_splits(struct options *o, uint32_t n_devices, uint32_t batch, uint32_t tokens)
{
	bool right;

	if ((uint64_t)batch * tokens > o->most_tokens) {
		fprintf(stderr, "coppice-bench: %u x %u tokens are more than --most=%u\n", batch,
			tokens, o->most_tokens);
		return true;
	}
	right = (wants(o, "heads") && !wants(o, "tokens") && n_devices > 1) ||
		bench_one(o, n_devices, WORK_TOKENS, batch, tokens);
	if (n_devices > 1 && 8 % n_devices == 0 && wants(o, "heads"))
		right &= bench_one(o, n_devices, WORK_HEADS, batch, tokens);
	return right;
}

static bool bench_built_in(struct options *o)
{
	bool right = true;

	for (uint32_t b = 0; b < o->n_batches; b++) {
		for (uint32_t l = 0; l < o->n_tokens; l++) {
			for (uint32_t d = 0; d < o->n_devices; d++)
				right &=
					bench_splits(o, o->devices[d], o->batches[b], o->tokens[l]);
		}
	}
	return right;
}

static void print_peers(const json_t *entry, uint32_t n_devices, uint32_t batch, uint32_t tokens)
{
	static const char *const columns[] = {"floor_us", "flashinfer_local_us", "nccl_tree_us",
					      "ring_us"};
	char name[64];

	snprintf(name, sizeof(name), "%ux GPUs b%u l%u", n_devices, batch, tokens);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		const json_t *value = json_object_get(entry, columns[i]);

		if (json_is_number(value))
			bench_print("multi", name, columns[i], json_number_value(value), "us");
	}
}

static bool bench_entry(struct options *o, const json_t *entry)
{
	json_int_t devices = json_integer_value(json_object_get(entry, "gpus"));
	json_int_t batch = json_integer_value(json_object_get(entry, "batch"));
	json_int_t tokens = json_integer_value(json_object_get(entry, "tokens"));

	if (devices < 1 || devices > GROUP_DEVICES_MAX || batch < 1 || batch > UINT16_MAX ||
	    tokens < 1 || tokens > INT32_MAX) {
		fprintf(stderr, "coppice-bench: %s: an entry lacks gpus, batch or tokens\n",
			o->workload);
		return false;
	}
	print_peers(entry, (uint32_t)devices, (uint32_t)batch, (uint32_t)tokens);
	return bench_splits(o, (uint32_t)devices, (uint32_t)batch, (uint32_t)tokens);
}

static bool bench_file(struct options *o)
{
	json_t *root = json_file_read_array(o->workload, "cases");
	bool right = root != NULL;

	for (size_t i = 0; i < json_array_size(root); i++)
		right &= bench_entry(o, json_array_get(root, i));
	json_decref(root);
	return right;
}

static uint32_t n_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int multi_main(int argc, char **argv)
{
	struct options o = {.devices = {1, 2, 4},
			    .tokens = {16384, 131072},
			    .batches = {1},
			    .n_devices = 3,
			    .n_tokens = 2,
			    .n_batches = 1,
			    .module = BENCH_BUILD_DIR "/kernels/cuda/coppice-cuda.so",
			    .most_tokens = 262144};
	static struct multi_gpus gpus;
	bool right;
	const struct bench_options how = {
		.table = options,
		.take = parse,
		.to = &o,
		.most_reps = BENCH_REPS_MAX,
		.doc = "Times a layer of sequences whose KV is shared out to devices of a group.",
	};
	int r;

	r = bench_read(&how, argc, argv);
	if (r >= 0)
		return r;
	o.n_threads = o.n_threads ? o.n_threads : n_cores();
	if (o.on) {
		if (multi_gpus_init(&gpus, o.module, o.on) != 0)
			return 1;
		o.gpus = &gpus;
	}
	right = o.workload ? bench_file(&o) : bench_built_in(&o);
	print_flats(&o);
	return right ? 0 : 1;
}
#endif
