/*
 * tier.c - copies between pool and host memory; see tier.h. Each way counts what was asked for,
 * launched and ended; all of it ends in the order in which it was asked for. The first error stays:
 * what is asked for behind it never ends, and nobody waits for it.
 */
#include "tier.h"
#include "proto/arith.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UP_BYTES (UINT64_C(7) << 19)

/* The first error stays; what is asked for after it never ends. */
static bool is_well(struct tier *t, cudaError_t r)
{
	if (r != cudaSuccess && !t->error)
		t->error = r;
	return !t->error;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static int way_init(struct tier_stream *w, int priority)
{
	cudaStream_t stream;

	if (cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority) != cudaSuccess)
		return -ENOMEM;
	w->stream = stream;
	for (uint32_t i = 0; i < TIER_LAUNCHES; i++) {
		cudaEvent_t event;
		if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
			return -ENOMEM;
		w->events[i] = event;
	}
	return 0;
}

static void way_done(struct tier_stream *w)
{
	if (w->stream)
		cudaStreamSynchronize(w->stream);
	for (uint32_t i = 0; i < TIER_LAUNCHES; i++)
		if (w->events[i])
			cudaEventDestroy(w->events[i]);
	if (w->stream)
		cudaStreamDestroy(w->stream);
	memset(w, 0, sizeof(*w));
}

/* Streams before those of batches: two blocks that find no room while others wait for it would hold
 * up all that wants what they bring. */
static int tier_init(struct tier *t, device_stream batches, bool bulk)
{
	int least, greatest;
	cudaEvent_t event;

	if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess ||
	    cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
		return -ENOMEM;
	t->before = event;
	for (uint32_t i = 0; i < TIER_MARKS; i++) {
		if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
			return -ENOMEM;
		t->marks[i].event = event;
	}
	t->batches = batches;
	t->means = (struct tier_means){.together = true, .bulk = bulk};
	if (bulk && device_tier_init() != cudaSuccess)
		return -ENOMEM;
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		if (way_init(&t->ways[way], greatest) != 0)
			return -ENOMEM;
	t->ready = true;
	return 0;
}

void tier_done(struct tier *t)
{
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		way_done(&t->ways[way]);
	for (uint32_t i = 0; i < TIER_MARKS; i++)
		if (t->marks[i].event)
			cudaEventDestroy(t->marks[i].event);
	if (t->before)
		cudaEventDestroy(t->before);
	free(t->memories);
	memset(t, 0, sizeof(*t));
}

/* Memory that a device can read and write, at *ret as it sees it. */
static int host_register(void *host, uint64_t bytes, void **ret)
{
	if (cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) !=
	    cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	if (cudaHostGetDevicePointer(ret, host, 0) != cudaSuccess) {
		cudaHostUnregister(host);
		cudaGetLastError();
		return -ENOMEM;
	}
	return 0;
}

int tier_pin(struct tier *t, device_stream batches, bool bulk, void *host, uint64_t bytes)
{
	struct tier_memory *memories =
		realloc(t->memories, (t->n_memories + 1) * sizeof(*memories));
	void *device;

	if (!memories)
		return -ENOMEM;
	t->memories = memories;
	if (!t->ready && tier_init(t, batches, bulk) != 0) {
		cudaGetLastError();
		tier_done(t);
		return -ENOMEM;
	}
	if (host_register(host, bytes, &device) != 0)
		return -ENOMEM;
	memories[t->n_memories++] = (struct tier_memory){.host = (uintptr_t)host,
							 .device = (uintptr_t)device,
							 .bytes = bytes};
	return 0;
}

void tier_unpin(struct tier *t, void *host)
{
	tier_await_all(t);
	for (uint32_t i = 0; i < t->n_memories; i++) {
		if (t->memories[i].host != (uintptr_t)host)
			continue;
		cudaHostUnregister(host);
		t->memories[i] = t->memories[--t->n_memories];
		return;
	}
}

