/*
 * backends.c - which backend computes, on which devices, with how large a pool.
 *
 * A module is looked for beside the daemon before it is looked for where it was installed, so that
 * a build runs its own. The pool is decided here because only the backend knows what memory there
 * is: a share becomes bytes, and more than there is is refused before anything is allocated.
 */
#include "backends.h"

#include "daemon/base/log.h"
#include "daemon/config/lists.h"
#include "kernels/group/group.h"
#include "proto/arith.h"
#include "proto/size_text.h"

#include <assert.h>
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
/* To wake a thread takes longer than most layers: until the next comes it stays awake. */
#define SPINS_A_LAYER 5

/* Names of devices, and where they lie. */
struct device_names {
	char copy[sizeof(((struct config *)0)->devices)];
	const char *names[GROUP_DEVICES_MAX]; /* [0] NULL: the first that there is */
	uint32_t n;
};

static void names_read(const struct config *config, struct device_names *ret)
{
	int n = 1;

	*ret = (struct device_names){.names = {config->device[0] ? config->device : NULL}};
	if (config->n_devices > 1)
		n = list_items(config->devices, ret->copy, ret->names, GROUP_DEVICES_MAX);
	assert(n >= 1); /* config/check.c counted them */
	ret->n = (uint32_t)n;
}

