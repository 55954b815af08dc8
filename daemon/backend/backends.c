/* backends.c - see backends.h. */
#include "backends.h"

#include "kv_split.h"
#include "daemon/base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHY_BYTES 400
/* That a device of a group is waited for: two after each other, with the seconds that are added,
 * less than WatchdogSec= of coppiced.service, so that what failed is said, and open tickets end,
 * before the service manager ends the daemon. */
#define GROUP_TIMEOUT_MS 10000
#define SPINS_A_LAYER \
	5 /* to wake a thread takes longer than most layers: until the next comes it stays awake */

/* Several devices of one kind, as one. */
static int open_group(const struct config *config, const struct backend_config *of,
		      const struct backend_ops *ops, struct backend **ret, char *why)
{
	char copy[sizeof(config->devices)];
	const char *names[GROUP_DEVICES_MAX];
	struct group_device devices[GROUP_DEVICES_MAX];
	struct group_config group = {.devices = devices,
				     .n_devices = config->n_devices,
				     .timeout_ms = GROUP_TIMEOUT_MS,
				     .watch_us = SPINS_A_LAYER * config->spin_us};
	struct backend_config all = *of;
	int r;

	list_split(config->devices, copy, names, GROUP_DEVICES_MAX);
	for (uint32_t i = 0; i < config->n_devices; i++)
		devices[i] = (struct group_device){ops, names[i]};
	all.group = &group;
	r = backend_group.open(&all, ret, why, WHY_BYTES);
	if (r == 0 && group_notice(*ret))
		log_warning("%s", group_notice(*ret));
	return r;
}

static void name_group(const struct config *config, const struct backend_ops *ops,
		       struct opened_backend *ret)
{
	snprintf(ret->name, sizeof(ret->name), "%s x %u", ops->name, config->n_devices);
	ret->group = backend_group;
	ret->group.name = ret->name;
	ret->group.wants_rows = ops->wants_rows;
	ret->ops = &ret->group;
}

/* What the pool may have of each device: as much as of the one with the least, as extents lie on
 * all alike. */
static int share_find(const struct config *config, const struct backend_ops *ops, uint64_t *ret,
		      char *why)
{
	char copy[sizeof(config->devices)];
	const char *names[GROUP_DEVICES_MAX] = {config->device[0] ? config->device : NULL};
	uint32_t n = config->n_devices > 1 ? config->n_devices : 1;
	struct backend_memory memory = {0};
	uint64_t least = UINT64_MAX;

	if (n > 1)
		list_split(config->devices, copy, names, GROUP_DEVICES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		int r = ops->memory(names[i], &memory, why, WHY_BYTES);
		uint64_t share = config->pool_percent ? memory.bytes / 100 * config->pool_percent
						      : memory.usual_bytes;

		if (r < 0)
			return r;
		least = share < least ? share : least;
	}
	*ret = memory.common ? least : least * n;
	return 0;
}

/* In whole extents, one beside the stage at least. */
static int pool_find(const struct config *config, const struct backend_ops *ops, uint64_t *ret,
		     char *why)
{
	uint64_t bytes = config->pool_bytes, least = config->stage_bytes + config->extent_bytes;
	int r = bytes ? 0 : share_find(config, ops, &bytes, why);

	if (r < 0)
		return r;
	if (bytes < least) {
		snprintf(why, WHY_BYTES,
			 "its share of memory makes a pool of %llu MiB, and %llu MiB is the least "
			 "that does: make pool larger, or extent and stage smaller%s",
			 (unsigned long long)(bytes >> 20), (unsigned long long)(least >> 20),
			 config->pool_percent ? "" : ", or free the device");
		return -ENOMEM;
	}
	*ret = bytes - bytes % config->extent_bytes;
	return 0;
}

static int open_with(struct config *config, const struct backend_ops *ops, void *module,
		     struct opened_backend *ret, char *why)
{
	struct backend_config of = {
		.extent_bytes = config->extent_bytes,
		.n_threads = config->n_threads,
		.device = config->device[0] ? config->device : NULL,
	};
	struct backend *backend;
	bool one = config->n_devices <= 1;
	int r = pool_find(config, ops, &of.pool_bytes, why);

	if (r == 0)
		r = one ? ops->open(&of, &backend, why, WHY_BYTES)
			: open_group(config, &of, ops, &backend, why);
	if (r < 0 && !why[0])
		snprintf(why, WHY_BYTES, "%s", strerror(-r));
	if (r < 0)
		return r;
	*ret = (struct opened_backend){.ops = ops, .backend = backend, .module = module};
	if (!one)
		name_group(config, ops, ret);
	config->pool_bytes = of.pool_bytes;
	return 0;
}

static void *load_from(const char *folder, const char *name)
{
	char path[PATH_MAX];

	if (!folder ||
	    snprintf(path, sizeof(path), "%s/coppice-%s.so", folder, name) >= (int)sizeof(path) ||
	    access(path, R_OK) < 0)
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Where a build puts modules, or an installed copy that was moved has them: beside the daemon's own
 * folder. What was made with the daemon comes before what was installed. */
static void *load_from_beside(const char *name)
{
	char exe[PATH_MAX], folder[PATH_MAX + 256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n < 0)
		return NULL;
	exe[n] = 0;
	char *slash = strrchr(exe, '/');

	if (slash)
		*slash = 0;
	snprintf(folder, sizeof(folder), "%s/../kernels/%s", exe, name);
	void *module = load_from(folder, name);

	if (module)
		return module;
	snprintf(folder, sizeof(folder), "%s/" COPPICE_MODULE_BESIDE, exe);
	return load_from(folder, name);
}

static int open_module(struct config *config, const char *name, struct opened_backend *ret,
		       char *why)
{
	void *module = load_from(getenv("COPPICE_MODULE_DIR"), name);
	char symbol[64];

	if (!module)
		module = load_from_beside(name);
	if (!module)
		module = load_from(COPPICE_MODULE_DIR, name);
	if (!module) {
		const char *error = dlerror();

		snprintf(why, WHY_BYTES, "coppice-%s.so is not installed or cannot be loaded%s%s",
			 name, error ? ": " : "", error ? error : "");
		return -ENOENT;
	}
	snprintf(symbol, sizeof(symbol), "coppice_backend_%s", name);
	const struct backend_ops *(*get_ops)(void);

	*(void **)&get_ops = dlsym(module, symbol);
	int r = -ENOEXEC;

	if (get_ops)
		r = open_with(config, get_ops(), module, ret, why);
	else
		snprintf(why, WHY_BYTES, "coppice-%s.so has no %s", name, symbol);
	if (r < 0)
		dlclose(module);
	return r;
}

static int open_cpu(struct config *config, struct opened_backend *ret)
{
	char why[WHY_BYTES] = "";
	int r = open_with(config, &backend_cpu, NULL, ret, why);

	if (r < 0)
		log_error("the cpu backend cannot be opened: %s", why);
	return r;
}

int backends_open(struct config *config, struct opened_backend *ret)
{
	char why[WHY_BYTES] = "";

	if (!strcmp(config->backend, "cpu"))
		return open_cpu(config, ret);
	int r = open_module(config, "cuda", ret, why);

	if (r == 0)
		return 0;
	if (!strcmp(config->backend, "auto")) {
		log_info("no GPU backend (%s): the CPU computes", why);
		return open_cpu(config, ret);
	}
	log_error("the cuda backend cannot be opened: %s", why);
	return r;
}

void backends_close(struct opened_backend *opened)
{
	if (opened->ops)
		opened->ops->close(opened->backend);
	if (opened->module)
		dlclose(opened->module);
}
