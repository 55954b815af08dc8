/*
 * card_test.c - what is said where no GPU can compute. The CUDA runtime's part is played here: a
 * machine of one or two GPUs, or none.
 */
#include "kernels/cuda/device/card.h"
#include "kernels/cuda/schedule/costs.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

/* The machine. */
static struct {
	cudaError_t driver;
	int n_devices;
	struct cudaDeviceProp devices[2];
	size_t free_bytes, all_bytes;
	bool silent; /* it does not say what memory it has */
	int current;
} machine;

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = machine.n_devices;
	return machine.driver;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	*prop = machine.devices[device];
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	machine.current = device;
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
	*free_bytes = machine.free_bytes;
	*all_bytes = machine.all_bytes;
	return machine.silent ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaErrorUnknown;
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorUnknown ? "unknown error" : "some error";
}

static int setup(void **state)
{
	(void)state;
	memset(&machine, 0, sizeof(machine));
	machine.n_devices = 2;
	machine.free_bytes = 8192 * MIB;
	machine.all_bytes = 16384 * MIB;
	for (int i = 0; i < 2; i++) {
		struct cudaDeviceProp *prop = &machine.devices[i];

		snprintf(prop->name, sizeof(prop->name), "GPU of tests %d", i);
		prop->major = 9;
		prop->multiProcessorCount = 132;
		memset(prop->uuid.bytes, 0xa0 + i, sizeof(prop->uuid.bytes));
	}
	return 0;
}

static const struct backend_config config = {.pool_bytes = 4096 * MIB, .extent_bytes = 2 * MIB};

/* It says all of these words. */
static void refused(const struct backend_config *of, int code, const char *what,
		    const char *way_out)
{
	char error[256] = "";
	struct card card;

	assert_int_equal(card_find(of, &card, error, sizeof(error)), code);
	if (!strstr(error, what) || !strstr(error, way_out))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", error, what, way_out);
}

static struct card found(const char *device)
{
	struct backend_config of = config;
	char error[256] = "";
	struct card card;

	of.device = device;
	assert_int_equal(card_find(&of, &card, error, sizeof(error)), 0);
	assert_int_equal(machine.current, card.device);
	return card;
}

static void test_a_device_is_found_by_index_uuid_or_the_beginning_of_one(void **state)
{
	(void)state;
	assert_int_equal(found(NULL).device, 0);
	assert_int_equal(found("1").device, 1);
	assert_int_equal(found("GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1").device, 1);
	assert_int_equal(found("gpu-a1a1").device, 1);
	assert_int_equal(found("1").n_blocks, 132);
	assert_string_equal(found("1").name, "GPU of tests 1");
}

static void test_a_device_has_a_kind(void **state)
{
	struct backend_kind kind = {0};
	char error[256] = "";

	(void)state;
	machine.devices[1].major = 8;
	machine.devices[1].minor = 6;
	machine.devices[1].multiProcessorCount = 84;
	assert_int_equal(card_kind("GPU-a1a1", &kind, error, sizeof(error)), 0);
	assert_int_equal(kind.capability, 86);
	assert_int_equal(kind.n_multiprocessors, 84);
	assert_int_equal(card_kind(NULL, &kind, error, sizeof(error)), 0);
	assert_int_equal(kind.capability, 90);
	assert_int_equal(card_kind("2", &kind, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "no GPU \"2\" among 2"));
}

static void test_a_device_that_is_not_there_is_named(void **state)
{
	struct backend_config of = config;

	(void)state;
	of.device = "2";
	refused(&of, -EINVAL, "no GPU \"2\" among 2", "nvidia-smi -L");
	of.device = "GPU-";
	refused(&of, -EINVAL, "no GPU \"GPU-\"", "nvidia-smi -L");
	of.device = "-1";
	refused(&of, -EINVAL, "no GPU \"-1\"", "nvidia-smi -L");
	of.device = "";
	refused(&of, -EINVAL, "no GPU \"\"", "nvidia-smi -L");
}

static void test_no_driver_or_an_old_one_is_said(void **state)
{
	(void)state;
	machine.driver = cudaErrorInsufficientDriver;
	refused(&config, -EINVAL, "no NVIDIA driver, or one too old", "backend = cpu");
}

static void test_a_driver_without_a_gpu_is_said(void **state)
{
	(void)state;
	machine.driver = cudaErrorNoDevice;
	refused(&config, -EINVAL, "sees no GPU here", "backend = cpu");
	machine.driver = cudaSuccess;
	machine.n_devices = 0;
	refused(&config, -EINVAL, "passed to this container?", "backend = cpu");
}

