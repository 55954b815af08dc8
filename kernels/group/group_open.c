/*
 * group_open.c - the devices of a group are opened, meet each other and the other processes, and
 * are closed.
 *
 * Devices are opened first, one after the other; then there is a thread for each, then processes
 * agree, then devices meet. What fails leaves nothing open, and tells the other processes.
 */
#include "group_open.h"

#include "agree.h"
#include "batch.h"
#include "exchange.h"
#include "exchange_memory.h"
#include "group.h"
#include "kernels/pool_config.h"
#include "proto/arith.h"
#include "proto/size_text.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define TIMEOUT_MS 60000u

static void device_done(struct backend *b, struct device *d)
{
	if (d->parts.base)
		b->ops->arena_detach(d->backend, d->parts.base, d->parts.bytes);
	free(d->parts.host);
	free(d->folded);
	share_done(&d->share);
	if (!b->ranks)
		exchange_free(d->exchange);
	b->ops->close(d->backend);
}

void group_close(struct backend *b)
{
	if (!b)
		return;
	threads_free(b->threads);
	for (uint32_t i = 0; i < b->n_devices; i++)
		device_done(b, &b->devices[i]);
	free(b->devices);
	free(b->arenas);
	array_done(&b->owner);
	free(b);
}

/* Of all processes, which have as many each. */
static uint32_t n_all(const struct group_config *g)
{
	return g->n_devices * (g->ranks ? g->ranks->n_ranks : 1);
}

static int check_kinds(const struct group_config *g, char *error, size_t error_bytes)
{
	for (uint32_t i = 1; i < g->n_devices; i++) {
		if (g->devices[i].ops == g->devices[0].ops)
			continue;
		say(error, error_bytes,
		    "devices of a group are of one kind: device 0 is of %s, %u of %s",
		    g->devices[0].ops->name, i, g->devices[i].ops->name);
		return -EINVAL;
	}
	if (n_all(g) > 1 && !g->devices[0].ops->leaves_parts && !g->devices[0].ops->meet) {
		say(error, error_bytes, "devices of %s cannot share the tokens of a sequence",
		    g->devices[0].ops->name);
		return -EINVAL;
	}
	return 0;
}

static int check_ranks(const struct group_config *g, char *error, size_t error_bytes)
{
	const struct backend_ops *ops = g->devices[0].ops;

	if (!g->ranks || ops->meeting_id || (!ops->meet && g->n_devices == 1))
		return 0;
	if (ops->meet)
		say(error, error_bytes, "devices of %s in several processes do not meet",
		    ops->name);
	else
		say(error, error_bytes, "of devices of %s each of several processes has one",
		    ops->name);
	return -EINVAL;
}

static int check_config(const struct backend_config *config, char *error, size_t error_bytes)
{
	const struct group_config *g = config->group;

	if (!g || g->n_devices == 0 || g->n_devices > GROUP_DEVICES_MAX) {
		say(error, error_bytes, "a group is of 1 to %u devices", GROUP_DEVICES_MAX);
		return -EINVAL;
	}
	if (check_kinds(g, error, error_bytes) != 0 || check_ranks(g, error, error_bytes) != 0)
		return -EINVAL;
	if (config->extent_bytes == 0 || config->extent_bytes % (n_all(g) * EXTENT_STEP)) {
		say(error, error_bytes, "extents of %s are no multiple of 2M on each of %u devices",
		    size_text(config->extent_bytes, 0).text, n_all(g));
		return -EINVAL;
	}
	return 0;
}

static uint32_t threads_of_device(const struct backend_config *config)
{
	cpu_set_t set;
	uint32_t n = config->n_threads;

	if (n == 0)
		n = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
	n /= config->group->n_devices;
	return n ? n : 1;
}

