/*
 * device.c - the daemon's device memory, opened here.
 *
 * The device is found by its UUID among those that this process sees. Its context is the app's own
 * where one of that device is current, else the primary one, which is kept for as long as the
 * memory is open. The handle is closed before the daemon hears that it may free the memory.
 */
#include "device.h"

#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LAZY_PEER_ACCESS 1u /* the only flag there is, and it must be given */

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

/* CUDA tells processes apart by pid, whatever namespaces they are in. */
static int explain_refusal(struct coppice *c, const char *what, int error)
{
	const char *text = driver_error(c->driver, error);

	if ((uint32_t)getpid() == c->daemon_pid)
		return explain(c->key, -EIO,
			       "%s: CUDA IPC is refused (%s): this process and the daemon have "
			       "the same pid, %u, in containers of their own, and CUDA takes them "
			       "for one; share the PID namespace, or start one of them under an "
			       "init",
			       what, text, c->daemon_pid);
	return explain(c->key, -EIO,
		       "%s: CUDA IPC is refused (%s, error %d): daemon and app must run on one "
		       "host and share the IPC and PID namespaces (of containers: --ipc=host "
		       "--pid=host), both or neither under MPS; or use a host arena",
		       what, text, error);
}

static bool is_as_long(const ProtobufCBinaryData *data, size_t bytes)
{
	return data && data->len == bytes;
}

int device_open(struct coppice *c, const char *what, const struct device_name *name,
		struct device_memory *ret)
{
	struct device_memory memory = {0};
	struct driver_handle handle;
	struct driver_uuid uuid;
	int r, error;

	if (!is_as_long(name->handle, sizeof(handle)) || !is_as_long(name->device, sizeof(uuid)))
		return call_bad_answer(c, what);
	memcpy(&handle, name->handle->data, sizeof(handle));
	memcpy(&uuid, name->device->data, sizeof(uuid));
	r = find_device(c, what, &uuid, &memory.device);
	if (r < 0)
		return r;
	r = enter_context(c, what, &memory);
	if (r == 0) {
		error = c->driver->handle_open(&memory.address, handle, LAZY_PEER_ACCESS);
		leave_context(c);
		r = error ? explain_refusal(c, what, error) : 0;
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

void device_close(struct coppice *c, struct device_memory *memory)
{
	/* A forked child has no CUDA. */
	if (!memory->address || connection_is_foreign(c))
		return;
	if (c->driver->context_push(memory->context) == 0) {
		c->driver->handle_close(memory->address);
		leave_context(c);
	}
	atomic_fetch_sub_explicit(&c->n_device_open, 1, memory_order_relaxed);
	release_context(c, memory);
}
