/*
 * fake_copies.c - see fake_copies.h. An operation is done when its stream's turn comes, never
 * before; an event has ended when the stream that recorded it has come to it.
 */
#include "fake_copies.h"

#include "kernels/cuda/tiers/tier_runs.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include <cmocka.h>

struct event {
	uint64_t recorded, ended; /* how often */
};

enum kind { COPY, RECORD, WAIT };

struct op {
	TAILQ_ENTRY(op) link;
	enum kind kind;
	void *to;
	const void *from;
	size_t bytes;
	struct event *event;
	uint64_t count;
};

struct stream {
	TAILQ_HEAD(, op) ops;
	TAILQ_ENTRY(stream) link;
};

static TAILQ_HEAD(, stream) streams = TAILQ_HEAD_INITIALIZER(streams);
struct fake_copies fake_copies;
static uint64_t random_state = 1;

void fake_seed(void)
{
	const char *text = getenv("COPPICE_SEED");

	random_state = (text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL)) * 2 + 1;
	print_message("COPPICE_SEED=%lu\n", random_state / 2);
}

uint32_t fake_draw(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 33) % n;
}

static struct stream *stream_of(void *stream)
{
	return stream;
}

static void enqueue(void *stream, struct op what)
{
	struct op *op = malloc(sizeof(*op));

	*op = what;
	TAILQ_INSERT_TAIL(&stream_of(stream)->ops, op, link);
}

/* One operation of a stream, if its turn can come. */
static bool stream_step(struct stream *s)
{
	struct op *op = TAILQ_FIRST(&s->ops);

	if (!op || (op->kind == WAIT && op->event->ended < op->count))
		return false;
	if (op->kind == COPY)
		memcpy(op->to, op->from, op->bytes);
	if (op->kind == RECORD)
		op->event->ended = op->count;
	TAILQ_REMOVE(&s->ops, op, link);
	free(op);
	return true;
}

void fake_go_on(uint32_t n)
{
	for (; n > 0; n--) {
		uint32_t skip = fake_draw(3);
		struct stream *s;
		TAILQ_FOREACH (s, &streams, link)
			if (skip-- == 0)
				break;
		if (s)
			stream_step(s);
	}
}

static bool any_step(void)
{
	struct stream *s;

	TAILQ_FOREACH (s, &streams, link)
		if (stream_step(s))
			return true;
	return false;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret, unsigned flags, int priority)
{
	struct stream *s = calloc(1, sizeof(*s));

	(void)flags;
	(void)priority;
	TAILQ_INIT(&s->ops);
	TAILQ_INSERT_TAIL(&streams, s, link);
	*ret = (cudaStream_t)(void *)s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	while (!TAILQ_EMPTY(&stream_of(stream)->ops))
		if (!stream_step(stream_of(stream)))
			assert_true(any_step());
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return TAILQ_EMPTY(&stream_of(stream)->ops) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaStreamSynchronize(stream);
	TAILQ_REMOVE(&streams, stream_of(stream), link);
	free(stream);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags)
{
	(void)flags;
	*ret = (cudaEvent_t)calloc(1, sizeof(struct event));
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	free(event);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	struct event *e = (void *)event;

	enqueue(stream, (struct op){.kind = RECORD, .event = e, .count = ++e->recorded});
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	struct event *e = (void *)event;

	(void)flags;
	enqueue(stream, (struct op){.kind = WAIT, .event = e, .count = e->recorded});
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	struct event *e = (void *)event;

	fake_go_on(fake_draw(4));
	return e->ended == e->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	struct event *e = (void *)event;

	while (e->ended < e->recorded)
		assert_true(any_step());
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	(void)kind;
	enqueue(stream, (struct op){.kind = COPY, .to = to, .from = from, .bytes = bytes});
	return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
			      size_t width, size_t height, enum cudaMemcpyKind kind,
			      cudaStream_t stream)
{
	assert_true(to_pitch >= width && from_pitch >= width);
	fake_copies.n_pitched++;
	for (size_t i = 0; i < height; i++)
		cudaMemcpyAsync((char *)to + i * to_pitch, (const char *)from + i * from_pitch,
				width, kind, stream);
	return cudaSuccess;
}

#if CUDART_VERSION >= 13000
/* In any order, too. */
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes,
				 size_t count, struct cudaMemcpyAttributes *attributes,
				 size_t *firsts, size_t n_attributes, cudaStream_t stream)
{
	size_t first = fake_draw((uint32_t)count);

	assert_int_equal(attributes->srcAccessOrder, cudaMemcpySrcAccessOrderStream);
	assert_int_equal(n_attributes, 1);
	assert_int_equal(firsts[0], 0);
	if (!fake_copies.has_together)
		return cudaErrorCallRequiresNewerDriver;
	for (size_t i = 0; i < count; i++)
		cudaMemcpyAsync(to[(first + i) % count], from[(first + i) % count],
				bytes[(first + i) % count], cudaMemcpyDefault, stream);
	return cudaSuccess;
}
#endif

static bool once(bool *flag)
{
	bool was = *flag;

	*flag = false;
	return was;
}

cudaError_t cudaHostRegister(void *host, size_t bytes, unsigned flags)
{
	(void)host;
	(void)bytes;
	(void)flags;
	if (once(&fake_copies.refuses_memory))
		return cudaErrorMemoryAllocation;
	fake_copies.n_registered++;
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *host)
{
	(void)host;
	assert_true(fake_copies.n_registered > 0);
	fake_copies.n_registered--;
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **ret, void *host, unsigned flags)
{
	(void)flags;
	if (once(&fake_copies.refuses_address))
		return cudaErrorInvalidValue;
	*ret = host;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

int device_tier_init(void)
{
	return 0;
}

/* In any order: the blocks deal pieces out among themselves. */
int device_tier(const struct device_tier *copies, device_stream stream)
{
	uint32_t first = fake_draw(copies->n);

	fake_copies.n_small_launches++;
	for (uint32_t i = 0; i < copies->n; i++) {
		uint32_t at = (first + i) % copies->n;
		cudaMemcpyAsync((void *)(uintptr_t)copies->to[at],
				(const void *)(uintptr_t)copies->from[at], copies->bytes,
				cudaMemcpyDefault, (cudaStream_t)(void *)stream);
	}
	return 0;
}
