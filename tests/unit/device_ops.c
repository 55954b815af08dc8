/*
 * device_ops.c - loads the module and opens its backend once: without a device the test is skipped
 * (77).
 */
#include "device_ops.h"

#include "kernels/cuda/module/module.h"

#include <dlfcn.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define SKIPPED 77

int device_ops(const char *module, const struct backend_ops **ret)
{
	struct backend_config config = {.pool_bytes = 2 * MIB, .extent_bytes = 2 * MIB};
	void *at = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	const struct backend_ops *ops;
	struct backend *b = NULL;
	char error[256] = "";
	cuda_ops find = NULL;

	if (at)
		*(void **)&find = dlsym(at, CUDA_MODULE_OPS);
	if (!find) {
		printf("%s does not load: %s\n", module, dlerror());
		return 1;
	}
	ops = find();
	if (ops->open(&config, &b, error, sizeof(error)) != 0) {
		printf("skipped: %s\n", error);
		return SKIPPED;
	}
	ops->close(b);
	*ret = ops;
	return 0;
}
