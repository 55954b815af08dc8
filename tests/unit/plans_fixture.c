/* plans_fixture.c - memory that is counted, a stream that is waited for, paths of any length: see
 * plans_fixture.h. */
#include "plans_fixture.h"

#include "kernels/plan/plan.h"

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the device ----------------------------------------------------------------------------- */

struct played_device device;

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	for (uint32_t i = 0; i < BLOCKS_MAX && !device.full; i++) {
		if (device.blocks[i].at)
			continue;
		assert_non_null(*ret = malloc(1)); /* an address; nobody writes there */
		device.blocks[i] = (struct block){*ret, bytes, false};
		device.bytes += bytes;
		if (device.bytes > device.peak_bytes)
			device.peak_bytes = device.bytes;
		return cudaSuccess;
	}
	return cudaErrorMemoryAllocation;
}

struct block *block_at(const void *at)
{
	for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
		if (device.blocks[i].at == at)
			return &device.blocks[i];
	}
	fail_msg("%p is no memory of the device", at);
	return NULL;
}

cudaError_t cudaFree(void *at)
{
	struct block *block;

	if (!at)
		return cudaSuccess;
	block = block_at(at);
	assert_false(block->read);
	device.bytes -= block->bytes;
	free(at);
	*block = (struct block){0};
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	for (uint32_t i = 0; i < BLOCKS_MAX; i++)
		device.blocks[i].read = false;
	device.n_waits++;
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
	assert_non_null(*ret = malloc(bytes));
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
	free(at);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
	(void)flags;
	*ret = NULL;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

/* ---- a batch -------------------------------------------------------------------------------- */

static struct pool pool = {.bytes = 64 * 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 1024};
struct batch batch;
const struct work_shape shape = {1, 8, 8, 128, PAGE_TOKENS, WORK_BF16, 0.0883883f, 0, 0};

int plans_setup(void **state)
{
	(void)state;
	memset(&device, 0, sizeof(device));
	batch = (struct batch){.pool = &pool,
			       .costs = costs_find(CODE_WGMMA),
			       .n_blocks = 130,
			       .all_blocks = 132,
			       .code = CODE_WGMMA};
	return 0;
}

int plans_teardown(void **state)
{
	(void)state;
	cudaStreamSynchronize(NULL);
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		plan_drop_tails(&batch.plans[i]);
		cudaFree(batch.plans[i].device.at);
	}
	schedule_done(&batch.schedule);
	schedule_cache_done(&batch.schedules);
	ahead_done(&batch);
	assert_int_equal(device.bytes, 0);
	return 0;
}

void next_batch(void)
{
	batch.uses_before = batch.uses;
}

void rows_init(struct rows *r, uint64_t plan_id, uint32_t n_tokens, uint32_t n_rows)
{
	uint32_t n = n_tokens / PAGE_TOKENS;
	struct work_slice *slices = malloc(n * sizeof(*slices));
	struct plan_config config;

	assert_non_null(slices);
	for (uint32_t i = 0; i < n; i++)
		slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	memset(r, 0, sizeof(*r));
	r->node = (struct work_node){WORK_NONE, 0, n_tokens, 0, n};
	r->query = (struct work_query){.node = 0, .pos = n_tokens - n_rows, .n_rows = n_rows};
	r->tree = (struct work_tree){&r->node, slices, &r->query, 1, n, 1};
	plan_config_init(&config, PLAN_AUTO, &shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &r->tree, &r->list), 0);
	r->io = (struct backend_io){.slots = &r->slot, .n_slots = 1};
	r->job = (struct backend_job){.shape = &shape,
				      .tree = &r->tree,
				      .list = &r->list,
				      .io = &r->io,
				      .plan_id = plan_id};
}

void rows_free(struct rows *r)
{
	plan_list_done(&r->list);
	free((void *)(uintptr_t)r->tree.slices);
}

void is_same_schedule(const struct schedule *a, const struct schedule *b)
{
	for (uint32_t i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		assert_int_equal(a->n[i], b->n[i]);
		assert_memory_equal(a->arrays[i].at, b->arrays[i].at,
				    b->n[i] * schedule_entry_bytes((enum schedule_array)i));
	}
}
