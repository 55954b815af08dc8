/*
 * cuda_weights_test.c - memory of weights that others map, on a device that is played
 * (fake_runtime.c, fake_vmm.c): whether they can, what they find in it, and who has what it is
 * mapped by.
 */
#include "fake_device.h"

#include "kernels/cuda/program/lend.h"
#include "kernels/cuda/program/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_they_are_there_where_none_can_be_lent(void **state)
{
	struct backend_weights *weights;
	struct backend_lent lent;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fake_device_shares = i == 0;
		assert_int_equal(weights_new(0, 4096, &weights), 0);
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
	assert_int_equal(weights_new(0, 5000, &weights), 0);
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
	assert_int_equal(weights_new(0, 1, &weights), 0);
	assert_int_equal(fcntl(weights->fd, F_GETFD), FD_CLOEXEC);
	weights_free(weights);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_are_there_where_none_can_be_lent),
		cmocka_unit_test(test_where_nothing_is_put_there_are_zeros),
		cmocka_unit_test(test_programs_that_are_started_do_not_have_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
