/*
 * driver.c - libcuda.so.1, opened when something first needs it.
 *
 * All entry points are found or none: a driver that lacks one is too old. It is opened once a
 * connection and stays loaded for good, because a process that has begun with CUDA does not end
 * with it.
 */
#include "driver.h"

#include "client/lib/connection/connection.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#define LIBRARY "libcuda.so.1"

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{"cuInit", offsetof(struct driver, init)},
	{"cuGetErrorString", offsetof(struct driver, error_string)},
	{"cuDeviceGetCount", offsetof(struct driver, device_count)},
	{"cuDeviceGet", offsetof(struct driver, device_get)},
	{"cuDeviceGetUuid_v2", offsetof(struct driver, device_uuid)},
	{"cuDeviceGetAttribute", offsetof(struct driver, device_attribute)},
	{"cuDevicePrimaryCtxRetain", offsetof(struct driver, primary_retain)},
	{"cuDevicePrimaryCtxRelease_v2", offsetof(struct driver, primary_release)},
	{"cuCtxGetCurrent", offsetof(struct driver, context_current)},
	{"cuCtxGetDevice", offsetof(struct driver, context_device)},
	{"cuCtxPushCurrent_v2", offsetof(struct driver, context_push)},
	{"cuCtxPopCurrent_v2", offsetof(struct driver, context_pop)},
	{"cuCtxSynchronize", offsetof(struct driver, context_wait)},
	{"cuMemImportFromShareableHandle", offsetof(struct driver, memory_import)},
	{"cuMemRelease", offsetof(struct driver, memory_release)},
	{"cuMemAddressReserve", offsetof(struct driver, address_reserve)},
	{"cuMemAddressFree", offsetof(struct driver, address_free)},
	{"cuMemMap", offsetof(struct driver, memory_map)},
	{"cuMemUnmap", offsetof(struct driver, memory_unmap)},
	{"cuMemSetAccess", offsetof(struct driver, memory_let)},
	{"cuMemHostRegister_v2", offsetof(struct driver, host_register)},
	{"cuMemHostUnregister", offsetof(struct driver, host_unregister)},
	{"cuMemHostGetDevicePointer_v2", offsetof(struct driver, host_address)},
	{"cuStreamGetCtx", offsetof(struct driver, stream_context)},
	{"cuStreamIsCapturing", offsetof(struct driver, stream_capturing)},
	{"cuStreamWriteValue64_v2", offsetof(struct driver, stream_write)},
	{"cuStreamWaitValue64_v2", offsetof(struct driver, stream_wait)},
	{"cuStreamBatchMemOp_v2", offsetof(struct driver, stream_batch)},
	{"cuModuleLoadData", offsetof(struct driver, module_load)},
	{"cuModuleUnload", offsetof(struct driver, module_unload)},
	{"cuModuleGetFunction", offsetof(struct driver, module_function)},
	{"cuLaunchKernelEx", offsetof(struct driver, launch)},
};

/* The library stays loaded for good: a process that has begun with CUDA does not end with it. */
static int load(struct coppice *c, const char *what, struct driver *driver)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		return explain(c->key, -ENODEV,
			       "%s: there is no NVIDIA driver (%s); use host arenas and "
			       "coppice_step, which need none",
			       what, dlerror());
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *at = dlsym(library, symbols[i].name);

		if (!at)
			return explain(c->key, -ENODEV,
				       "%s: the NVIDIA driver lacks %s; install one for CUDA 12 "
				       "or newer",
				       what, symbols[i].name);
		*(void **)((char *)driver + symbols[i].offset) = at;
	}
	return 0;
}

static int start(struct coppice *c, const char *what, const struct driver *driver)
{
	int n_devices = 0;
	int error = driver->init(0);

	if (error == 0)
		error = driver->device_count(&n_devices);
	if (error)
		return explain(c->key, -ENODEV, "%s: the NVIDIA driver does not start: %s", what,
			       driver_error(driver, error));
	if (n_devices == 0)
		return explain(c->key, -ENODEV,
			       "%s: the NVIDIA driver sees no GPU; is one passed to this "
			       "container, does CUDA_VISIBLE_DEVICES hide it?",
			       what);
	return 0;
}

static int find_locked(struct coppice *c, const char *what)
{
	struct driver *driver;
	int r;

	if (c->driver)
		return 0;
	driver = calloc(1, sizeof(*driver));
	if (!driver)
		return explain(c->key, -ENOMEM, "%s: out of memory", what);
	r = load(c, what, driver);
	if (r == 0)
		r = start(c, what, driver);
	if (r < 0)
		free(driver);
	else
		c->driver = driver;
	return r;
}

int driver_find(struct coppice *c, const char *what, const struct driver **ret)
{
	int r;

	pthread_mutex_lock(&c->lists_lock);
	r = find_locked(c, what);
	*ret = c->driver;
	pthread_mutex_unlock(&c->lists_lock);
	return r;
}

const struct driver *driver_find_current(struct coppice *c, void **ret_context)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD), *context = NULL;
	const struct driver *driver;
	int (*current)(void **);

	if (!library)
		return NULL;
	*(void **)&current = dlsym(library, "cuCtxGetCurrent");
	if (!current || current(&context) != 0 || !context ||
	    driver_find(c, "coppice_lane_new", &driver) < 0) {
		dlclose(library);
		return NULL;
	}
	dlclose(library);
	*ret_context = context;
	return driver;
}

const char *driver_error(const struct driver *driver, int error)
{
	const char *text = NULL;

	if (driver->error_string(error, &text) != 0 || !text)
		text = "an error without a name";
	return text;
}

int driver_explain(struct coppice *c, const char *what, const char *doing, int error)
{
	return explain(c->key, -EIO, "%s: CUDA refuses to %s: %s (error %d)", what, doing,
		       driver_error(c->driver, error), error);
}
