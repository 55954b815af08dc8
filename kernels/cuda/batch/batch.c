/*
 * batch.c - batches on their way; see batch.h. A batch has a frame of its own until it is done, so
 * that what it reads in pinned memory stays; ids grow by one, and a batch is done only when all
 * before it are. What fails on the way fails the batch before it has an id, and nothing of it stays
 * under way.
 */
#include "batch_chosen.h"
#include "batch_impl.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_A_QUERY 2048u
/* Half as much again is pinned: room for a prompt of 1,024 rows behind 32,768 tokens whose strips
 * share nothing. */
#define FRAME_HOST_BYTES (UINT64_C(5) << 19)
/* From the first kernel's begin until attention is on all multiprocessors, but for what comes
 * across the bus. */
#define SETTLE_NS UINT64_C(4000)

/* Pinning takes a millisecond, of which no batch is to wait. */
static int frames_init(struct batch *b)
{
	int r = 0;

	for (uint32_t i = 0; i < BATCH_FRAMES && !r; i++) {
		b->frames[i].clock = &b->clocks[i];
		b->frames[i].device = &b->staged[i % BATCH_STAGED];
		r = queue_grow_pinned(&b->queue, &b->frames[i].host, FRAME_HOST_BYTES);
	}
	return r;
}

int batch_init(struct batch *b, struct pool *pool, enum code code, uint32_t n_blocks)
{
	*b = (struct batch){.pool = pool, .costs = costs_find(code), .code = code};
	b->n_blocks = b->all_blocks = n_blocks;
	pthread_mutex_init(&b->ahead.lock, NULL);
	if (queue_init(&b->queue) != 0 ||
	    cudaMallocHost((void **)&b->clocks, BATCH_FRAMES * sizeof(*b->clocks)) != cudaSuccess ||
	    cudaMallocHost((void **)&b->tells, BATCH_FRAMES * sizeof(*b->tells)) != cudaSuccess ||
	    cudaMalloc((void **)&b->ticket, 2 * sizeof(*b->ticket)) != cudaSuccess ||
	    cudaMemsetAsync(b->ticket, 0, 2 * sizeof(*b->ticket), b->queue.stream) != cudaSuccess)
		return -ENOMEM;
	memset(b->clocks, 0, BATCH_FRAMES * sizeof(*b->clocks));
	memset(b->tells, 0, BATCH_FRAMES * sizeof(*b->tells));
	return frames_init(b) ? -ENOMEM : stand_init(b);
}

void batch_done(struct batch *b)
{
	(void)!stand_leave(b); /* all of it goes either way */
	if (b->queue.stream)
		cudaStreamSynchronize(b->queue.stream);
	for (uint32_t i = 0; i < BATCH_FRAMES; i++)
		cudaFreeHost(b->frames[i].host.at);
	for (uint32_t i = 0; i < BATCH_STAGED; i++)
		cudaFree(b->staged[i].at);
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		cudaFree(b->plans[i].device.at);
		plan_drop_tails(&b->plans[i]);
	}
	ahead_done(b);
	cudaFree(b->parts.at);
	cudaFree(b->chosen.work_tiles.at);
	cudaFree(b->chosen.schedules.at);
	cudaFree(b->chosen.tables.at);
	cudaFree(b->ticket);
	cudaFreeHost(b->clocks);
	cudaFreeHost(b->tells);
	launch_chain_done(&b->chain);
	stand_done(b);
	free(b->needs);
	hosts_done(&b->hosts);
	schedule_done(&b->schedule);
	schedule_cache_done(&b->schedules);
	peer_free(b->peer);
	queue_done(&b->queue);
	*b = (struct batch){0};
}

/* ---- batches -------------------------------------------------------------------------------- */

static bool frame_is_done(const struct batch_frame *frame)
{
	return __atomic_load_n(&frame->clock->id, __ATOMIC_ACQUIRE) == frame->id;
}

static void frame_count(struct batch *b, struct batch_frame *frame)
{
	const struct device_clock *clock = frame->clock;

	frame->counted = true;
	if (clock->begin_ns && clock->end_ns > clock->begin_ns)
		b->counters.busy_ns += clock->end_ns - clock->begin_ns;
	b->counters.exchange_ns = clock->exchanged.ns;
	b->counters.exchange_bytes = clock->exchanged.given_bytes + peer_gathered_bytes(b->peer);
	b->done_id = max_u64(frame->id, b->done_id);
}

