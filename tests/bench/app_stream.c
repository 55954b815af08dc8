/* app_stream.c - see app_stream.h. */
#include "app_stream.h"

#include <dlfcn.h>
#include <err.h>
#include <stdint.h>
#include <stdlib.h>

struct app_stream {
	void *stream;
	int (*alloc)(uint64_t *ret, size_t bytes);
	int (*upload)(uint64_t to, const void *from, size_t bytes);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
	int (*wait)(void *stream);
};

static void must(int r, const char *what)
{
	if (r != 0)
		errx(1, "%s: CUDA error %d", what, r);
}

static void *find(void *driver, const char *name)
{
	void *at = dlsym(driver, name);

	if (!at)
		errx(1, "the NVIDIA driver has no %s", name);
	return at;
}

static void open_device(void *driver)
{
	int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
	void *context;
	int device;

	*(void **)&init = find(driver, "cuInit");
	*(void **)&get = find(driver, "cuDeviceGet");
	*(void **)&retain = find(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set = find(driver, "cuCtxSetCurrent");
	must(init(0), "cuInit");
	must(get(&device, 0), "cuDeviceGet");
	must(retain(&context, device), "cuDevicePrimaryCtxRetain");
	must(set(context), "cuCtxSetCurrent");
}

struct app_stream *app_stream_new(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	struct app_stream *s = calloc(1, sizeof(*s));
	int (*create)(void **, unsigned);

	if (!driver || !s)
		errx(1, "no NVIDIA driver: %s", dlerror());
	open_device(driver);
	*(void **)&create = find(driver, "cuStreamCreate");
	*(void **)&s->alloc = find(driver, "cuMemAlloc_v2");
	*(void **)&s->upload = find(driver, "cuMemcpyHtoD_v2");
	*(void **)&s->copy = find(driver, "cuMemcpyDtoDAsync_v2");
	*(void **)&s->wait = find(driver, "cuStreamSynchronize");
	must(create(&s->stream, 1), "cuStreamCreate"); /* does not wait for the default stream */
	return s;
}

void *app_stream_handle(struct app_stream *s)
{
	return s->stream;
}

void *app_stream_alloc(struct app_stream *s, size_t bytes)
{
	uint64_t at;

	must(s->alloc(&at, bytes), "cuMemAlloc");
	return (void *)(uintptr_t)at;
}

void app_stream_upload(struct app_stream *s, void *to, const void *from, size_t bytes)
{
	must(s->upload((uintptr_t)to, from, bytes), "cuMemcpyHtoD");
}

void app_stream_copy(struct app_stream *s, void *to, const void *from, size_t bytes)
{
	must(s->copy((uintptr_t)to, (uintptr_t)from, bytes, s->stream), "cuMemcpyDtoDAsync");
}

void app_stream_wait(struct app_stream *s)
{
	must(s->wait(s->stream), "cuStreamSynchronize");
}
