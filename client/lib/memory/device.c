/*
 * device.c - the daemon's device memory, opened here.
 *
 * The device is found by its UUID among those that this process sees. Its context is the app's own
 * where one of that device is current, else the primary one, which is kept for as long as the
 * memory is open. It is closed before the daemon hears that it may free the memory.
 */
#include "device.h"

#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void format_uuid(const struct driver_uuid *uuid, char ret[48])
{
	static const int lengths[] = {4, 2, 2, 2, 6};
	const uint8_t *byte = uuid->bytes;
	int at = snprintf(ret, 48, "GPU");

	for (int part = 0; part < 5; part++) {
		at += snprintf(ret + at, 48 - (size_t)at, "-");
		for (int i = 0; i < lengths[part]; i++)
			at += snprintf(ret + at, 48 - (size_t)at, "%02x", *byte++);
	}
}

static int find_device(struct coppice *c, const char *what, const struct driver_uuid *wanted,
		       int *ret)
{
	const struct driver *driver = c->driver;
	char name[48];
	int n = 0;

	driver->device_count(&n);
	for (int i = 0; i < n; i++) {
		struct driver_uuid uuid;

		if (driver->device_get(ret, i) == 0 && driver->device_uuid(&uuid, *ret) == 0 &&
		    memcmp(&uuid, wanted, sizeof(uuid)) == 0)
			return 0;
	}
	format_uuid(wanted, name);
	return explain(c->key, -ENODEV,
		       "%s: the daemon's device %s is not among the %d that this process sees; "
		       "let CUDA_VISIBLE_DEVICES and the container show it",
		       what, name, n);
}

/* Becomes current; leave_context undoes it. */
static int enter_context(struct coppice *c, const char *what, struct device_memory *memory)
{
	const struct driver *driver = c->driver;
	void *current = NULL;
	int device = -1, error;

	if (driver->context_current(&current) == 0 && current &&
	    driver->context_device(&device) == 0 && device == memory->device) {
		memory->context = current;
	} else {
		error = driver->primary_retain(&memory->context, memory->device);
		if (error)
			return driver_explain(c, what, "make a context on the daemon's device",
					      error);
		memory->retained = true;
	}
	error = driver->context_push(memory->context);
	return error ? driver_explain(c, what, "enter a context", error) : 0;
}

static void leave_context(struct coppice *c)
{
	void *popped;

	c->driver->context_pop(&popped);
}

static void release_context(struct coppice *c, struct device_memory *memory)
{
	if (memory->retained)
		c->driver->primary_release(memory->device);
	*memory = (struct device_memory){0};
}

/* What is mapped keeps the memory: nothing else of it is kept. */
static int map(const struct driver *driver, uint64_t address, const struct device_name *name,
	       int device)
{
	const struct driver_access access = {DRIVER_OF_DEVICE, device, DRIVER_READ_WRITE};
	uint64_t memory;
	int error =
		driver->memory_import(&memory, (void *)(intptr_t)name->fd, DRIVER_BY_DESCRIPTOR);

	if (error)
		return error;
	error = driver->memory_map(address, name->bytes, 0, memory, 0);
	driver->memory_release(memory);
	if (error)
		return error;
	error = driver->memory_let(address, name->bytes, &access, 1);
	if (error)
		driver->memory_unmap(address, name->bytes);
	return error;
}

static int explain_refusal(struct coppice *c, const char *what, int error)
{
	return explain(c->key, -EIO,
		       "%s: CUDA IPC is refused (%s, error %d): daemon and app are "
		       "to be both or neither under MPS, on one host, with one version of the "
		       "driver's library; or use a host arena",
		       what, driver_error(c->driver, error), error);
}

static int reserve_and_map(struct coppice *c, const char *what, const struct device_name *name,
			   struct device_memory *memory)
{
	const struct driver *driver = c->driver;
	uint64_t address;
	int error = driver->address_reserve(&address, name->bytes, 0, 0, 0);

	if (error)
		return driver_explain(c, what, "reserve addresses", error);
	error = map(driver, address, name, memory->device);
	if (error) {
		driver->address_free(address, name->bytes);
		return explain_refusal(c, what, error);
	}
	memory->address = address;
	memory->bytes = name->bytes;
	return 0;
}

int device_open(struct coppice *c, const char *what, const struct device_name *name,
		struct device_memory *ret)
{
	struct device_memory memory = {0};
	struct driver_uuid uuid;
	int r;

	if (!name->device || name->device->len != sizeof(uuid))
		return call_bad_answer(c, what);
	memcpy(&uuid, name->device->data, sizeof(uuid));
	r = find_device(c, what, &uuid, &memory.device);
	if (r < 0)
		return r;
	r = enter_context(c, what, &memory);
	if (r == 0) {
		r = reserve_and_map(c, what, name, &memory);
		leave_context(c);
	}
	if (r < 0) {
		release_context(c, &memory);
		return r;
	}
	atomic_fetch_add_explicit(&c->n_device_ever, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->n_device_open, 1, memory_order_relaxed);
	*ret = memory;
	return 0;
}

static void unmap(const struct driver *driver, const struct device_memory *memory)
{
	driver->context_wait(); /* for what is queued and uses it: unmapping does not */
	driver->memory_unmap(memory->address, memory->bytes);
	driver->address_free(memory->address, memory->bytes);
}

void device_close(struct coppice *c, struct device_memory *memory)
{
	/* A forked child has no CUDA. */
	if (!memory->address || connection_is_foreign(c))
		return;
	if (c->driver->context_push(memory->context) == 0) {
		unmap(c->driver, memory);
		leave_context(c);
	}
	atomic_fetch_sub_explicit(&c->n_device_open, 1, memory_order_relaxed);
	release_context(c, memory);
}
