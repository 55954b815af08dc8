/*
 * hosts.c - see hosts.h. There are few ranges, and what is asked for next is most often in the one
 * that was found last: it is looked at first.
 */
#include "hosts.h"

#include <errno.h>
#include <stdlib.h>

int hosts_add(struct hosts *hosts, uint64_t base, uint64_t bytes)
{
	struct host_range *ranges = realloc(hosts->ranges, (hosts->n + 1) * sizeof(*ranges));

	if (!ranges)
		return -ENOMEM;
	hosts->ranges = ranges;
	ranges[hosts->n++] = (struct host_range){base, bytes};
	return 0;
}

void hosts_drop(struct hosts *hosts, uint64_t base)
{
	for (uint32_t i = 0; i < hosts->n; i++) {
		if (hosts->ranges[i].base == base) {
			hosts->ranges[i] = hosts->ranges[--hosts->n];
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