static void test_a_driver_that_does_not_start_is_said(void **state)
{
	(void)state;
	machine.driver = cudaErrorUnknown;
	refused(&config, -EINVAL, "does not start: unknown error", "backend = cpu");
}

static void test_a_gpu_older_than_ampere_is_said(void **state)
{
	(void)state;
	machine.devices[0].major = 7;
	machine.devices[0].minor = 5;
	refused(&config, -EINVAL, "GPU of tests 0 is of compute capability 7.5", "device =");
	assert_int_equal(found("1").device, 1);
	machine.devices[0].major = 8;
	machine.devices[0].minor = 0;
	assert_int_equal(found("0").major, 8);
}

static void test_a_gpu_newer_than_its_code_is_said_and_planned_for_by_that(void **state)
{
	const struct card blackwell = {.name = "GPU of tests", .major = 10, .minor = 0};
	const struct card ampere = {.name = "GPU of tests", .major = 8, .minor = 6};
	char said[240] = "";

	(void)state;
	assert_true(card_runs_other_code(&blackwell, CODE_MMA, said, sizeof(said)));
	assert_non_null(
		strstr(said, "GPU of tests (compute capability 10.0) runs the portable code"));
	assert_string_equal(costs_find(CODE_MMA)->architecture, "sm_80");
	assert_false(card_runs_other_code(&ampere, CODE_MMA, said, sizeof(said)));
	assert_false(card_runs_other_code(&blackwell, CODE_WGMMA, said, sizeof(said)));
	assert_string_equal(costs_find(CODE_WGMMA)->architecture, "sm_90");
}

static void test_too_little_memory_is_said(void **state)
{
	(void)state;
	machine.free_bytes = 4096 * MIB;
	refused(&config, -ENOMEM, "4G free, a pool of 4G", "make the pool smaller");
	machine.free_bytes += 512 * MIB;
	assert_int_equal(found(NULL).device, 0);
	machine.silent = true;
	refused(&config, -EINVAL, "does not answer", "unknown error");
}

static struct backend_memory memory_of(const char *device)
{
	struct backend_memory memory;
	char error[256] = "";

	assert_int_equal(card_memory(device, &memory, error, sizeof(error)), 0);
	assert_false(memory.common);
	return memory;
}

static void test_a_pool_is_usually_a_share_of_what_is_free(void **state)
{
	struct backend_config of = config;

	(void)state;
	assert_int_equal(memory_of("1").bytes, 16384 * MIB);
	assert_int_equal(machine.current, 1);
	of.pool_bytes = memory_of(NULL).usual_bytes;
	assert_in_range(of.pool_bytes, 6143 * MIB, 6144 * MIB);
	machine.free_bytes = of.pool_bytes + 512 * MIB; /* it fits in less than was free */
	assert_int_equal(card_find(&of, &(struct card){0}, (char[256]){0}, 256), 0);
	machine.free_bytes = 512 * MIB;
	assert_int_equal(memory_of(NULL).usual_bytes, 0);
	machine.free_bytes = 0;
	assert_int_equal(memory_of(NULL).usual_bytes, 0);
}

static void test_a_share_of_more_than_is_free_is_said(void **state)
{
	struct backend_config of = config;

	(void)state;
	of.pool_bytes = memory_of(NULL).bytes / 100 * 60;
	refused(&of, -ENOMEM, "8G free, a pool of 9830M", "make the pool smaller");
}

static void test_memory_of_what_cannot_say_is_a_sentence(void **state)
{
	struct backend_memory memory;
	char error[256] = "";

	(void)state;
	assert_int_equal(card_memory("2", &memory, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "no GPU \"2\" among 2"));
	machine.silent = true;
	assert_int_equal(card_memory("1", &memory, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "GPU of tests 1 does not answer: unknown error"));
	machine.driver = cudaErrorNoDevice;
	assert_int_equal(card_memory("1", &memory, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "sees no GPU here"));
}

#define CASE(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_a_device_is_found_by_index_uuid_or_the_beginning_of_one),
		CASE(test_a_device_has_a_kind),
		CASE(test_a_device_that_is_not_there_is_named),
		CASE(test_no_driver_or_an_old_one_is_said),
		CASE(test_a_driver_without_a_gpu_is_said),
		CASE(test_a_driver_that_does_not_start_is_said),
		CASE(test_a_gpu_older_than_ampere_is_said),
		CASE(test_a_gpu_newer_than_its_code_is_said_and_planned_for_by_that),
		CASE(test_too_little_memory_is_said),
		CASE(test_a_pool_is_usually_a_share_of_what_is_free),
		CASE(test_a_share_of_more_than_is_free_is_said),
		CASE(test_memory_of_what_cannot_say_is_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
