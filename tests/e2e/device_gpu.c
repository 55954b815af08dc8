/*
 * device_gpu.c - libcuda.so.1, looked up by name: all entry points or none.
 *
 * Where there is no driver, or no GPU, the clients' tests are skipped with a reason; the fake
 * driver has the same names.
 */
#include "device_gpu.h"

#include <dlfcn.h>

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{"cuInit", offsetof(struct gpu, init)},
	{"cuDeviceGetCount", offsetof(struct gpu, count)},
	{"cuDeviceGet", offsetof(struct gpu, get)},
	{"cuDevicePrimaryCtxRetain", offsetof(struct gpu, retain)},
	{"cuCtxPushCurrent_v2", offsetof(struct gpu, enter)},
	{"cuMemHostAlloc", offsetof(struct gpu, host_alloc)},
	{"cuMemFreeHost", offsetof(struct gpu, host_free)},
	{"cuMemcpy", offsetof(struct gpu, copy_now)},
	{"cuMemcpyAsync", offsetof(struct gpu, copy)},
	{"cuLaunchHostFunc", offsetof(struct gpu, call)},
	{"cuStreamCreate", offsetof(struct gpu, stream_new)},
	{"cuStreamDestroy_v2", offsetof(struct gpu, stream_free)},
	{"cuStreamSynchronize", offsetof(struct gpu, stream_await)},
	{"cuStreamBeginCapture_v2", offsetof(struct gpu, capture_begin)},
	{"cuStreamEndCapture", offsetof(struct gpu, capture_end)},
	{"cuGraphInstantiateWithFlags", offsetof(struct gpu, graph_make)},
	{"cuGraphLaunch", offsetof(struct gpu, graph_launch)},
	{"cuGraphExecDestroy", offsetof(struct gpu, replay_free)},
	{"cuGraphDestroy", offsetof(struct gpu, graph_free)},
};

void gpu_fault(const struct gpu *gpu)
{
	static const char program[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
				      ".visible .entry fault()\n{\n"
				      ".reg .b64 %at;\n.reg .b32 %what;\n"
				      "mov.u64 %at, 64;\nmov.u32 %what, 1;\n"
				      "st.global.u32 [%at], %what;\nret;\n}\n";
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *module, *kernel;
	int (*load)(void **, const void *);
	int (*find)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);

	*(void **)&load = dlsym(library, "cuModuleLoadData");
	*(void **)&find = dlsym(library, "cuModuleGetFunction");
	*(void **)&launch = dlsym(library, "cuLaunchKernel");
	if (load(&module, program) == 0 && find(&kernel, module, "fault") == 0 &&
	    launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0)
		gpu->stream_await(NULL);
}

const char *gpu_open(struct gpu *ret)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *context;
	int n = 0, device;

	if (!library)
		return dlerror();
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *at = dlsym(library, symbols[i].name);

		if (!at)
			return symbols[i].name;
		*(void **)((char *)ret + symbols[i].offset) = at;
	}
	if (ret->init(0) != 0)
		return "the driver does not start";
	if (ret->count(&n) != 0 || n == 0)
		return "the driver sees no GPU";
	if (ret->get(&device, 0) != 0 || ret->retain(&context, device) != 0 ||
	    ret->enter(context) != 0)
		return "there is no context on the first GPU";
	return NULL;
}
