/*
 * backend_cuda.c - the backend that computes on an NVIDIA GPU: ties pool, batches and arenas to the
 * table of functions (backend.h).
 *
 * A batch is under way when submit returns; everything runs on one stream, in order. Arena
 * addresses are the device's view of the host memory, which is registered with the driver.
 */
#include "backend_impl.h"
#include "kernels/cuda/batch/batch_chosen.h"
#include "kernels/cuda/device/card.h"
#include "module.h"
#include "kernels/cuda/peers/nccl.h"
#include "proto/arith.h"
#include "kernels/pool_config.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* at least: NCCL takes seconds to find its ways, however short other waits are */
#define MEET_MS 20000u

static_assert(NCCL_ID_BYTES == BACKEND_MEETING_BYTES, "a meeting's id is NCCL's");
static_assert(PEERS_MAX == BACKEND_DEVICES_MAX, "whatever is a group can meet");

static void cuda_close(struct backend *b)
{
	if (!b)
		return;
	backend_enter(b);
	/* to free anything is to wait, and what the device is still at may reach all of it: that
	 * stays */
	if (!peer_await_end(b->batch.peer))
		return;
	tier_done(&b->tier);
	leg_done(&b->leg);
	summary_room_done(&b->summaries);
	estimate_room_done(&b->estimate);
	programs_done(&b->programs);
	ferry_done(&b->ferry);
	batch_done(&b->batch);
	pool_done(&b->pool);
	arenas_done(&b->arenas);
	free(b);
}

static int open_parts(struct backend *b, const struct backend_config *config,
		      const struct card *card, char *error, size_t error_bytes)
{
	int r = pool_init(&b->pool, b->device, config->pool_bytes, config->extent_bytes);

	if (r == -EIO)
		say(error, error_bytes,
		    "the NVIDIA driver lacks virtual memory management: install a "
		    "newer one, or use backend = cpu");
	else if (r)
		say(error, error_bytes, "no address space for a pool of %llu bytes",
		    (unsigned long long)config->pool_bytes);
	if (r)
		return r;
	r = batch_init(&b->batch, &b->pool, device_code(), card->n_blocks);
	if (r)
		say(error, error_bytes, "%s: no memory for streams and events", card->name);
	if (r)
		return r;
	r = arenas_init(&b->arenas, b->device);
	if (r)
		say(error, error_bytes,
		    r == -ENOMEM ? "out of memory" : "the NVIDIA driver shares no memory");
	return r;
}

