/*
 * cuda_weights_test.c - memory of weights that others map, on a device that is played
 * (fake_runtime.c, fake_vmm.c): whether they can, what they find in it, and who has what it is
 * mapped by; what it takes of the device and of pinned memory; and the memory of the pool.
 */
#include "fake_device.h"

#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/program/lend.h"
#include "kernels/cuda/program/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ferry ferry;

static void test_they_are_there_where_none_can_be_lent(void **state)
{
	struct backend_weights *weights;
	struct backend_lent lent;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fake_device_shares = i == 0;
		assert_int_equal(weights_new(&ferry, 4096, &weights), 0);
		assert_int_equal(weights_put(weights, 0, "weights", 8), 0);
		assert_int_equal(lend_weights(weights, &lent), i == 0 ? 0 : -EOPNOTSUPP);
		weights_free(weights);
	}
	fake_device_shares = true;
	assert_true(lent.on_device && lent.fd >= 0 && lent.bytes >= 4096);
}

/* It is lent in whole pages. */
static void test_where_nothing_is_put_there_are_zeros(void **state)
{
	struct backend_weights *weights;

	(void)state;
	assert_int_equal(weights_new(&ferry, 5000, &weights), 0);
	assert_int_equal(weights_put(weights, 256, "weights", 8), 0);
	assert_memory_equal(weights->base + 256, "weights", 8);
	for (uint64_t i = 0; i < weights->bytes; i++)
		if (i < 256 || i >= 264)
			assert_int_equal(weights->base[i], 0);
	weights_free(weights);
}

static void test_programs_that_are_started_do_not_have_it(void **state)
{
	struct backend_weights *weights;

	(void)state;
	assert_int_equal(weights_new(&ferry, 1, &weights), 0);
	assert_int_equal(fcntl(weights->fd, F_GETFD), FD_CLOEXEC);
	weights_free(weights);
}

/* What the daemon books is a multiple of it. */
static void test_memory_is_taken_in_whole_grains(void **state)
{
	static const struct {
		uint64_t bytes, taken;
	} cases[] = {{1, WEIGHTS_GRAIN},
		     {WEIGHTS_GRAIN, WEIGHTS_GRAIN},
		     {WEIGHTS_GRAIN + 1, 2 * WEIGHTS_GRAIN}};
	struct backend_weights *weights;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(weights_new(&ferry, cases[i].bytes, &weights), 0);
		assert_int_equal(fake_device_bytes, cases[i].taken);
		weights_free(weights);
		assert_int_equal(fake_device_bytes, 0);
	}
}

#define MANY 8

static void test_all_weights_of_a_device_share_what_is_pinned(void **state)
{
	struct backend_weights *weights[MANY];
	struct ferry own;

	(void)state;
	ferry_done(&ferry);
	ferry_init(&own, 0);
	assert_int_equal(fake_n_pinned, 0);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(weights_new(&own, 1, &weights[i]), 0);
		assert_int_equal(weights_put(weights[i], 0, "weights", 8), 0);
		assert_int_equal(fake_n_pinned, FERRY_PIECES);
	}
	for (int i = 0; i < MANY; i++)
		weights_free(weights[i]);
	ferry_done(&own);
	assert_int_equal(fake_n_pinned, 0);
	ferry_init(&ferry, 0);
}

#define PUT_BYTES (9u << 20) /* several pieces, the last not whole */

struct loading {
	pthread_t thread;
	struct backend_weights *weights;
	uint8_t value;
};

static void *load(void *arg)
{
	const struct loading *of = arg;
	uint8_t *from = malloc(PUT_BYTES);
	int r;

	if (!from)
		return arg;
	memset(from, of->value, PUT_BYTES);
	r = weights_put(of->weights, 1, from, PUT_BYTES);
	free(from);
	return r ? arg : NULL;
}

static void test_who_load_at_once_get_what_is_theirs(void **state)
{
	struct loading all[MANY];
	void *failed = NULL;

	(void)state;
	for (uint8_t i = 0; i < MANY; i++) {
		all[i].value = (uint8_t)(i + 1);
		assert_int_equal(weights_new(&ferry, PUT_BYTES + 2, &all[i].weights), 0);
		assert_int_equal(pthread_create(&all[i].thread, NULL, load, &all[i]), 0);
	}
	for (int i = 0; i < MANY; i++) {
		const struct backend_weights *w = all[i].weights;

		assert_int_equal(pthread_join(all[i].thread, &failed), 0);
		assert_null(failed);
		assert_int_equal(w->base[1], all[i].value);
		assert_memory_equal(w->base + 1, w->base + 2, PUT_BYTES - 1);
		assert_int_equal(w->base[0] | w->base[PUT_BYTES + 1], 0);
		weights_free(all[i].weights);
	}
}

static void test_an_extent_is_made_new_where_it_lies(void **state)
{
	struct pool pool;
	uint8_t *at;

	(void)state;
	assert_int_equal(pool_init(&pool, 0, 2 * WEIGHTS_GRAIN, WEIGHTS_GRAIN), 0);
	assert_int_equal(pool_commit(&pool, 1, NULL), 0);
	at = (uint8_t *)(uintptr_t)(pool.base + WEIGHTS_GRAIN);
	memset(at, 1, WEIGHTS_GRAIN);
	at[-1] = 1;
	assert_int_equal(pool_clear(&pool, 1, NULL), 0);
	assert_int_equal(at[0], 0);
	assert_memory_equal(at, at + 1, WEIGHTS_GRAIN - 1);
	assert_int_equal(at[-1], 1);
	assert_int_equal(fake_device_bytes, WEIGHTS_GRAIN);
	pool_done(&pool);
	assert_int_equal(fake_device_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_are_there_where_none_can_be_lent),
		cmocka_unit_test(test_where_nothing_is_put_there_are_zeros),
		cmocka_unit_test(test_programs_that_are_started_do_not_have_it),
		cmocka_unit_test(test_memory_is_taken_in_whole_grains),
		cmocka_unit_test(test_all_weights_of_a_device_share_what_is_pinned),
		cmocka_unit_test(test_who_load_at_once_get_what_is_theirs),
		cmocka_unit_test(test_an_extent_is_made_new_where_it_lies),
	};
	int failed;

	ferry_init(&ferry, 0);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_done(&ferry);
	return failed;
}
