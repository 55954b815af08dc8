/*
 * fake_module.c - a coppice-cuda.so without a GPU: the CPU's backend, and device arenas for the
 * fake driver to open. Each device has a UUID of its own.
 *
 * FAKE_CUDA_MPS=1: as under MPS. FAKE_CUDA_FAULT names a file; once it is there the device has
 * failed for good. FAKE_CUDA_MEET: the devices do not reach each other's memory, and have met by
 * other means (apart) or not at all (never); they cost what GPUs do.
 */
#include "fake.h"

#include "kernels/program/backend_program.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 64
#define MIB (UINT64_C(1) << 20)
#define DEVICES 8

static struct {
	struct backend_ops ops;
	struct backend_program_ops program;
	struct {
		void *map;
		uint64_t bytes;
		struct backend *of;
	} blocks[BLOCKS];
	struct {
		struct backend *backend; /* NULL: nobody has it open */
		uint8_t uuid[BACKEND_DEVICE_BYTES];
	} devices[DEVICES];
	struct backend_tell tells[BACKEND_TELLS_MAX]; /* of batch tells_id */
	uint32_t n_tells;
	uint64_t tells_id;
} fake;

/* The first device has twice the others' memory, and the most of it in use. */
static int fake_memory(const char *device, struct backend_memory *ret, char *error,
		       size_t error_bytes)
{
	bool first = !device || strcmp(device, "0") == 0;

	(void)error, (void)error_bytes;
	*ret = (struct backend_memory){.bytes = first ? 2000 * MIB : 1000 * MIB,
				       .usual_bytes = first ? 300 * MIB : 700 * MIB};
	return 0;
}

static int fake_open(const struct backend_config *config, struct backend **ret, char *error,
		     size_t error_bytes)
{
	int r = backend_cpu.open(config, ret, error, error_bytes), i = 0;

	while (r == 0 && fake.devices[i].backend)
		assert(++i < DEVICES);
	if (r)
		return r;
	fake.devices[i].backend = *ret;
	memcpy(fake.devices[i].uuid, FAKE_UUID, BACKEND_DEVICE_BYTES);
	fake.devices[i].uuid[BACKEND_DEVICE_BYTES - 1] +=
		(uint8_t)(config->device ? atoi(config->device) : 0);
	return 0;
}

static void fake_close(struct backend *b)
{
	for (int i = 0; b && i < DEVICES; i++) {
		if (fake.devices[i].backend == b)
			fake.devices[i].backend = NULL;
	}
	backend_cpu.close(b);
}

static const uint8_t *uuid_of(const struct backend *b)
{
	int i = 0;

	while (fake.devices[i].backend != b)
		assert(++i < DEVICES);
	return fake.devices[i].uuid;
}

static int fake_arena_new(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	static const uint8_t any[BACKEND_DEVICE_BYTES];
	int fd, i = 0;

	if (memcmp(ret->device, any, sizeof(any)) != 0 &&
	    memcmp(ret->device, uuid_of(b), sizeof(any)) != 0)
		return -ENODEV;
	while (i < BLOCKS && fake.blocks[i].map)
		i++;
	if (i == BLOCKS)
		return -ENOMEM;
	fd = memfd_create("fake-device", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -ENOMEM;
	fake.blocks[i].map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fake.blocks[i].bytes = bytes;
	fake.blocks[i].of = b;
	*ret = (struct backend_arena){.base = (uintptr_t)fake.blocks[i].map,
				      .fd = fake_wrap(fd),
				      .time_sliced = getenv("FAKE_CUDA_MPS") == NULL};
	memcpy(ret->device, uuid_of(b), sizeof(ret->device));
	return 0;
}

static void fake_arena_free(struct backend *b, uint64_t base)
{
	for (int i = 0; i < BLOCKS; i++) {
		if ((uintptr_t)fake.blocks[i].map != base)
			continue;
		assert(fake.blocks[i].of == b);
		munmap(fake.blocks[i].map, fake.blocks[i].bytes);
		fake.blocks[i].map = NULL;
	}
}

/* A copy of what the CPU's backend lends, as the driver opens it; never given back. */
static int fake_weights_lend(struct backend *b, struct backend_weights *weights,
			     struct backend_lent *ret)
{
	struct backend_lent lent;
	void *from, *to;
	int fd, r = backend_cpu.program->weights_lend(b, weights, &lent);

	if (r < 0)
		return r;
	fd = memfd_create("fake-device", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)lent.bytes) < 0)
		return -ENOMEM;
	from = mmap(NULL, lent.bytes, PROT_READ, MAP_PRIVATE, lent.fd, 0);
	to = mmap(NULL, lent.bytes, PROT_WRITE, MAP_SHARED, fd, 0);
	assert(from != MAP_FAILED && to != MAP_FAILED);
	memcpy(to, from, lent.bytes);
	munmap(from, lent.bytes);
	munmap(to, lent.bytes);
	lent.fd = fake_wrap(fd);
	lent.on_device = true;
	memcpy(lent.device, uuid_of(b), sizeof(lent.device));
	*ret = lent;
	return 0;
}

static const char *fake_fault(struct backend *b)
{
	const char *file = getenv("FAKE_CUDA_FAULT");

	(void)b;
	return file && access(file, F_OK) == 0 ? "the fake device burns" : NULL;
}

static int fake_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	int r = backend_cpu.submit(b, batch, ret_id);

	if (r == 0 && batch->n_tells) {
		memcpy(fake.tells, batch->tells, batch->n_tells * sizeof(*batch->tells));
		fake.n_tells = batch->n_tells;
		fake.tells_id = *ret_id;
	}
	return r;
}

/* As on a device, streams hear of it first. */
static int fake_completed(struct backend *b, uint64_t *ret_id)
{
	int r = fake_fault(b) ? -EIO : backend_cpu.completed(b, ret_id);

	for (; r == 0 && fake.n_tells && *ret_id >= fake.tells_id; fake.n_tells--) {
		const struct backend_tell *tell = &fake.tells[fake.n_tells - 1];

		atomic_store((_Atomic uint64_t *)(uintptr_t)tell->address, tell->value);
	}
	return r;
}

/* About that of an H200, whatever machine the tests run on. */
static void fake_cost(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	(void)b;
	(void)shape;
	*ret = (struct backend_cost){15000, 9e-5, 1.6e-6};
}

/* No batch comes behind it. */
static int fake_meet(const struct backend_meeting *meeting, char *notice, char *error, size_t bytes)
{
	bool never = strcmp(getenv("FAKE_CUDA_MEET"), "never") == 0;

	(void)meeting;
	snprintf(never ? error : notice, bytes, "the fake devices do not reach each other");
	return never ? -EIO : 1;
}

__attribute__((visibility("default"))) const struct backend_ops *coppice_backend_cuda(void);

const struct backend_ops *coppice_backend_cuda(void)
{
	fake.ops = backend_cpu;
	fake.ops.name = "cuda";
	fake.program = *backend_cpu.program;
	fake.program.weights_lend = fake_weights_lend;
	fake.ops.program = &fake.program;
	fake.ops.wants_rows = true;
	fake.ops.memory = fake_memory;
	fake.ops.open = fake_open;
	fake.ops.close = fake_close;
	fake.ops.arena_new = fake_arena_new;
	fake.ops.arena_free = fake_arena_free;
	fake.ops.fault = fake_fault;
	fake.ops.submit = fake_submit;
	fake.ops.completed = fake_completed;
	if (getenv("FAKE_CUDA_MEET")) {
		fake.ops.meet = fake_meet;
		fake.ops.cost = fake_cost;
	}
	return &fake.ops;
}