/* As the device sees it. */
static uint64_t device_address(const struct tier *t, const void *host)
{
	uint64_t at = (uintptr_t)host;

	for (uint32_t i = 0; i < t->n_memories; i++)
		if (at - t->memories[i].host < t->memories[i].bytes)
			return at - t->memories[i].host + t->memories[i].device;
	assert(!"memory that was pinned");
	return 0;
}

/* ---- launches ------------------------------------------------------------------------------- */

static void way_look(struct tier *t, struct tier_stream *w)
{
	while (!t->error && w->n_ended < w->n_launched) {
		uint32_t i = w->n_ended % TIER_LAUNCHES;
		cudaError_t r = cudaEventQuery(w->events[i]);

		if (r == cudaErrorNotReady)
			return;
		if (!is_well(t, r))
			return;
		w->n_done = w->tokens[i];
		w->n_ended++;
	}
}

/* Waits until no more than so many launches are under way. */
static void way_await(struct tier *t, struct tier_stream *w, uint64_t n_under_way)
{
	way_look(t, w);
	while (!t->error && w->n_launched - w->n_ended > n_under_way) {
		is_well(t, cudaEventSynchronize(w->events[w->n_ended % TIER_LAUNCHES]));
		way_look(t, w);
	}
}

void tier_mark(struct tier *t, uint64_t id)
{
	struct tier_mark *mark = &t->marks[t->n_marks % TIER_MARKS];

	if (!t->ready || !is_well(t, cudaEventRecord(mark->event, t->batches)))
		return;
	mark->id = id;
	t->n_marks++;
}

/* After which the batches' stream has all that came with this batch. NULL: an error. */
static void *event_after(struct tier *t, uint64_t id)
{
	uint64_t first = t->n_marks < TIER_MARKS ? 0 : t->n_marks - TIER_MARKS;

	for (uint64_t i = first; i < t->n_marks; i++)
		if (t->marks[i % TIER_MARKS].id >= id)
			return t->marks[i % TIER_MARKS].event;
	return is_well(t, cudaEventRecord(t->before, t->batches)) ? t->before : NULL;
}

/* After those batches that have to do with it; copies up also after copies down that read what they
 * write to. */
static bool way_order(struct tier *t, struct tier_stream *w)
{
	const struct tier_stream *downs = &t->ways[TIER_DOWN];
	void *event = event_after(t, w->after);

	w->after = 0;
	if (!event || !is_well(t, cudaStreamWaitEvent(w->stream, event, 0)))
		return false;
	if (w->behind <= downs->n_ended)
		return true;
	return is_well(t, cudaStreamWaitEvent(w->stream,
					      downs->events[(w->behind - 1) % TIER_LAUNCHES], 0));
}

/* What comes up costs attention that waits for memory 0.2 % of its speed for each GB/s: at 54 GB/s
 * it has 0.90 of it. So while batches are under way copies are parted into calls, between which the
 * bus rests: 50 GB/s, and 0.91. */
static uint64_t run_bytes_of(const struct tier *t, const struct tier_stream *w)
{
	if (w != &t->ways[TIER_UP] ||
	    cudaStreamQuery((cudaStream_t)(void *)t->batches) != cudaErrorNotReady)
		return UINT64_MAX;
	cudaGetLastError();
	return UP_BYTES;
}

static void way_launch(struct tier *t, struct tier_stream *w)
{
	if (w->next.n == 0 || t->error)
		return;
	way_await(t, w, TIER_LAUNCHES - 1);
	bool blocks;
	t->means.run_bytes = run_bytes_of(t, w);
	if (t->error || !way_order(t, w) ||
	    !is_well(t, tier_runs_launch(&w->next, &t->means, w->stream, &blocks)))
		return;
	uint32_t i = w->n_launched % TIER_LAUNCHES;
	if (!is_well(t, cudaEventRecord(w->events[i], w->stream)))
		return;
	w->tokens[i] = w->n_asked;
	w->blocks[i] = blocks;
	w->n_launched++;
}

