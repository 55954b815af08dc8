/*
 * tier_cuda_test.c - the order of copies on a GPU's streams (kernels/cuda/tiers/tier.c), over a
 * runtime that has no GPU (fake_copies.h).
 */
#include "fake_copies.h"
#include "kernels/cuda/tiers/tier.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PAGES 12u
#define N_HOSTS 24u
#define PAGE_BYTES 4096u
#define OPERATIONS 20000u

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
	fake_copies.has_together = fake_draw(2);
	assert_int_equal(cudaStreamCreateWithPriority(&f->batches, 0, 0), 0);
	assert_int_equal(tier_pin(&f->tier, (device_stream)(void *)f->batches, fake_draw(2),
				  f->hosts, N_HOSTS * PAGE_BYTES),
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
		fake_go_on(2);
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
		uint32_t p = fake_draw(N_PAGES), h = fake_draw(N_HOSTS), what = fake_draw(8);
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
			hosts[h].down = copy(f, TIER_DOWN, p, host, fake_draw(3));
		} else if (what == 1 || what == 2) {
			uint64_t after = fake_draw(4) ? pages[p].batch : 0;
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
			if (fake_draw(4))
				tier_mark(&f->tier, batch);
			batch_write(f, p, buffers[i]);
			pages[p].batch = ++batch;
			pages[p].number = last;
			pages[p].used = true;
		} else if (what == 4) {
			tier_kick(&f->tier);
		} else {
			fake_go_on(fake_draw(6));
		}
	}
	tier_await_all(&f->tier);
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
	assert_true(fake_copies.n_small_launches > 0);
	assert_int_equal(tier_blocks(&f->tier), TIER_BLOCKS);
	tier_await_all(&f->tier);
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
	assert_int_equal(fake_copies.n_registered, 1);
	fill(page_of(f->pool, 0), 7);
	await(f, TIER_DOWN, copy(f, TIER_DOWN, 0, f->hosts, 0));
	assert_true(holds(f->hosts, 7));
	assert_int_equal(tier_pin(&f->tier, batches, false, more, N_HOSTS * PAGE_BYTES), 0);
	assert_int_equal(fake_copies.n_registered, 2);
	tier_unpin(&f->tier, more);
	assert_int_equal(fake_copies.n_registered, 1);
	free(more);
}

static void memory_that_cannot_be_registered_is_refused(void **state)
{
	assert_refused_once(*state, &fake_copies.refuses_memory);
}

static void memory_that_the_device_cannot_see_is_not_left_registered(void **state)
{
	assert_refused_once(*state, &fake_copies.refuses_address);
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
	};

	fake_seed();
	return cmocka_run_group_tests_name("order of copies", tests, NULL, NULL);
}