int batch_find_needs(struct batch *b, const struct backend_batch *batch, size_t *ret_host,
		     size_t *ret_device)
{
	*ret_host = *ret_device = 0;
	if (batch->n_jobs > b->needs_room) {
		struct batch_need *needs = realloc(b->needs, batch->n_jobs * sizeof(*needs));

		if (!needs)
			return -ENOMEM;
		b->needs = needs;
		b->needs_room = batch->n_jobs;
	}
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		b->needs[i] = tables_need(b, &batch->jobs[i]);
		tables_count(&batch->jobs[i], &b->needs[i], ret_host, ret_device);
	}
	return 0;
}

int batch_take_frame(struct batch *b, size_t host, size_t device, struct upload *ret)
{
	struct batch_frame *frame = &b->frames[(b->last_id + 1) % BATCH_FRAMES];
	int r;

	if (frame->id && !frame->counted) {
		if (queue_await(&b->queue) != 0)
			return -EIO;
		frame_count(b, frame);
	}
	*ret = (struct upload){.b = b, .frame = frame, .host_due = host};
	r = upload_grow(ret, host);
	if (!r)
		r = queue_grow(&b->queue, frame->device, device);
	frame->clock->begin_ns = frame->clock->ending_ns = 0;
	frame->begun_ns = frame->bus_ns = 0;
	return r;
}

int batch_check(struct batch *b, const struct backend_batch *batch)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct work_shape *shape = batch->jobs[i].shape;
		struct device_kernel kernel;

		if (shape_page_bytes(b->pool, shape, NULL, 0) == 0)
			return -EINVAL;
		kernel = (struct device_kernel){shape->head_dim, shape->dtype == WORK_BF16,
						batch->jobs[i].list->bounded};
		if (queue_expect(&b->queue, device_attend_init(&kernel)) != 0)
			return -EIO;
	}
	return 0;
}

void batch_put_tells(struct batch *b, const struct backend_batch *batch, uint64_t id)
{
	struct device_tells *tells = &b->tells[id % BATCH_FRAMES];

	tells->n = min_u32(batch->n_tells, DEVICE_TELLS);
	for (uint32_t i = 0; i < tells->n; i++) {
		tells->words[i].address = batch->tells[i].address;
		tells->words[i].value = batch->tells[i].value;
	}
	tells->id = id;
}

/* The batch is done when all that was launched is. */
static struct device_finish make_finish(struct batch *b, uint64_t id)
{
	const struct peer_state *state = peer_state_of(b->peer);

	return (struct device_finish){.clock = b->frames[id % BATCH_FRAMES].clock,
				      .id = id,
				      .exchanged = state ? &state->exchanged : NULL,
				      .tells = &b->tells[id % BATCH_FRAMES]};
}

int batch_finish(struct batch *b, uint64_t id)
{
	struct device_finish last = make_finish(b, id);

	return batch_launch(b, &(struct layer){.finish = &last});
}

/* A job's launches are a chain, as buffers may grow between jobs; the last one ends with the batch,
 * unless that is concluded. */
static int run_chain(struct upload *u, const struct backend_batch *batch, uint32_t i)
{
	struct batch *b = u->b;
	struct device_finish last = make_finish(b, b->last_id + 1);
	bool ends = i + 1 == batch->n_jobs && !b->peer;
	int r;

	queue_record(&b->queue, &b->chain);
	r = job_run(u, &batch->jobs[i], &b->needs[i], ends ? &last : NULL);
	if (!r)
		return queue_play(&b->queue);
	queue_drop(&b->queue);
	return r;
}

static int run_batch(struct upload *u, const struct backend_batch *batch)
{
	struct batch *b = u->b;
	int r = 0;

	for (uint32_t i = 0; i < batch->n_jobs && !r; i++)
		r = run_chain(u, batch, i);
	if (!r && batch->n_jobs == 0 && !b->peer)
		r = batch_finish(b, b->last_id + 1);
	return r;
}

uint64_t batch_keep(struct upload *u)
{
	u->frame->id = ++u->b->last_id;
	u->frame->counted = false;
	u->b->counters.batches++;
	return u->b->last_id;
}