static int cuda_open(const struct backend_config *config, struct backend **ret, char *error,
		     size_t error_bytes)
{
	struct card card;
	struct backend *b;
	int r = pool_config_check(config, error, error_bytes);

	if (!r)
		r = card_find(config, &card, error, error_bytes);
	if (r)
		return r;
	b = calloc(1, sizeof(*b));
	if (!b) {
		say(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	b->device = card.device;
	b->programs.batch = &b->batch;
	ferry_init(&b->ferry, b->device);
	card_runs_other_code(&card, device_code(), b->notice, sizeof(b->notice));
	r = open_parts(b, config, &card, error, error_bytes);
	if (r) {
		cuda_close(b);
		return r == -EIO ? -EINVAL : r;
	}
	*ret = b;
	return 0;
}

static uint64_t cuda_page_bytes(struct backend *b, const struct work_shape *shape, char *error,
				size_t error_bytes)
{
	return shape_page_bytes(&b->pool, shape, error, error_bytes);
}

static int cuda_extent_commit(struct backend *b, uint32_t extent)
{
	backend_enter(b);
	return pool_commit(&b->pool, extent, b->batch.queue.stream);
}

static int cuda_extent_prepare(struct backend *b, uint32_t extent)
{
	if (cudaSetDevice(b->device) != cudaSuccess)
		return -ENOMEM;
	return pool_prepare(&b->pool, extent);
}

static void cuda_extent_forget(struct backend *b, uint32_t extent)
{
	if (cudaSetDevice(b->device) == cudaSuccess)
		pool_release(&b->pool, extent);
}

static void cuda_extent_release(struct backend *b, uint32_t extent)
{
	backend_enter(b);
	tier_await_all(&b->tier);
	if (backend_await_idle(b))
		pool_release(&b->pool, extent);
}

static int cuda_extent_renew(struct backend *b, uint32_t extent)
{
	uint64_t bytes = b->pool.extent_bytes;

	backend_enter(b);
	tier_before_write(&b->tier, b->pool.base + extent * bytes, bytes);
	return pool_clear(&b->pool, extent, b->batch.queue.stream);
}

static int cuda_arena_attach(struct backend *b, void *host, uint64_t bytes, uint64_t *ret_base)
{
	void *device = NULL;
	cudaError_t r;
	bool mine;

	backend_enter(b);
	r = cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
	cudaGetLastError();
	/* that of a group's first device is for all of them */
	mine = r == cudaSuccess;
	if (!mine && r != cudaErrorHostMemoryAlreadyRegistered)
		return -ENOMEM;
	if (cudaHostGetDevicePointer(&device, host, 0) != cudaSuccess ||
	    hosts_add(&b->batch.hosts, (uintptr_t)device, bytes) != 0) {
		if (mine)
			cudaHostUnregister(host);
		cudaGetLastError();
		return device ? -ENOMEM : -EIO;
	}
	*ret_base = (uintptr_t)device;
	return 0;
}

static void cuda_arena_detach(struct backend *b, uint64_t base, uint64_t bytes)
{
	struct cudaPointerAttributes attributes;
	bool settled;

	backend_enter(b);
	settled = backend_await_idle(b);
	hosts_drop(&b->batch.hosts, base, bytes);
	if (settled &&
	    cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)base) == cudaSuccess &&
	    attributes.hostPointer)
		cudaHostUnregister(attributes.hostPointer);
	cudaGetLastError();
}

static int cuda_lend(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	backend_enter(b);
	/* it clears the memory on this stream, and waits for that */
	if (!backend_await_idle(b))
		return -EIO;
	return arenas_new(&b->arenas, bytes, b->batch.queue.stream, ret);
}

static void cuda_unlend(struct backend *b, uint64_t base)
{
	backend_enter(b);
	if (backend_await_idle(b))
		arenas_free(&b->arenas, base);
}

/* They reach each other's memory: arenas that come now too. */
static void let_members(const struct backend_meeting *meeting)
{
	for (uint32_t i = 0; i < meeting->n; i++) {
		struct backend *member = meeting->members[i];

		for (uint32_t j = 0; j < meeting->n; j++) {
			if (meeting->members[j]->device != member->device)
				arenas_let(&member->arenas, meeting->members[j]->device);
		}
	}
}

/* Devices that share the tokens of sequences. */
static int cuda_meet(const struct backend_meeting *meeting, char *notice, char *error, size_t bytes)
{
	struct queue *queues[PEERS_MAX];
	struct peer *ends[PEERS_MAX] = {0};
	int devices[PEERS_MAX], r;
	uint32_t limit_ms = meeting->timeout_ms;

	for (uint32_t i = 0; i < meeting->n && i < PEERS_MAX; i++) {
		queues[i] = &meeting->members[i]->batch.queue;
		devices[i] = meeting->members[i]->device;
	}
	r = peer_meet(&(struct peer_config){.queues = queues,
					    .devices = devices,
					    .n = meeting->n,
					    .first = meeting->first,
					    .n_all = meeting->n_all,
					    .id = meeting->id,
					    .timeout_ms = limit_ms,
					    .meet_ms = max_u32(limit_ms, MEET_MS)},
		      ends, notice, error, bytes);
	for (uint32_t i = 0; i < meeting->n && i < PEERS_MAX; i++)
		meeting->members[i]->batch.peer = ends[i];
	if (r == 0)
		let_members(meeting);
	return r;
}

