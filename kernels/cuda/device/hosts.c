/*
 * hosts.c - see hosts.h. There are few ranges, and what is asked for next is most often in the one
 * that was found last: it is looked at first.
 */
#include "hosts.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

static int add_range(struct hosts *hosts, uint64_t base, uint64_t bytes)
{
	struct host_range *ranges = realloc(hosts->ranges, (hosts->n + 1) * sizeof(*ranges));

	if (!ranges)
		return -ENOMEM;
	hosts->ranges = ranges;
	ranges[hosts->n++] = (struct host_range){base, bytes};
	return 0;
}

int hosts_add(struct hosts *hosts, uint64_t base, uint64_t bytes)
{
	for (uint32_t i = 0; i < hosts->n; i++) {
		struct host_range *range = &hosts->ranges[i];

		if (range->base + range->bytes == base) {
			range->bytes += bytes;
			return 0;
		}
	}
	return add_range(hosts, base, bytes);
}

/* What lies behind a part that goes is a range of its own; without memory for that it stays in this
 * one, with the part: that is brought over for nothing where it comes to be the device's. */
static void cut(struct hosts *hosts, uint32_t i, uint64_t base, uint64_t bytes)
{
	struct host_range *range = &hosts->ranges[i];
	uint64_t before = base - range->base, behind = range->bytes - before - bytes;

	if (before && behind) {
		if (add_range(hosts, base + bytes, behind) == 0)
			hosts->ranges[i].bytes = before;
	} else if (before) {
		range->bytes = before;
	} else if (behind) {
		*range = (struct host_range){base + bytes, behind};
	} else {
		*range = hosts->ranges[--hosts->n];
	}
}

void hosts_drop(struct hosts *hosts, uint64_t base, uint64_t bytes)
{
	for (uint32_t i = 0; i < hosts->n; i++) {
		const struct host_range *range = &hosts->ranges[i];
		uint64_t before = base - range->base;

		if (before < range->bytes) {
			cut(hosts, i, base, min_u64(bytes, range->bytes - before));
			return;
		}
	}
}

void hosts_done(struct hosts *hosts)
{
	free(hosts->ranges);
	*hosts = (struct hosts){0};
}

static bool range_has(const struct host_range *range, uint64_t address)
{
	return address - range->base < range->bytes;
}

bool hosts_have(struct hosts *hosts, uint64_t address)
{
	if (hosts->last < hosts->n && range_has(&hosts->ranges[hosts->last], address))
		return true;
	for (uint32_t i = 0; i < hosts->n; i++) {
		if (range_has(&hosts->ranges[i], address)) {
			hosts->last = i;
			return true;
		}
	}
	return false;
}
