/*
 * card.c - a workload in a backend of the module's, run once and looked at, or replayed and timed:
 * all its layers alike, or a decode step with its append.
 */
#include "card.h"

#ifdef BENCH_HAVE_KERNELS
#include "bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int card_load(struct card *card, const char *module)
{
	void *at = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	cuda_ops find = NULL;
	const struct {
		const char *name;
		void *to;
	} names[] = {
		{CUDA_MODULE_OPS, &find},
		{CUDA_MODULE_MEASURE, &card->measure},
		{CUDA_MODULE_MEASURE_STEP, &card->measure_step},
		{CUDA_MODULE_STREAM, &card->stream},
		{CUDA_MODULE_ARENA_NEW, &card->arena_new},
		{CUDA_MODULE_ARENA_COPY, &card->arena_copy},
		{CUDA_MODULE_ARENA_FREE, &card->arena_free},
		{CUDA_MODULE_DESCRIBE, &card->describe},
		{CUDA_MODULE_PLAN_AS, &card->plan_as},
		{CUDA_MODULE_CLOCKS, &card->clocks},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *found = at ? dlsym(at, names[i].name) : NULL;

		if (!found) {
			fprintf(stderr, "coppice-bench: %s: %s\n", module, dlerror());
			return -ENOENT;
		}
		*(void **)names[i].to = found;
	}
	card->ops = find();
	return 0;
}

int card_open(const struct card *card, struct backend **ret)
{
	struct backend_config config = {.pool_bytes = CARD_EXTENT_BYTES,
					.extent_bytes = CARD_EXTENT_BYTES};
	char error[256] = "";
	int r = card->ops->open(&config, ret, error, sizeof(error));

	if (r)
		fprintf(stderr, "coppice-bench: %s\n", error);
	return r;
}

/* Q and O in device memory, where the published systems have them. */
static int place(struct card_run *r)
{
	struct workload *w = &r->workload;
	const struct workload_arena *q = &w->arenas[1], *o = &w->arenas[2];
	int ret = r->card->arena_new(r->backend, q->bytes, &r->q);

	if (!ret)
		ret = r->card->arena_new(r->backend, o->bytes, &r->o);
	if (!ret)
		ret = r->card->arena_copy(r->backend, (void *)(uintptr_t)r->q, q->host, q->bytes);
	for (uint32_t i = 0; i < w->tree.n_queries && !ret; i++) {
		w->io[i].q = r->q + (w->io[i].q - q->base);
		w->io[i].o = r->o + (w->io[i].o - o->base);
	}
	return ret;
}

int card_run_init(struct card_run *r, struct card *card, const struct workload_spec *spec,
		  char *error, size_t error_bytes)
{
	const struct backend_ops *ops = card->ops;
	struct backend_config config = {.extent_bytes = CARD_EXTENT_BYTES};
	uint64_t page_bytes = 4 * (uint64_t)spec->shape.head_dim * spec->shape.page_tokens *
			      spec->shape.n_kv_heads;
	int ret;

	*r = (struct card_run){.card = card, .spec = spec};
	config.pool_bytes = workload_pool_bytes(spec, page_bytes, CARD_EXTENT_BYTES);
	ret = ops->open(&config, &r->backend, error, error_bytes);
	if (ret)
		return ret;
	if (ops->page_bytes(r->backend, &spec->shape, error, error_bytes) != page_bytes)
		return -EINVAL;
	for (uint32_t i = 0; ret == 0 && i < config.pool_bytes / CARD_EXTENT_BYTES; i++)
		ret = ops->extent_commit(r->backend, i);
	if (!ret)
		ret = workload_init(&r->workload, spec, ops, r->backend);
	return ret ? ret : place(r);
}

void card_run_done(struct card_run *r)
{
	plan_list_done(&r->list);
	if (r->q)
		r->card->arena_free(r->backend, r->q);
	if (r->o)
		r->card->arena_free(r->backend, r->o);
	workload_done(&r->workload);
	r->card->ops->close(r->backend);
}

int card_run_once(struct card_run *r, double *ret_us)
{
	const struct backend_ops *ops = r->card->ops;
	struct backend_job job = {.shape = &r->spec->shape,
				  .tree = &r->workload.tree,
				  .list = &r->list,
				  .io = r->workload.io,
				  .plan_id = r->card->plan_id};
	struct backend_batch batch = {&job, 1};
	uint64_t id = 0, done = 0, start_ns = clock_now_ns();
	int ret = ops->submit(r->backend, &batch, &id);

	*ret_us = (double)(clock_now_ns() - start_ns) / 1e3;
	while (!ret && done < id)
		ret = ops->completed(r->backend, &done);
	return ret;
}

static int time_median(struct card_run *r, cuda_measure measure, uint32_t reps, double *ret_us)
{
	float times_us[BENCH_REPS_MAX];
	double sorted[BENCH_REPS_MAX];
	int ret = measure(r->backend, CARD_FLUSH_BYTES, reps, times_us);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < reps; i++)
		sorted[i] = times_us[i];
	*ret_us = bench_median(sorted, reps);
	return 0;
}

int card_run_time(struct card_run *r, uint32_t reps, double *ret_us)
{
	return time_median(r, r->card->measure, reps, ret_us);
}

/* K and V are Q's first values: any will do. */
static void append_last(struct card_run *r, struct work_slice *slots)
{
	const struct work_tree *tree = &r->workload.tree;

	for (uint32_t i = 0; i < tree->n_queries; i++) {
		const struct work_node *node = &tree->nodes[tree->queries[i].node];
		const struct work_slice *last = &tree->slices[node->slice + node->n_slices - 1];
		struct backend_io *io = &r->workload.io[i];

		slots[i] = (struct work_slice){last->page,
					       (uint16_t)(last->first + last->count - 1), 1};
		io->k = io->v = io->q;
		io->slots = &slots[i];
		io->n_slots = 1;
	}
}

int card_run_time_step(struct card_run *r, uint32_t reps, double *ret_us)
{
	struct work_slice *slots = calloc(r->workload.tree.n_queries, sizeof(*slots));
	double submit_us;
	int ret = -ENOMEM;

	if (slots) {
		append_last(r, slots);
		ret = card_run_once(r, &submit_us);
	}
	if (!ret)
		ret = time_median(r, r->card->measure_step, reps, ret_us);
	free(slots);
	return ret;
}

int card_run_spoil(struct card_run *r)
{
	struct workload_arena *o = &r->workload.arenas[2];

	memset(o->host, 0xff, o->bytes);
	return r->card->arena_copy(r->backend, (void *)(uintptr_t)r->o, o->host, o->bytes);
}

int card_run_fetch(struct card_run *r)
{
	struct workload_arena *o = &r->workload.arenas[2];

	return r->card->arena_copy(r->backend, o->host, (void *)(uintptr_t)r->o, o->bytes);
}
#endif