/* Launches down until the copies that read any of these bytes are done; 0: none does. */
static uint64_t readers_of(struct tier *t, uint64_t pool, uint64_t bytes)
{
	struct tier_stream *w = &t->ways[TIER_DOWN];
	uint64_t launch = 0;

	if (w->n_asked == w->n_done || pool >= t->read_end || pool + bytes <= t->read_begin)
		return 0;
	for (uint64_t i = w->n_done; i < w->n_asked; i++) {
		const struct tier_known *known = &t->readers[i % TIER_KNOWN];
		if (known->pool < pool + bytes && pool < known->pool + known->bytes)
			launch = known->launch;
	}
	if (launch > w->n_launched)
		way_launch(t, w);
	return launch;
}

/* The next copy down. What they read lies in one range, for as long as there are any. */
static void reader_add(struct tier *t, uint64_t pool, uint64_t bytes)
{
	const struct tier_stream *w = &t->ways[TIER_DOWN];
	bool none = w->n_asked == w->n_done;

	t->readers[w->n_asked % TIER_KNOWN] =
		(struct tier_known){.pool = pool, .bytes = bytes, .launch = w->n_launched + 1};
	if (none || pool < t->read_begin)
		t->read_begin = pool;
	if (none || pool + bytes > t->read_end)
		t->read_end = pool + bytes;
}

uint64_t tier_copy(struct tier *t, enum tier_way way, const struct tier_ask *ask)
{
	struct tier_stream *w = &t->ways[way];
	uint64_t at = device_address(t, ask->host), pool = ask->pool, bytes = ask->bytes;
	uint64_t after = way == TIER_UP && ask->after ? ask->after : UINT64_MAX;

	while (!t->error && way == TIER_DOWN && w->n_asked - w->n_done >= TIER_KNOWN) {
		way_launch(t, w);
		way_await(t, w, 0);
	}
	if (t->error)
		return ++w->n_asked;
	if (way == TIER_UP) {
		uint64_t behind = readers_of(t, pool, bytes);
		w->behind = max_u64(behind, w->behind);
	}
	uint64_t from = way == TIER_DOWN ? pool : at, to = way == TIER_DOWN ? at : pool;
	if (!tier_runs_add(&w->next, from, to, bytes)) {
		way_launch(t, w);
		tier_runs_add(&w->next, from, to, bytes);
	}
	w->after = max_u64(after, w->after);
	if (way == TIER_DOWN)
		reader_add(t, pool, bytes);
	return ++w->n_asked;
}

void tier_kick(struct tier *t)
{
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		way_launch(t, &t->ways[way]);
}

uint64_t tier_ended(struct tier *t, enum tier_way way)
{
	way_look(t, &t->ways[way]);
	return t->ways[way].n_done;
}

void tier_before_write(struct tier *t, uint64_t pool, uint64_t bytes)
{
	struct tier_stream *w = &t->ways[TIER_DOWN];
	uint64_t launch = readers_of(t, pool, bytes);

	if (launch > w->n_ended && !t->error)
		is_well(t, cudaStreamWaitEvent(t->batches, w->events[(launch - 1) % TIER_LAUNCHES],
					       0));
}

bool tier_reads(const struct tier *t)
{
	return t->ways[TIER_DOWN].n_asked > t->ways[TIER_DOWN].n_done;
}

void tier_await_all(struct tier *t)
{
	tier_kick(t);
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		if (t->ready)
			way_await(t, &t->ways[way], 0);
}

uint32_t tier_blocks(struct tier *t)
{
	uint32_t n = 0;

	for (enum tier_way way = 0; t->ready && way < TIER_WAYS; way++) {
		struct tier_stream *w = &t->ways[way];
		way_look(t, w);
		if (w->n_ended < w->n_launched && w->blocks[w->n_ended % TIER_LAUNCHES])
			w->stays = TIER_STAYS;
		n += w->stays > 0 ? TIER_BLOCKS : 0;
		w->stays -= w->stays > 0;
	}
	return n;
}
