/*
 * tier_host.c - the memory of the host tier: asked for, cut up, given back.
 *
 * The memory is one piece, aligned to a page of the system, so that reads and writes of the file
 * may go there directly. It is got in whole chunks; what does not make one is not asked for.
 */
#include "tier_host.h"

#include "proto/size_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGNMENT 4096u

static int host_fail(struct tier_host *host, const struct tier_host_config *config, int r,
		     char *error, size_t error_bytes)
{
	const struct size_text bytes = size_text(config->bytes, config->typed_in);
	const struct size_text unit = size_text(config->unit_bytes, 0);

	if (r == -EINVAL)
		snprintf(error, error_bytes,
			 "host tier: %s in units of %s: it needs whole units of 4K, and one chunk "
			 "of them at least",
			 bytes.text, unit.text);
	else if (r == -EFBIG)
		snprintf(error, error_bytes,
			 "host tier: %s is too much: fewer than %lu units of %s", bytes.text,
			 (unsigned long)TIER_NONE, unit.text);
	else
		snprintf(error, error_bytes,
			 "host tier: %s of host memory cannot be had or not be pinned", bytes.text);
	tier_host_free(host);
	return r;
}

int tier_host_new(const struct tier_host_config *config, struct tier_host **ret, char *error,
		  size_t error_bytes)
{
	struct tier_host *host = calloc(1, sizeof(*host));
	int r = host ? 0 : -ENOMEM;

	if (r) {
		snprintf(error, error_bytes, "host tier: no memory");
		return r;
	}
	host->memory = config->memory;
	host->unit_bytes = config->unit_bytes;
	if (config->unit_bytes == 0 || config->unit_bytes % ALIGNMENT)
		return host_fail(host, config, -EINVAL, error, error_bytes);
	r = tier_room_init(&host->room, config->bytes / config->unit_bytes, config->chunk_units);
	if (r)
		return host_fail(host, config, r, error, error_bytes);
	uint64_t n_units = (uint64_t)host->room.n_chunks * config->chunk_units;
	host->bytes = n_units * host->unit_bytes;
	host->filling = calloc(n_units, sizeof(*host->filling));
	host->base = config->memory.alloc(config->memory.ctx, host->bytes);
	if (!host->base || !host->filling)
		return host_fail(host, config, -ENOMEM, error, error_bytes);
	*ret = host;
	return 0;
}

void tier_host_free(struct tier_host *host)
{
	if (!host)
		return;
	if (host->base)
		host->memory.free(host->memory.ctx, host->base, host->bytes);
	free(host->filling);
	tier_room_done(&host->room);
	free(host);
}