static int open_devices(struct backend *b, const struct backend_config *config, char *error,
			size_t error_bytes)
{
	struct backend_config own = *config;
	int r = 0;

	own.group = NULL;
	own.n_threads = threads_of_device(config);
	own.pool_bytes /= b->n_all;
	own.extent_bytes /= b->n_all;
	while (r == 0 && b->n_devices < config->group->n_devices) {
		struct device *d = &b->devices[b->n_devices];

		own.device = config->group->devices[b->n_devices].name;
		share_init(&d->share, b->first + b->n_devices, b->n_all);
		r = b->ops->open(&own, &d->backend, error, error_bytes);
		b->n_devices += r == 0;
	}
	return r;
}

static int open_meeting(struct backend *b, const uint8_t *id, char *error, size_t error_bytes)
{
	struct backend *members[GROUP_DEVICES_MAX];
	struct backend_meeting meeting = {.members = members,
					  .n = b->n_devices,
					  .first = b->first,
					  .n_all = b->n_all,
					  .id = b->ranks ? id : NULL,
					  .timeout_ms = b->timeout_ms};
	int r;

	for (uint32_t i = 0; i < b->n_devices; i++)
		members[i] = b->devices[i].backend;
	r = b->ops->meet(&meeting, b->notice, error, min_u64(error_bytes, sizeof(b->notice)));
	b->meets = true;
	b->apart = r == 1;
	return r < 0 ? r : 0;
}

/* Threads, one to a device, and where the host exchanges, its ends. */
static int open_threads(struct backend *b, uint32_t watch_us)
{
	struct exchange *ends[GROUP_DEVICES_MAX] = {b->ranks};
	int r = threads_new(b->n_devices, &b->threads);

	if (r)
		return r;
	if (b->ops->meet)
		threads_watch(b->threads, watch_us * UINT64_C(1000));
	if (b->ops->meet || b->n_all == 1)
		return 0;
	if (!b->ranks)
		r = exchange_memory_new(b->n_devices, b->timeout_ms, ends);
	for (uint32_t i = 0; r == 0 && i < b->n_devices; i++)
		b->devices[i].exchange = ends[i];
	return r;
}

static int open_between(struct backend *b, const struct backend_config *config, char *error,
			size_t error_bytes)
{
	uint8_t id[BACKEND_MEETING_BYTES];
	int r = open_threads(b, config->group->watch_us);

	if (r)
		say(error, error_bytes, "cannot start a thread for each of %u devices",
		    b->n_devices);
	if (r == 0 && b->ranks)
		r = agree(config, id, error, error_bytes);
	if (r == 0 && b->ops->meet && b->n_all > 1)
		r = open_meeting(b, id, error, error_bytes);
	return r;
}

static int open_all(struct backend *b, const struct backend_config *config, char *error,
		    size_t error_bytes)
{
	int r = open_devices(b, config, error, error_bytes);

	if (r == 0)
		r = open_between(b, config, error, error_bytes);
	if (r && b->ranks)
		exchange_abort(b->ranks);
	return r;
}

int group_open(const struct backend_config *config, struct backend **ret, char *error,
	       size_t error_bytes)
{
	int r = check_config(config, error, error_bytes);
	struct backend *b;

	if (r)
		return r;
	b = calloc(1, sizeof(*b));
	if (b)
		b->devices = calloc(config->group->n_devices, sizeof(*b->devices));
	if (!b || !b->devices) {
		free(b);
		say(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	b->ops = config->group->devices[0].ops;
	b->timeout_ms = config->group->timeout_ms ? config->group->timeout_ms : TIMEOUT_MS;
	b->ranks = config->group->ranks;
	b->n_all = n_all(config->group);
	b->first = b->ranks ? b->ranks->rank * config->group->n_devices : 0;
	b->extent_bytes = config->extent_bytes / b->n_all;
	b->vec = vec_select(getenv("COPPICE_CPU_ISA"));
	r = open_all(b, config, error, error_bytes);
	if (r) {
		group_close(b);
		return r;
	}
	*ret = b;
	return 0;
}