int batch_submit(struct batch *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	struct upload u;
	size_t host, device;
	bool called;
	int r = b->queue.failed ? -EIO : batch_check(b, batch);

	if (!r)
		r = batch_find_needs(b, batch, &host, &device);
	if (r)
		return r;
	called = batch->n_jobs == 1 && stand_fits(b, &batch->jobs[0], &b->needs[0], host, device);
	r = called ? 0 : stand_leave(b);
	if (!r)
		r = batch_take_frame(b, host, device, &u);
	if (!r)
		batch_put_tells(b, batch, b->last_id + 1);
	b->n_last = 0;
	b->uses_before = b->uses;
	if (!r && called)
		job_call(&u, &batch->jobs[0], &b->needs[0]);
	else if (!r)
		r = run_batch(&u, batch);
	if (r) {
		b->queue.failed = b->queue.failed || r == -EIO;
		peer_forget(b->peer);
		/* Jobs before this one may be reading tables that the next batch overwrites. What
		 * went wrong first is told. */
		(void)!queue_await(&b->queue);
		return r;
	}
	*ret_id = batch_keep(&u);
	stand_next(&u, batch->n_jobs == 1 ? &batch->jobs[0] : NULL);
	return 0;
}

/* Launched one by one: the first of a graph may wait for memory. */
int batch_conclude(struct batch *b)
{
	int r = peer_conclude(b->peer);

	if (!r)
		r = batch_finish(b, b->last_id);
	b->queue.failed = b->queue.failed || r;
	return r;
}

/* What was launched of it runs to its end, which waits for no other device. */
int batch_abandon(struct batch *b, bool it_has)
{
	const struct backend_batch nothing = {0};
	uint64_t id;
	int r = it_has ? batch_submit(b, &nothing, &id) : 0;

	peer_forget(b->peer);
	b->tells[b->last_id % BATCH_FRAMES].n = 0;
	if (!r)
		r = batch_finish(b, b->last_id);
	(void)!queue_await(&b->queue); /* the queue remembers it */
	b->queue.failed = b->queue.failed || r;
	return r;
}

/* A device that has failed writes nothing any more, and says so when it is asked. */
static void look_for_failure(struct batch *b)
{
	cudaError_t r;

	if (++b->n_looks % LOOKS_A_QUERY)
		return;
	r = cudaStreamQuery(b->queue.stream);
	if (r == cudaErrorNotReady)
		cudaGetLastError();
	else
		b->queue.failed = queue_expect(&b->queue, r) != 0;
}

int batch_completed(struct batch *b, uint64_t *ret_id)
{
	uint32_t rank;

	b->queue.failed = b->queue.failed || peer_is_late(b->peer, &rank);
	while (b->done_id < b->last_id && !b->queue.failed) {
		struct batch_frame *frame = &b->frames[(b->done_id + 1) % BATCH_FRAMES];

		if (!frame_is_done(frame)) {
			look_for_failure(b);
			break;
		}
		if (stand_again(b, frame->id))
			break;
		frame_count(b, frame);
		stand_note_done(b);
	}
	if (b->queue.failed)
		return -EIO;
	*ret_id = b->done_id;
	return 0;
}

bool batch_settled(struct batch *b, uint64_t id)
{
	struct batch_frame *frame = &b->frames[id % BATCH_FRAMES];

	if (frame->id != id || !__atomic_load_n(&frame->clock->begin_ns, __ATOMIC_RELAXED))
		return false;
	if (!frame->begun_ns)
		frame->begun_ns = clock_now_ns();
	return clock_now_ns() - frame->begun_ns >= SETTLE_NS + frame->bus_ns;
}

bool batch_is_ending(const struct batch *b, uint64_t id)
{
	const struct batch_frame *frame = &b->frames[id % BATCH_FRAMES];

	return frame->id == id && __atomic_load_n(&frame->clock->ending_ns, __ATOMIC_RELAXED);
}

int batch_move(struct batch *b, const struct work_shape *shape, const struct backend_move *moves,
	       uint32_t n)
{
	struct pool_pages pages;
	bool wrong = false;

	if (shape_page_bytes(b->pool, shape, NULL, 0) == 0)
		return -EINVAL;
	pages = shape_pages(b->pool, shape);
	for (uint32_t i = 0; i < n; i++) {
		const struct backend_move *move = &moves[i];
		struct device_move to = {
			.pool = (char *)(uintptr_t)b->pool->base,
			.head_bytes = kv_head_bytes(shape),
			.head_dim = shape->head_dim,
			.n_heads = shape->n_layers * shape->n_kv_heads,
			.from = shape_source(shape, &pages, move->from_page, move->from_row),
			.to = shape_source(shape, &pages, move->to_page, move->to_row),
			.from_row = move->from_row % KV_BLOCK_TOKENS,
			.to_row = move->to_row % KV_BLOCK_TOKENS,
		};

		wrong = wrong || queue_expect(&b->queue, device_move(&to, b->queue.stream)) != 0;
	}
	if (wrong || queue_await(&b->queue) != 0) {
		b->queue.failed = true;
		return -EIO;
	}
	return 0;
}