static int cuda_conclude(struct backend *b)
{
	backend_enter(b);
	return batch_conclude(&b->batch);
}

static int cuda_abandon(struct backend *b, bool it_has)
{
	backend_enter(b);
	return batch_abandon(&b->batch, it_has);
}

static void cuda_give_up(struct backend *b)
{
	cudaSetDevice(b->device);
	peer_give_up(b->batch.peer);
}

/* Of what devices of a group have to do with each other; NULL: nothing. By inboxes a wait for
 * another ends by itself, and names it. */
static const char *find_peers_fault(struct backend *b)
{
	const struct batch *batch = &b->batch;
	uint32_t rank;
	bool late = peer_is_late(batch->peer, &rank);

	if (late && rank != PEER_GIVEN_UP) {
		snprintf(b->fault, sizeof(b->fault), "it waited for device %u in vain", rank);
		return b->fault;
	}
	if (batch->queue.error == cudaErrorTimeout)
		return peer_state_of(batch->peer) ? "it does not end what it has begun"
						  : "it waited for other devices in vain";
	return late && batch->queue.error == cudaSuccess ? "it was given up with its group" : NULL;
}

/* A fault stays: every later call says it again. */
static const char *cuda_fault(struct backend *b)
{
	const char *peers_fault = find_peers_fault(b);
	cudaError_t r;
	int mps = 0;

	if (peers_fault)
		return peers_fault;
	cudaSetDevice(b->device);
	r = cudaStreamQuery(b->batch.queue.stream);
	if (r == cudaErrorNotReady)
		cudaGetLastError();
	if ((r == cudaSuccess || r == cudaErrorNotReady) && !b->batch.queue.failed &&
	    !b->tier.error)
		return NULL;
	if (b->batch.queue.error != cudaSuccess)
		r = (cudaError_t)b->batch.queue.error;
	else if (b->tier.error)
		r = (cudaError_t)b->tier.error;
	cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, b->device);
	snprintf(b->fault, sizeof(b->fault), "the GPU does not go on (%s: %s)%s",
		 cudaGetErrorName(r), cudaGetErrorString(r),
		 mps ? "; under MPS a fatal fault of one process ends the work of all on the GPU, "
		       "and nobody is admitted before all have left"
		     : "");
	return b->fault;
}

static int cuda_advance(struct backend *b, const struct backend_job *job)
{
	return batch_advance(&b->batch, job);
}

static int cuda_prepare(struct backend *b, const struct backend_job *job)
{
	return batch_make_ahead(&b->batch, job);
}

/* Q comes to where legs of the same rows want it. */
static int estimate_of_summary(struct backend *b, const struct backend_estimate *estimate,
			       const float **ret_mass)
{
	struct sparse with = backend_sparse(b);
	uint64_t q;
	int r = summary_takes(estimate) ? 0 : -EINVAL;

	if (!r)
		r = leg_bring(&b->leg, &b->batch.queue, estimate, &q);
	return r ? r : summary_estimate(&b->summaries, &with, estimate, q, ret_mass);
}

static int cuda_estimate(struct backend *b, const struct backend_estimate *estimate,
			 const float **ret_mass)
{
	struct sparse with;

	backend_enter(b);
	if (b->batch.queue.failed)
		return -EIO;
	if (estimate->summary)
		return estimate_of_summary(b, estimate, ret_mass);
	with = backend_sparse(b);
	return estimate_room_run(&b->estimate, &with, estimate, ret_mass);
}

static int cuda_choose(struct backend *b, const struct backend_estimate *estimate,
		       const struct select_config *config, const struct select_chunk *chunk,
		       const uint64_t **ret_kept, struct select_shares *shares)
{
	struct sparse with;

	backend_enter(b);
	if (b->batch.queue.failed)
		return -EIO;
	with = backend_sparse(b);
	return estimate_room_choose(&b->estimate, &with, estimate,
				    &(struct estimate_choice){config, chunk, shares}, ret_kept);
}

