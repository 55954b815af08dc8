/*
 * cuda_arenas_test.c - device memory that another process maps: what there is of it, whom it is
 * for, and what is left where it cannot be had. The driver is that of fake_vmm.c.
 */
#include "fake_device.h"
#include "folder_count.h"
#include "kernels/cuda/device/arenas.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

cudaError_t cudaDeviceGetAttribute(int *ret, enum cudaDeviceAttr attribute, int device)
{
	(void)attribute;
	(void)device;
	*ret = 0;
	return cudaSuccess;
}

static int setup(void **state)
{
	static struct arenas arenas;

	memset(fake_device_lets, 0, sizeof(fake_device_lets));
	assert_int_equal(arenas_init(&arenas, 0), 0);
	*state = &arenas;
	return 0;
}

static int teardown(void **state)
{
	arenas_done(*state);
	fake_device_shares = true;
	assert_int_equal(fake_device_bytes, 0);
	return 0;
}

static void each_is_reached_by_its_device_and_peers(void **state)
{
	struct arenas *arenas = *state;
	struct backend_arena first = {0}, second = {0};

	arenas_let(arenas, 1);
	arenas_let(arenas, 3);
	assert_int_equal(arenas_new(arenas, 2 * MIB, NULL, &first), 0);
	assert_int_equal(fake_device_lets[0], 1);
	assert_int_equal(fake_device_lets[1], 1);
	assert_int_equal(fake_device_lets[2], 0);
	assert_int_equal(fake_device_lets[3], 1);
	assert_int_equal(arenas_new(arenas, 4 * MIB, NULL, &second), 0);
	assert_int_equal(fake_device_bytes, 6 * MIB);
	assert_int_not_equal(first.base, second.base);
	assert_true(fcntl(first.fd, F_GETFD) & FD_CLOEXEC);
	arenas_free(arenas, first.base);
	assert_int_equal(fake_device_bytes, 4 * MIB);
	arenas_free(arenas, second.base);
	close(first.fd);
	close(second.fd);
}

static void it_is_zero(void **state)
{
	static const uint8_t zero[2 * MIB];
	struct backend_arena arena = {0};

	assert_int_equal(arenas_new(*state, sizeof(zero), NULL, &arena), 0);
	assert_memory_equal((const void *)(uintptr_t)arena.base, zero, sizeof(zero));
	arenas_free(*state, arena.base);
	close(arena.fd);
}

static void whoever_wants_another_device_gets_none(void **state)
{
	struct backend_arena arena = {.device = {1}};

	assert_int_equal(arenas_new(*state, 2 * MIB, NULL, &arena), -ENODEV);
}

/* A peer that is no device, and memory that cannot be shared. */
static void what_cannot_be_had_leaves_nothing_behind(void **state)
{
	struct arenas *arenas = *state;
	struct backend_arena arena = {0};
	unsigned n_fds = folder_count("/proc/self/fd");

	fake_device_shares = false;
	assert_true(arenas_new(arenas, 2 * MIB, NULL, &arena) < 0);
	assert_int_equal(fake_device_bytes, 0);
	fake_device_shares = true;
	arenas_let(arenas, FAKE_DEVICES);
	assert_int_equal(arenas_new(arenas, 2 * MIB, NULL, &arena), -EIO);
	assert_int_equal(fake_device_bytes, 0);
	assert_int_equal(folder_count("/proc/self/fd"), n_fds);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_is_reached_by_its_device_and_peers),
		TEST(it_is_zero),
		TEST(whoever_wants_another_device_gets_none),
		TEST(what_cannot_be_had_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