/* Several devices of one kind, as one. */
static int open_group(const struct config *config, const struct backend_config *of,
		      const struct backend_ops *ops, struct backend **ret, char *why)
{
	struct device_names names;
	struct group_device devices[GROUP_DEVICES_MAX];
	struct group_config group = {.devices = devices,
				     .n_devices = config->n_devices,
				     .timeout_ms = GROUP_TIMEOUT_MS,
				     .watch_us = SPINS_A_LAYER * config->spin_us};
	struct backend_config all = *of;

	names_read(config, &names);
	for (uint32_t i = 0; i < names.n; i++)
		devices[i] = (struct group_device){ops, names.names[i]};
	all.group = &group;
	return backend_group.open(&all, ret, why, WHY_BYTES);
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

/* What the pool could have, over all devices: as much as of the one with the least, as extents lie
 * on all alike. */
struct pool_room {
	uint64_t all_bytes; /* of their memory, in use or not */
	uint64_t share_bytes; /* that the config asks for, or the usual one */
	bool common; /* it is the machine's memory */
};

static int room_find(const struct config *config, const struct backend_ops *ops,
		     struct pool_room *ret, char *why)
{
	struct pool_room least = {UINT64_MAX, UINT64_MAX, false};
	struct backend_memory memory = {0};
	struct device_names names;

	names_read(config, &names);
	for (uint32_t i = 0; i < names.n; i++) {
		int r = ops->memory(names.names[i], &memory, why, WHY_BYTES);
		uint64_t share = config->pool_percent ? memory.bytes / 100 * config->pool_percent
						      : memory.usual_bytes;

		if (r < 0)
			return r;
		least.all_bytes = min_u64(memory.bytes, least.all_bytes);
		least.share_bytes = min_u64(share, least.share_bytes);
	}
	ret->all_bytes = least.all_bytes * (memory.common ? 1 : names.n);
	ret->share_bytes = least.share_bytes * (memory.common ? 1 : names.n);
	ret->common = memory.common;
	return 0;
}

static int refuse_small(const struct config *config, uint64_t bytes, uint64_t least, char *why)
{
	snprintf(why, WHY_BYTES,
		 "its share of memory makes a pool of %s, and %s is the least that does: make "
		 "pool larger, or extent and stage smaller%s",
		 size_text_measured(bytes).text, size_text(least, 0).text,
		 config->pool_percent ? "" : ", or free the device");
	return -ENOMEM;
}

static int refuse_large(const struct config *config, const struct pool_room *room, char *why)
{
	uint64_t usual = room->share_bytes / config->extent_bytes * config->extent_bytes;

	snprintf(why, WHY_BYTES,
		 "a pool of %s is more than there is: %s has %s; accepted: less, a share such as "
		 "50%%, or 0 for the usual one (%s)",
		 config->pool_text,
		 room->common		 ? "this machine"
		 : config->n_devices > 1 ? "what computes"
					 : "the GPU",
		 size_text_measured(room->all_bytes).text, size_text_measured(usual).text);
	return -ENOMEM;
}

/* In whole extents, one beside the stage at least. */
static int pool_find(const struct config *config, const struct backend_ops *ops, uint64_t *ret,
		     char *why)
{
	uint64_t bytes, least = config->stage_bytes + config->extent_bytes;
	struct pool_room room;
	int r = room_find(config, ops, &room, why);

	if (r < 0)
		return r;
	if (config->pool_bytes > room.all_bytes)
		return refuse_large(config, &room, why);
	bytes = config->pool_bytes ? config->pool_bytes : room.share_bytes;
	if (bytes < least)
		return refuse_small(config, bytes, least, why);
	*ret = bytes - bytes % config->extent_bytes;
	return 0;
}

static void log_notice(const struct opened_backend *opened)
{
	const char *notice = opened->ops->notice ? opened->ops->notice(opened->backend) : NULL;

	if (notice)
		log_warning("%s", notice);
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
	log_notice(ret);
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

/* The module of that name and its operations; both stay until it is closed. */
static int load_ops(const char *name, void **ret_module, const struct backend_ops **ret, char *why)
{
	void *module = load_from(getenv("COPPICE_MODULE_DIR"), name);
	const struct backend_ops *(*get_ops)(void);
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
	*(void **)&get_ops = dlsym(module, symbol);
	if (!get_ops) {
		snprintf(why, WHY_BYTES, "coppice-%s.so has no %s", name, symbol);
		dlclose(module);
		return -ENOEXEC;
	}
	*ret_module = module;
	*ret = get_ops();
	return 0;
}

/* What is done with the operations of the backend that the config names; module NULL: linked in. */
typedef int (*use_function)(struct config *config, const struct backend_ops *ops, void *module,
			    struct opened_backend *ret, char *why);

static int use_module(struct config *config, use_function use, struct opened_backend *ret,
		      char *why)
{
	const struct backend_ops *ops;
	void *module;
	int r = load_ops("cuda", &module, &ops, why);

	if (r < 0)
		return r;
	r = use(config, ops, module, ret, why);
	if (r < 0)
		dlclose(module);
	return r;
}

static int use_cpu(struct config *config, use_function use, struct opened_backend *ret)
{
	char why[WHY_BYTES] = "";
	int r = use(config, &backend_cpu, NULL, ret, why);

	if (r < 0)
		log_error("the cpu backend cannot be opened: %s", why);
	return r;
}

static int use_backend(struct config *config, use_function use, struct opened_backend *ret)
{
	char why[WHY_BYTES] = "";
	int r;

	if (!strcmp(config->backend, "cpu"))
		return use_cpu(config, use, ret);
	r = use_module(config, use, ret, why);
	if (r == 0)
		return 0;
	if (!strcmp(config->backend, "auto")) {
		log_info("no GPU backend (%s): the CPU computes", why);
		return use_cpu(config, use, ret);
	}
	log_error("the cuda backend cannot be opened: %s", why);
	return r;
}

int backends_open(struct config *config, struct opened_backend *ret)
{
	return use_backend(config, open_with, ret);
}

/* Opens nothing: the pool is found, and the module goes again. */
static int look(struct config *config, const struct backend_ops *ops, void *module,
		struct opened_backend *ret, char *why)
{
	uint64_t bytes;
	int r = pool_find(config, ops, &bytes, why);

	if (r < 0)
		return r;
	config->pool_bytes = bytes;
	snprintf(ret->name, sizeof(ret->name), "%s", ops->name);
	if (module)
		dlclose(module);
	return 0;
}

int backends_look(struct config *config, struct opened_backend *ret)
{
	*ret = (struct opened_backend){0};
	return use_backend(config, look, ret);
}

void backends_close(struct opened_backend *opened)
{
	if (opened->ops)
		opened->ops->close(opened->backend);
	if (opened->module)
		dlclose(opened->module);
}
