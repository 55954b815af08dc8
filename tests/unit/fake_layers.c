/*
 * fake_layers.c - see fake_layers.h. What heads leave in the played device's pages, which have the
 * rows of a run one after the other, the CPU's backend appends as it does any job's.
 */
#include "fake_layers.h"

#include "proto/arith.h"
#include "kernels/cuda/batch/batch_layers.h"
#include "kernels/cuda/program/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fake {
	struct backend *cpu; /* borrowed: what the test opened */
	char told[1 << 20];
	char *kv; /* owned: new K and V of a layer, as the device's pages have them */
} fake;

void fake_layers_on(struct backend *cpu)
{
	fake.cpu = cpu;
}

/* Rows lie in pages of one layer, one after the other. */
static uint64_t page_bytes(const struct work_shape *shape)
{
	return kv_head_bytes(shape) * shape->n_kv_heads;
}

static struct device_place place_of(const struct work_shape *shape, uint32_t row)
{
	uint64_t page = row / shape->page_tokens * page_bytes(shape) / KV_SOURCE_BYTES;
	uint32_t in_page = row % shape->page_tokens;

	return (struct device_place){.source = (uint32_t)page +
					       in_page / KV_BLOCK_TOKENS * kv_block_sources(shape),
				     .row = in_page % KV_BLOCK_TOKENS};
}

static uint32_t n_rows(const struct work_tree *tree)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < tree->n_queries; i++)
		n += tree->queries[i].n_rows;
	return n;
}

int batch_layers_begin(struct batch *b, const struct backend_job *job, size_t host_bytes,
		       struct batch_layers *ret)
{
	uint32_t n_pages = ceil_div(n_rows(job->tree), job->shape->page_tokens);

	assert_true(host_bytes <= sizeof(fake.told) && job->layer == 0);
	fake.kv = malloc(n_pages * page_bytes(job->shape));
	assert_non_null(fake.kv);
	*ret = (struct batch_layers){.u.b = b, .job = job};
	return 0;
}

char *batch_layers_pool(const struct batch_layers *layers, uint32_t layer)
{
	(void)layers;
	(void)layer;
	return fake.kv;
}

void batch_layers_places(const struct batch_layers *layers, struct device_place *to)
{
	uint32_t n = n_rows(layers->job->tree);

	for (uint32_t row = 0; row < n; row++)
		to[row] = place_of(layers->job->shape, row);
}

void *batch_layers_host(struct batch_layers *layers, size_t bytes)
{
	(void)layers;
	memset(fake.told, 0xff, bytes);
	return fake.told;
}

/* A row's K or V of all heads, one after the other as the CPU takes them. */
static void take_kv(const struct work_shape *shape, uint32_t row, bool of_v, char *to)
{
	const struct device_place place = place_of(shape, row);

	for (uint32_t head = 0; head < shape->n_kv_heads; head++) {
		const char *from = fake.kv + head * kv_head_bytes(shape) +
				   (uint64_t)place.source * KV_SOURCE_BYTES +
				   (of_v ? kv_part_bytes(shape->head_dim) : 0);

		for (uint32_t i = 0; i < shape->head_dim / KV_CHUNK_VALUES; i++, to += 16)
			memcpy(to, from + kv_chunk_offset(shape->head_dim, place.row, i), 16);
	}
}

int batch_layers_attend(struct batch_layers *layers, uint32_t layer)
{
	const struct work_shape *shape = layers->job->shape;
	const struct work_tree *tree = layers->job->tree;
	uint64_t bytes = kv_token_bytes(shape) / 2 * shape->n_kv_heads, id;
	struct backend_io *io = calloc(tree->n_queries, sizeof(*io));
	char *k = malloc(2 * n_rows(tree) * bytes), *v = k + n_rows(tree) * bytes;
	struct backend_job job = *layers->job;
	const struct backend_batch batch = {.jobs = &job, .n_jobs = 1};
	int r;

	assert_true(io && k);
	for (uint32_t i = 0, row = 0; i < tree->n_queries; i++) {
		io[i] = layers->job->io[i];
		io[i].k = (uintptr_t)k + row * bytes;
		io[i].v = (uintptr_t)v + row * bytes;
		io[i].k_stride = io[i].v_stride = bytes;
		for (uint32_t t = 0; t < tree->queries[i].n_rows; t++, row++) {
			take_kv(shape, row, false, k + row * bytes);
			take_kv(shape, row, true, v + row * bytes);
		}
	}
	job.layer = layer;
	job.io = io;
	r = backend_cpu.submit(fake.cpu, &batch, &id);
	layers->attended = true;
	free(io);
	free(k);
	return r;
}

int batch_layers_end(struct batch_layers *layers, bool ended, uint64_t *ret_id)
{
	const struct backend_batch none = {0};

	(void)ended;
	batch_layers_drop(layers);
	return backend_cpu.submit(fake.cpu, &none, ret_id);
}

void batch_layers_drop(struct batch_layers *layers)
{
	(void)layers;
	free(fake.kv);
	fake.kv = NULL;
}
