/*
 * tier_runs_cuda_test.c - copies as the device is told of them (kernels/cuda/tiers/tier_runs.c),
 * over a runtime that has no GPU (fake_copies.h).
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

#include <cmocka.h>

static int setup(void **state)
{
	cudaStream_t stream;

	assert_int_equal(cudaStreamCreateWithPriority(&stream, 0, 0), 0);
	fake_copies.has_together = fake_draw(2);
	*state = stream;
	return 0;
}

static int teardown(void **state)
{
	cudaStreamDestroy(*state);
	return 0;
}

#define AREA_BYTES (1u << 20)
#define PIECE_MOST 4096u

static char area[AREA_BYTES], to_area[AREA_BYTES];

/* Pieces at equal distances, a few or many, or one alone, from the begin of what is left on either
 * side. Returns how many. */
static uint32_t pieces_draw(uint32_t *from, uint32_t *to, uint32_t (*ret)[3])
{
	uint32_t bytes = 16 * (1 + fake_draw(PIECE_MOST / 16)),
		 n = fake_draw(3) ? 1 + fake_draw(40) : 1;
	uint32_t from_stride = bytes + 16 * fake_draw(100) * fake_draw(2),
		 to_stride = bytes + 16 * fake_draw(100) * fake_draw(2);

	*from += 16 * fake_draw(3);
	*to += 16 * fake_draw(3);
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
			/* not always in order */
			uint32_t k = fake_draw(8) ? i : n - 1 - fake_draw(n - i);
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
	cudaStream_t stream = *state;
	char *right = malloc(AREA_BYTES);

	for (uint32_t i = 0; i < AREA_BYTES; i++)
		area[i] = (char)fake_draw(256);
	for (uint32_t round = 0; round < 40; round++) {
		struct tier_means means = {.together = fake_draw(2),
					   .bulk = fake_draw(2),
					   .run_bytes =
						   fake_draw(2) ? UINT64_MAX : fake_draw(1u << 17)};
		memset(to_area, 0, AREA_BYTES);
		memset(right, 0, AREA_BYTES);
		areas_copy(&means, stream, area, to_area, right);
		cudaStreamSynchronize(stream);
		assert_memory_equal(to_area, right, AREA_BYTES);
	}
	free(right);
}

static void many_at_equal_distances_are_one_call(void **state)
{
	cudaStream_t stream = *state;
	struct tier_means means = {.bulk = true, .run_bytes = UINT64_MAX};
	struct tier_runs *runs = calloc(1, sizeof(*runs));
	bool blocks;

	fake_copies.n_pitched = fake_copies.n_small_launches = 0;
	for (uint32_t i = 0; i < 128; i++)
		assert_true(tier_runs_add(runs, (uintptr_t)area + i * 8192,
					  (uintptr_t)to_area + i * 4096, 4096));
	assert_int_equal(runs->n, 1);
	assert_int_equal(tier_runs_launch(runs, &means, (device_stream)(void *)stream, &blocks), 0);
	assert_int_equal(fake_copies.n_pitched, 1);
	assert_int_equal(fake_copies.n_small_launches, 0);
	assert_false(blocks);
	cudaStreamSynchronize(stream);
	free(runs);
}

static void a_driver_that_lacks_the_call_is_asked_once(void **state)
{
	cudaStream_t stream = *state;
	struct tier_means means = {.together = true, .bulk = true};
	struct tier_runs *runs = calloc(1, sizeof(*runs));
	bool blocks;

	fake_copies.has_together = false;
	fake_copies.n_small_launches = 0;
	for (uint32_t i = 0; i < 4; i++)
		assert_true(tier_runs_add(runs, (uintptr_t)area + i * i * 65536,
					  (uintptr_t)to_area + i * 65536, 65536));
	assert_int_equal(tier_runs_launch(runs, &means, (device_stream)(void *)stream, &blocks), 0);
	assert_false(means.together);
	assert_true(blocks);
	assert_int_equal(fake_copies.n_small_launches, 1);
	cudaStreamSynchronize(stream);
	free(runs);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(pieces_that_lie_anyhow_are_copied),
		CASE(many_at_equal_distances_are_one_call),
		CASE(a_driver_that_lacks_the_call_is_asked_once),
	};

	fake_seed();
	return cmocka_run_group_tests_name("runs of copies", tests, NULL, NULL);
}
