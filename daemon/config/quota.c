/*
 * quota.c - limits of a user that follow from several keys.
 *
 * The store keeps to them: it counts what each user holds, and refuses (pages.c, places.c, pin.c).
 */
#include "quota.h"

#include "proto/arith.h"

#define RESERVED_LEAST 2u /* extents, of a pool of twice as many: one for each of two more users */

static uint64_t n_extents(const struct config *config)
{
	return (config->pool_bytes - config->stage_bytes) / config->extent_bytes;
}

/* Whole extents: a part of one would keep it from others. */
static uint64_t percent_extents(const struct config *config)
{
	uint64_t n = n_extents(config) * config->domain_percent / 100;

	return n > 0 ? n : 1;
}

uint64_t quota_domain_bytes(const struct config *config, bool privileged)
{
	uint64_t bytes = config->domain_bytes,
		 most = percent_extents(config) * config->extent_bytes;

	if (privileged || config->domain_percent == 100)
		return bytes;
	return bytes > 0 && bytes < most ? bytes : most;
}

uint32_t quota_reserved_extents(const struct config *config)
{
	uint64_t n = n_extents(config), left = n - percent_extents(config);

	if (config->domain_percent == 100)
		return 0;
	return (uint32_t)(left < RESERVED_LEAST && n >= 2 * RESERVED_LEAST ? RESERVED_LEAST : left);
}

/* Of a tier, where so much of it is not for sharing. No page is larger than an extent. */
static uint64_t tier_share(uint64_t key_bytes, uint64_t bytes, uint64_t kept_bytes,
			   uint64_t extent_bytes)
{
	uint64_t share = (bytes - kept_bytes) / 4 * 3;

	if (share < extent_bytes)
		share = extent_bytes;
	if (key_bytes)
		share = key_bytes;
	return min_u64(share, bytes);
}

/* As kvstore/tree/places.c keeps for the largest pages. */
uint64_t quota_host_share(const struct config *config, uint64_t bytes, bool has_file)
{
	uint64_t kept = config->tier_depth * config->extent_bytes;

	if (kept > bytes / 4)
		kept = bytes / 4;
	return tier_share(config->domain_host_bytes, bytes, has_file ? kept : 0,
			  config->extent_bytes);
}

uint64_t quota_file_share(const struct config *config, uint64_t bytes)
{
	return tier_share(config->domain_file_bytes, bytes, 0, config->extent_bytes);
}

uint64_t quota_pin_bytes(const struct config *config)
{
	uint64_t pool_bytes = config->pool_bytes - config->stage_bytes;

	return config->domain_pin_percent < 100 ? pool_bytes / 100 * config->domain_pin_percent : 0;
}
