/*
 * tier_cuda_test.c - the order of copies on a GPU's streams (kernels/cuda/tiers/tier.c), over a
 * runtime that has no GPU: streams are queues of which any may go on next, unless it waits for an
 * event, so that whatever CUDA leaves open happens.
 */
#include "kernels/cuda/tiers/tier.h"

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

#define N_PAGES 12u
#define N_HOSTS 24u
#define PAGE_BYTES 4096u
#define OPERATIONS 20000u

/* ---- the runtime ---------------------------------------------------------------------------- */

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
static uint64_t random_state = 1;
static uint32_t n_small_launches, n_pitched;
static uint32_t n_registered; /* memories, now */
static bool has_together; /* the driver has the call */
static bool refuses_memory, refuses_address; /* once */

static uint32_t draw(uint32_t n)
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

/* A few operations of streams drawn at random. */
static void go_on(uint32_t n)
{
	for (; n > 0; n--) {
		uint32_t skip = draw(3);
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

	go_on(draw(4));
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
	n_pitched++;
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
	size_t first = draw((uint32_t)count);

	assert_int_equal(attributes->srcAccessOrder, cudaMemcpySrcAccessOrderStream);
	assert_int_equal(n_attributes, 1);
	assert_int_equal(firsts[0], 0);
	if (!has_together)
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
	if (once(&refuses_memory))
		return cudaErrorMemoryAllocation;
	n_registered++;
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *host)
{
	(void)host;
	assert_true(n_registered > 0);
	n_registered--;
	return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **ret, void *host, unsigned flags)
{
	(void)flags;
	if (once(&refuses_address))
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
	uint32_t first = draw(copies->n);

	n_small_launches++;
	for (uint32_t i = 0; i < copies->n; i++) {
		uint32_t at = (first + i) % copies->n;
		cudaMemcpyAsync((void *)(uintptr_t)copies->to[at],
				(const void *)(uintptr_t)copies->from[at], copies->bytes,
				cudaMemcpyDefault, (cudaStream_t)(void *)stream);
	}
	return 0;
}

/* ---- the test ------------------------------------------------------------------------------- */

struct fixture {
	struct tier tier;
	cudaStream_t batches;
	uint64_t *pool, *hosts; /* pages */
};

static void *page_of(uint64_t *pages, uint32_t i)
{
	return (char *)pages + (size_t)i * PAGE_BYTES;
}

static void fill(void *page, uint64_t number)
{
	for (uint32_t i = 0; i < PAGE_BYTES / 8; i++)
		((uint64_t *)page)[i] = number * 1000 + i;
}

static bool holds(const void *page, uint64_t number)
{
	for (uint32_t i = 0; i < PAGE_BYTES / 8; i++)
		if (((const uint64_t *)page)[i] != number * 1000 + i)
			return false;
	return true;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->pool = calloc(N_PAGES, PAGE_BYTES);
	f->hosts = calloc(N_HOSTS, PAGE_BYTES);
	has_together = draw(2);
	assert_int_equal(cudaStreamCreateWithPriority(&f->batches, 0, 0), 0);
	assert_int_equal(tier_pin(&f->tier, (device_stream)(void *)f->batches, draw(2), f->hosts,
				  N_HOSTS * PAGE_BYTES),
			 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	tier_unpin(&f->tier, f->hosts);
	tier_done(&f->tier);
	cudaStreamDestroy(f->batches);
	free(f->pool);
	free(f->hosts);
	free(f);
	return 0;
}

struct place {
	uint64_t number, up, down;
	uint64_t batch; /* the last that wrote it; 0: none */
	bool used; /* has a number */
};

static uint64_t copy(struct fixture *f, enum tier_way way, uint32_t page, void *host,
		     uint64_t after)
{
	return tier_copy(&f->tier, way,
			 &(struct tier_ask){.pool = (uintptr_t)page_of(f->pool, page),
					    .bytes = PAGE_BYTES,
					    .host = host,
					    .after = after});
}

static void await(struct fixture *f, enum tier_way way, uint64_t token)
{
	if (tier_ended(&f->tier, way) >= token)
		return;
	tier_kick(&f->tier);
	for (uint32_t i = 0; tier_ended(&f->tier, way) < token; i++) {
		assert_true(i < 1000000);
		go_on(2);
	}
}

/* A batch writes a page from a buffer that lives on: after whatever still reads the page. */
static void batch_write(struct fixture *f, uint32_t page, void *from)
{
	tier_before_write(&f->tier, (uintptr_t)page_of(f->pool, page), PAGE_BYTES);
	cudaMemcpyAsync(page_of(f->pool, page), from, PAGE_BYTES, cudaMemcpyDefault, f->batches);
}

static void copies_and_batches_at_random_keep_their_order(void **state)
{
	struct fixture *f = *state;
	struct place pages[N_PAGES] = {0}, hosts[N_HOSTS] = {0};
	void **buffers = calloc(OPERATIONS, sizeof(*buffers));
	uint64_t last = 0, batch = 0;

	for (uint32_t i = 0; i < OPERATIONS; i++) {
		uint32_t p = draw(N_PAGES), h = draw(N_HOSTS), what = draw(8);
		void *host = page_of(f->hosts, h);

		if (what < 3) {
			await(f, TIER_UP, hosts[h].up);
			await(f, TIER_DOWN, hosts[h].down);
			if (hosts[h].used && !holds(host, hosts[h].number))
				fail_msg("operation %u: host page %u is wrong", i, h);
		}
		if (what == 0 && pages[p].used) {
			await(f, TIER_UP, pages[p].up);
			hosts[h] = (struct place){.number = pages[p].number, .used = true};
			hosts[h].down = copy(f, TIER_DOWN, p, host, draw(3));
		} else if (what == 1 || what == 2) {
			uint64_t after = draw(4) ? pages[p].batch : 0;
			await(f, TIER_UP, pages[p].up);
			fill(host, ++last);
			pages[p] = (struct place){.number = last,
						  .batch = pages[p].batch,
						  .used = true};
			hosts[h] = pages[p];
			pages[p].up = hosts[h].up = copy(f, TIER_UP, p, host, after);
		} else if (what == 3) {
			await(f, TIER_UP, pages[p].up);
			buffers[i] = malloc(PAGE_BYTES);
			fill(buffers[i], ++last);
			if (draw(4))
				tier_mark(&f->tier, batch);
			batch_write(f, p, buffers[i]);
			pages[p].batch = ++batch;
			pages[p].number = last;
			pages[p].used = true;
		} else if (what == 4) {
			tier_kick(&f->tier);
		} else {
			go_on(draw(6));
		}
	}
	tier_settle(&f->tier);
	cudaStreamSynchronize(f->batches);
	for (uint32_t i = 0; i < N_PAGES; i++)
		assert_true(!pages[i].used || holds(page_of(f->pool, i), pages[i].number));
	for (uint32_t i = 0; i < OPERATIONS; i++)
		free(buffers[i]);
	free(buffers);
}

static void blocks_are_kept_while_small_copies_run_and_a_while_longer(void **state)
{
	struct fixture *f = *state;

	f->tier.means.bulk = true;
	assert_int_equal(tier_blocks(&f->tier), 0);
	copy(f, TIER_DOWN, 0, f->hosts, 0);
	assert_int_equal(tier_blocks(&f->tier), 0);
	assert_true(tier_reads(&f->tier));
	tier_kick(&f->tier);
	assert_true(n_small_launches > 0);
	assert_int_equal(tier_blocks(&f->tier), TIER_BLOCKS);
	tier_settle(&f->tier);
	for (uint32_t i = 0; i < TIER_STAYS - 1; i++)
		assert_int_equal(tier_blocks(&f->tier), TIER_BLOCKS);
	assert_int_equal(tier_blocks(&f->tier), 0);
	assert_false(tier_reads(&f->tier));
}

/* More than the rings of events and of known copies hold. */
static void very_many_copies_wait_for_room(void **state)
{
	struct fixture *f = *state;
	uint64_t token = 0;

	for (uint32_t i = 0; i < 5 * TIER_KNOWN; i++) {
		token = copy(f, TIER_DOWN, i % N_PAGES, page_of(f->hosts, i % N_HOSTS), 0);
		assert_int_equal(token, i + 1);
		if (i % 3 == 0)
			tier_kick(&f->tier);
	}
	await(f, TIER_DOWN, token);
}

/* Nothing of it stays, and what was pinned before is served on; it can be had later. */
static void assert_refused_once(struct fixture *f, bool *refuses)
{
	void *more = calloc(N_HOSTS, PAGE_BYTES);
	device_stream batches = (device_stream)(void *)f->batches;

	*refuses = true;
	assert_int_equal(tier_pin(&f->tier, batches, false, more, N_HOSTS * PAGE_BYTES), -ENOMEM);
	assert_false(*refuses);
	assert_int_equal(f->tier.n_memories, 1);
	assert_int_equal(n_registered, 1);
	fill(page_of(f->pool, 0), 7);
	await(f, TIER_DOWN, copy(f, TIER_DOWN, 0, f->hosts, 0));
	assert_true(holds(f->hosts, 7));
	assert_int_equal(tier_pin(&f->tier, batches, false, more, N_HOSTS * PAGE_BYTES), 0);
	assert_int_equal(n_registered, 2);
	tier_unpin(&f->tier, more);
	assert_int_equal(n_registered, 1);
	free(more);
}

static void memory_that_cannot_be_registered_is_refused(void **state)
{
	assert_refused_once(*state, &refuses_memory);
}

static void memory_that_the_device_cannot_see_is_not_left_registered(void **state)
{
	assert_refused_once(*state, &refuses_address);
}

/* ---- runs ----------------------------------------------------------------------------------- */

#define AREA_BYTES (1u << 20)
#define PIECE_MOST 4096u

static char area[AREA_BYTES], to_area[AREA_BYTES];

/* Pieces at equal distances, a few or many, or one alone, from the begin of what is left on either
 * side. Returns how many. */
static uint32_t pieces_draw(uint32_t *from, uint32_t *to, uint32_t (*ret)[3])
{
	uint32_t bytes = 16 * (1 + draw(PIECE_MOST / 16)), n = draw(3) ? 1 + draw(40) : 1;
	uint32_t from_stride = bytes + 16 * draw(100) * draw(2),
		 to_stride = bytes + 16 * draw(100) * draw(2);

	*from += 16 * draw(3);
	*to += 16 * draw(3);
	for (uint32_t i = 0; i < n; i++, *from += from_stride, *to += to_stride) {
		if (*from + bytes > AREA_BYTES || *to + bytes > AREA_BYTES)
			return i;
		ret[i][0] = *from;
		ret[i][1] = *to;
		ret[i][2] = bytes;
	}
	return n;
}

/* All of an area, in any pieces: what lies between them stays as it is. */
static void areas_copy(struct tier_means *means, cudaStream_t stream, const char *from, char *to,
		       char *right)
{
	struct tier_runs *runs = calloc(1, sizeof(*runs));
	uint32_t at = 0, to_at = 0, pieces[40][3], n;
	bool blocks;

	while ((n = pieces_draw(&at, &to_at, pieces)) > 0)
		for (uint32_t i = 0; i < n; i++) {
			uint32_t k = draw(8) ? i : n - 1 - draw(n - i); /* not always in order */
			const uint32_t *piece = pieces[k];
			uint64_t pair[2] = {(uintptr_t)from + piece[0], (uintptr_t)to + piece[1]};

			memcpy(right + piece[1], from + piece[0], piece[2]);
			if (tier_runs_add(runs, pair[0], pair[1], piece[2]))
				continue;
			assert_int_equal(tier_runs_launch(runs, means,
							  (device_stream)(void *)stream, &blocks),
					 0);
			assert_true(tier_runs_add(runs, pair[0], pair[1], piece[2]));
		}
	assert_int_equal(tier_runs_launch(runs, means, (device_stream)(void *)stream, &blocks), 0);
	assert_int_equal(runs->n, 0);
	free(runs);
}

static void pieces_that_lie_anyhow_are_copied(void **state)
{
	struct fixture *f = *state;
	char *right = malloc(AREA_BYTES);

	for (uint32_t i = 0; i < AREA_BYTES; i++)
		area[i] = (char)draw(256);
	for (uint32_t round = 0; round < 40; round++) {
		struct tier_means means = {.together = draw(2),
					   .bulk = draw(2),
					   .run_bytes = draw(2) ? UINT64_MAX : draw(1u << 17)};
		memset(to_area, 0, AREA_BYTES);
		memset(right, 0, AREA_BYTES);
		areas_copy(&means, f->batches, area, to_area, right);
		cudaStreamSynchronize(f->batches);
		assert_memory_equal(to_area, right, AREA_BYTES);
	}
	free(right);
}

static void many_at_equal_distances_are_one_call(void **state)
{
	struct fixture *f = *state;
	struct tier_means means = {.bulk = true, .run_bytes = UINT64_MAX};
	struct tier_runs *runs = calloc(1, sizeof(*runs));
	bool blocks;

	n_pitched = n_small_launches = 0;
	for (uint32_t i = 0; i < 128; i++)
		assert_true(tier_runs_add(runs, (uintptr_t)area + i * 8192,
					  (uintptr_t)to_area + i * 4096, 4096));
	assert_int_equal(runs->n, 1);
	assert_int_equal(tier_runs_launch(runs, &means, (device_stream)(void *)f->batches, &blocks),
			 0);
	assert_int_equal(n_pitched, 1);
	assert_int_equal(n_small_launches, 0);
	assert_false(blocks);
	cudaStreamSynchronize(f->batches);
	free(runs);
}

static void a_driver_that_lacks_the_call_is_asked_once(void **state)
{
	struct fixture *f = *state;
	struct tier_means means = {.together = true, .bulk = true};
	struct tier_runs *runs = calloc(1, sizeof(*runs));
	bool blocks;

	has_together = false;
	n_small_launches = 0;
	for (uint32_t i = 0; i < 4; i++)
		assert_true(tier_runs_add(runs, (uintptr_t)area + i * i * 65536,
					  (uintptr_t)to_area + i * 65536, 65536));
	assert_int_equal(tier_runs_launch(runs, &means, (device_stream)(void *)f->batches, &blocks),
			 0);
	assert_false(means.together);
	assert_true(blocks);
	assert_int_equal(n_small_launches, 1);
	cudaStreamSynchronize(f->batches);
	free(runs);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(copies_and_batches_at_random_keep_their_order),
		CASE(copies_and_batches_at_random_keep_their_order),
		CASE(copies_and_batches_at_random_keep_their_order),
		CASE(blocks_are_kept_while_small_copies_run_and_a_while_longer),
		CASE(very_many_copies_wait_for_room),
		CASE(memory_that_cannot_be_registered_is_refused),
		CASE(memory_that_the_device_cannot_see_is_not_left_registered),
		CASE(pieces_that_lie_anyhow_are_copied),
		CASE(many_at_equal_distances_are_one_call),
		CASE(a_driver_that_lacks_the_call_is_asked_once),
	};
	const char *text = getenv("COPPICE_SEED");

	random_state = (text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL)) * 2 + 1;
	print_message("COPPICE_SEED=%lu\n", random_state / 2);
	return cmocka_run_group_tests_name("order of copies", tests, NULL, NULL);
}
