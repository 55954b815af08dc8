/*
 * app_stream.c - libcuda.so.1 by its own names, without its headers, and the kernel that copies, as
 * PTX: it lets what follows begin early, as engines' kernels do.
 */
#include "app_stream.h"
#include "proto/arith.h"

#include <dlfcn.h>
#include <err.h>
#include <stdint.h>
#include <stdlib.h>

#define THREADS 256u
#define THREAD_BYTES 16u
#define LAUNCH_EARLY 6 /* programmatic stream serialization */

/* A thread copies 16 bytes. As engines' kernels do, it lets what follows begin early and waits for
 * what was before. */
static const char copy_ptx[] =
	".version 7.8\n"
	".target sm_90\n"
	".address_size 64\n"
	".visible .entry copy(.param .u64 to, .param .u64 from, .param .u64 n)\n"
	"{\n"
	"	.reg .pred %outside;\n"
	"	.reg .b32 %r<8>;\n"
	"	.reg .b64 %to, %from, %n, %at;\n"
	"	griddepcontrol.launch_dependents;\n"
	"	ld.param.u64 %to, [to];\n"
	"	ld.param.u64 %from, [from];\n"
	"	ld.param.u64 %n, [n];\n"
	"	mov.u32 %r0, %ctaid.x;\n"
	"	mov.u32 %r1, %ntid.x;\n"
	"	mov.u32 %r2, %tid.x;\n"
	"	mad.lo.u32 %r3, %r0, %r1, %r2;\n"
	"	mul.wide.u32 %at, %r3, 16;\n"
	"	setp.ge.u64 %outside, %at, %n;\n"
	"	add.u64 %to, %to, %at;\n"
	"	add.u64 %from, %from, %at;\n"
	"	griddepcontrol.wait;\n"
	"	@%outside ret;\n"
	"	ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%from];\n"
	"	st.global.v4.u32 [%to], {%r4, %r5, %r6, %r7};\n"
	"	ret;\n"
	"}\n";

struct launch_attribute {
	uint32_t kind, pad;
	uint64_t value[8];
};

struct launch {
	uint32_t grid[3], block[3], shared_bytes;
	void *stream;
	struct launch_attribute *attributes;
	uint32_t n_attributes;
};

struct app_stream {
	void *stream;
	int (*alloc)(uint64_t *ret, size_t bytes);
	int (*upload)(uint64_t to, const void *from, size_t bytes);
	int (*download)(void *to, uint64_t from, size_t bytes);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
	int (*launch)(const struct launch *launch, void *function, void **arguments, void **extra);
	void *kernel; /* that copies; NULL: the device takes none, its copy engine serves */
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

static void load_kernel(void *driver, struct app_stream *s)
{
	int (*load)(void **, const void *), (*function)(void **, void *, const char *);
	void *module;

	*(void **)&load = find(driver, "cuModuleLoadData");
	*(void **)&function = find(driver, "cuModuleGetFunction");
	*(void **)&s->launch = find(driver, "cuLaunchKernelEx");
	if (load(&module, copy_ptx) == 0)
		must(function(&s->kernel, module, "copy"), "cuModuleGetFunction");
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
	*(void **)&s->download = find(driver, "cuMemcpyDtoH_v2");
	*(void **)&s->copy = find(driver, "cuMemcpyDtoDAsync_v2");
	*(void **)&s->wait = find(driver, "cuStreamSynchronize");
	load_kernel(driver, s);
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

static void launch_copy(struct app_stream *s, uint64_t to, uint64_t from, uint64_t n)
{
	void *arguments[] = {&to, &from, &n};
	uint64_t block_bytes = THREADS * THREAD_BYTES;
	struct launch_attribute early = {.kind = LAUNCH_EARLY, .value = {1}};
	struct launch one = {.grid = {(uint32_t)ceil_div_u64(n, block_bytes), 1, 1},
			     .block = {THREADS, 1, 1},
			     .stream = s->stream,
			     .attributes = &early,
			     .n_attributes = 1};

	must(s->launch(&one, s->kernel, arguments, NULL), "cuLaunchKernelEx");
}

void app_stream_download(struct app_stream *s, void *to, const void *from, size_t bytes)
{
	must(s->download(to, (uintptr_t)from, bytes), "cuMemcpyDtoH");
}

void app_stream_copy(struct app_stream *s, void *to, const void *from, size_t bytes)
{
	if (s->kernel)
		launch_copy(s, (uintptr_t)to, (uintptr_t)from, bytes);
	else
		must(s->copy((uintptr_t)to, (uintptr_t)from, bytes, s->stream),
		     "cuMemcpyDtoDAsync");
}

void app_stream_wait(struct app_stream *s)
{
	must(s->wait(s->stream), "cuStreamSynchronize");
}