static bool cuda_takes_chosen(struct backend *b, const struct backend_job *job)
{
	return chosen_takes(&b->batch, job);
}

static int cuda_completed(struct backend *b, uint64_t *ret_id)
{
	int r = batch_completed(&b->batch, ret_id);

	if (!r)
		leg_completed(&b->leg, ret_id);
	return r;
}

static bool cuda_settled(struct backend *b, uint64_t id)
{
	return batch_settled(&b->batch, id);
}

static int cuda_move(struct backend *b, const struct work_shape *shape,
		     const struct backend_move *moves, uint32_t n)
{
	backend_enter(b);
	if (tier_reads(&b->tier))
		tier_await_all(&b->tier);
	return batch_move(&b->batch, shape, moves, n);
}

static void cuda_counters(struct backend *b, struct backend_counters *ret)
{
	*ret = b->batch.counters;
}

static const char *cuda_notice(struct backend *b)
{
	return b->notice[0] ? b->notice : NULL;
}

#define BESIDE_FOLD 1.3 /* that long rows of prompts take, of what their arithmetic does */

/* All multiprocessors at work; rows as where many share KV. */
static void cuda_cost(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	const struct costs *costs = b->batch.costs;
	double kb_ns = 1 / (1024.0 * b->batch.n_blocks);
	double kv_block_kb = kv_block_bytes(shape->head_dim, shape->head_dim) / 1024.0;
	bool wide = code_takes_wide(b->batch.code, shape->head_dim);
	double kb_fold_ns = costs_fold_ns(costs, wide, kv_block_kb) / kv_block_kb;

	*ret = (struct backend_cost){
		.fixed_ns = costs->batch_ns,
		.kv_ns_per_byte = costs->read_ns_per_kb * kb_ns,
		.row_ns_per_byte = BESIDE_FOLD * kb_fold_ns / DEVICE_BLOCK_ROWS * kb_ns,
	};
}

static uint32_t cuda_tile_rows(struct backend *b, const struct work_shape *shape)
{
	(void)b;
	(void)shape;
	return DEVICE_WORK_TILE_ROWS;
}

static const struct backend_ops ops = {
	.name = "cuda",
	.wants_rows = true,
	.unseen = 2.4, /* where costs count reads of the cache, and nothing is there */
	.memory = card_memory,
	.open = cuda_open,
	.close = cuda_close,
	.meet = cuda_meet,
	.meeting_id = nccl_id,
	.kind = card_kind,
	.conclude = cuda_conclude,
	.abandon = cuda_abandon,
	.give_up = cuda_give_up,
	.page_bytes = cuda_page_bytes,
	.extent_commit = cuda_extent_commit,
	.extent_prepare = cuda_extent_prepare,
	.extent_forget = cuda_extent_forget,
	.extent_release = cuda_extent_release,
	.extent_renew = cuda_extent_renew,
	.arena_attach = cuda_arena_attach,
	.arena_detach = cuda_arena_detach,
	.arena_new = cuda_lend,
	.arena_free = cuda_unlend,
	.advance = cuda_advance,
	.prepare = cuda_prepare,
	.submit = backend_submit,
	.estimate = cuda_estimate,
	.choose = cuda_choose,
	.takes_chosen = cuda_takes_chosen,
	.completed = cuda_completed,
	.settled = cuda_settled,
	.move = cuda_move,
	.counters = cuda_counters,
	.cost = cuda_cost,
	.fault = cuda_fault,
	.notice = cuda_notice,
	.tile_rows = cuda_tile_rows,
	.tier = &backend_tier_ops,
	.program = &backend_program_ops,
};

const struct backend_ops *coppice_backend_cuda(void)
{
	return &ops;
}
