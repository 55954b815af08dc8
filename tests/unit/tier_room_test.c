/* tier_room_test.c - places of lower tiers: random taking and giving back against a map of
 * units. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kvstore/files/tier_host.h"
#include "kvstore/files/tier_room.h"

#include <errno.h>

static void test_a_room_without_a_whole_chunk_is_refused(void **state)
{
	struct tier_room room;

	(void)state;
	assert_int_equal(tier_room_init(&room, 7, 8), -EINVAL);
	assert_int_equal(tier_room_init(&room, 7, 0), -EINVAL);
	assert_int_equal(tier_room_init(&room, UINT32_MAX, 8), -EFBIG);
}

static void test_a_full_room_has_no_place(void **state)
{
	struct tier_room room;

	(void)state;
	assert_int_equal(tier_room_init(&room, 19, 8), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(tier_room_take(&room, 3) % 8 % 3, 0);
	assert_int_equal(tier_room_take(&room, 3), TIER_NONE);
	assert_int_equal(tier_room_take(&room, 1), TIER_NONE);
	assert_int_equal(room.n_used, 12);
	tier_room_done(&room);
}

static void test_an_empty_chunk_takes_runs_of_another_length(void **state)
{
	struct tier_room room;

	(void)state;
	assert_int_equal(tier_room_init(&room, 8, 8), 0);
	uint32_t a = tier_room_take(&room, 3), b = tier_room_take(&room, 3);
	assert_int_equal(tier_room_take(&room, 8), TIER_NONE);
	assert_true(tier_room_unref(&room, a));
	assert_int_equal(tier_room_take(&room, 8), TIER_NONE);
	assert_true(tier_room_unref(&room, b));
	assert_int_equal(tier_room_take(&room, 8), 0);
	tier_room_done(&room);
}

static void test_a_claim_takes_exactly_that_place(void **state)
{
	struct tier_room room;

	(void)state;
	assert_int_equal(tier_room_init(&room, 16, 8), 0);
	assert_true(tier_room_claim(&room, 10, 2));
	assert_false(tier_room_claim(&room, 10, 2));
	assert_false(tier_room_claim(&room, 11, 2));
	assert_false(tier_room_claim(&room, 12, 3));
	assert_false(tier_room_claim(&room, 16, 2));
	assert_false(tier_room_claim(&room, 0, 9));
	assert_false(tier_room_claim(&room, 0, 0));
	assert_int_equal(tier_room_take(&room, 2), 8);
	assert_int_equal(tier_room_take(&room, 2), 12);
	assert_int_equal(tier_room_run(&room, 12), 2);
	tier_room_done(&room);
}

#define N_UNITS 64u
#define CHUNK 16u

struct world {
	struct tier_room room;
	uint32_t refs[N_UNITS]; /* of the place */
	uint32_t runs[N_UNITS];
	uint8_t used[N_UNITS];
	uint64_t random;
};

static uint32_t below(struct world *w, uint32_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 11) % n);
}

static void world_take(struct world *w)
{
	uint32_t n = 1 + below(w, 5);
	uint32_t place = tier_room_take(&w->room, n);

	if (place == TIER_NONE)
		return;
	assert_int_equal(place / CHUNK, (place + n - 1) / CHUNK);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(w->used[place + i]++, 0);
	w->refs[place] = 1;
	w->runs[place] = n;
}

static void world_unref(struct world *w)
{
	uint32_t place = below(w, N_UNITS);

	if (w->refs[place] == 0)
		return;
	assert_int_equal(tier_room_run(&w->room, place), w->runs[place]);
	assert_int_equal(tier_room_unref(&w->room, place), --w->refs[place] == 0);
	for (uint32_t i = 0; w->refs[place] == 0 && i < w->runs[place]; i++)
		w->used[place + i] = 0;
}

static void test_random_places_never_overlap(void **state)
{
	static struct world w;
	const char *text = getenv("COPPICE_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

	(void)state;
	printf("COPPICE_SEED=%lu\n", seed);
	w = (struct world){.random = seed * 2 + 1};
	assert_int_equal(tier_room_init(&w.room, N_UNITS, CHUNK), 0);
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t place = below(&w, N_UNITS);
		uint32_t n_used = 0;
		if (below(&w, 2))
			world_take(&w);
		else
			world_unref(&w);
		if (below(&w, 4) == 0 && w.refs[place] > 0) {
			tier_room_ref(&w.room, place);
			w.refs[place]++;
		}
		for (uint32_t j = 0; j < N_UNITS; j++)
			n_used += w.used[j];
		assert_int_equal(n_used, w.room.n_used);
	}
	tier_room_done(&w.room);
}

static void *memory_alloc(void *ctx, size_t bytes)
{
	return *(bool *)ctx ? aligned_alloc(4096, bytes) : NULL;
}

static void memory_free(void *ctx, void *memory, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(memory);
}

static void test_host_memory_that_cannot_be_had_is_a_sentence(void **state)
{
	bool willing = false;
	struct tier_host *host;
	char error[256] = "";
	struct tier_host_config config = {
		.memory = {.ctx = &willing, .alloc = memory_alloc, .free = memory_free},
		.bytes = 1 << 20,
		.unit_bytes = 4096,
		.chunk_units = 16,
	};

	(void)state;
	assert_int_equal(tier_host_new(&config, &host, error, sizeof(error)), -ENOMEM);
	assert_non_null(strstr(error, "cannot be had or not be pinned"));
	config.unit_bytes = 1000;
	assert_int_equal(tier_host_new(&config, &host, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "units of 4K"));
	config.unit_bytes = 4096;
	config.bytes = UINT64_C(4096) * UINT32_MAX;
	assert_int_equal(tier_host_new(&config, &host, error, sizeof(error)), -EFBIG);
	assert_non_null(strstr(error, "too much"));
	config.bytes = 1 << 20;
	willing = true;
	assert_int_equal(tier_host_new(&config, &host, error, sizeof(error)), 0);
	assert_ptr_equal(tier_host_at(host, 3), host->base + 3 * 4096);
	tier_host_free(host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_room_without_a_whole_chunk_is_refused),
		cmocka_unit_test(test_a_full_room_has_no_place),
		cmocka_unit_test(test_an_empty_chunk_takes_runs_of_another_length),
		cmocka_unit_test(test_a_claim_takes_exactly_that_place),
		cmocka_unit_test(test_random_places_never_overlap),
		cmocka_unit_test(test_host_memory_that_cannot_be_had_is_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
