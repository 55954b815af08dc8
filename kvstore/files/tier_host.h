/*
 * tier_host.h - the host tier: memory that the caller allocates, cut into places for pages.
 *
 * Whether the memory is pinned is the allocator's matter. One thread.
 */
#ifndef COPPICE_KVSTORE_TIER_HOST_H
#define COPPICE_KVSTORE_TIER_HOST_H

#include "tier_room.h"

#include <stddef.h>

/* Where the memory comes from. alloc: NULL where it cannot be had (or not be pinned); aligned to 4
 * KiB. Direct I/O goes there: ordinary pages that are pinned afterwards, not a driver's own
 * mapping. */
struct tier_memory {
	void *ctx; /* borrowed */
	void *(*alloc)(void *ctx, size_t bytes);
	void (*free)(void *ctx, void *memory, size_t bytes);
};

struct tier_host_config {
	struct tier_memory memory;
	uint64_t bytes; /* rounded down to whole chunks */
	char typed_in; /* the unit in which people said so (size_text), for errors; 0: none */
	uint32_t unit_bytes; /* a multiple of 4 KiB; the same as the file's where there is one */
	uint32_t chunk_units; /* units of the largest page at least */
};

struct tier_host {
	struct tier_memory memory;
	struct tier_room room;
	uint32_t unit_bytes;
	char *base; /* owned */
	size_t bytes;
	bool *filling; /* owned: [place] a copy into it is under way */
};

/* 0, or -EINVAL, -EFBIG, -ENOMEM with a sentence in error. */
MUST_CHECK int tier_host_new(const struct tier_host_config *config, struct tier_host **ret,
			     char *error, size_t error_bytes);
void tier_host_free(struct tier_host *host); /* NULL is fine */

static inline void *tier_host_at(const struct tier_host *host, uint32_t place)
{
	return host->base + (size_t)place * host->unit_bytes;
}

#endif
