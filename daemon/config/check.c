/*
 * check.c - keys against each other.
 *
 * Sizes in errors are in the unit in which they were typed: who wrote 64M is not told of 67108864.
 */
#include "check.h"

#include "daemon/base/log.h"
#include "proto/arith.h"
#include "proto/size_text.h"
#include "lists.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EXTENT_GRAIN_BYTES (UINT64_C(2) << 20)

static struct size_text typed(const struct value_target *target, const char *key, uint64_t bytes)
{
	return size_text(bytes, value_unit(target, key));
}

/* The devices decide what computes; an extent is as large on each. */
static int devices_check(struct config *config)
{
	bool cpu = false;

	config->n_devices = 1;
	if (config->devices[0] && list_devices(config->devices, &config->n_devices, &cpu) < 0)
		return -EINVAL;
	if (config->devices[0] && config->device[0]) {
		log_error("devices and device are both there; accepted: one of them");
		return -EINVAL;
	}
	if (config->devices[0] && !strcmp(config->backend, cpu ? "cuda" : "cpu")) {
		log_error("devices: \"%s\" is not accepted with backend = %s; accepted: devices of "
			  "that kind",
			  config->devices, config->backend);
		return -EINVAL;
	}
	if (config->devices[0])
		strcpy(config->backend, cpu ? "cpu" : "cuda");
	if (config->devices[0] && config->n_devices == 1 && !cpu)
		snprintf(config->device, sizeof(config->device), "%.63s", config->devices);
	config->extent_bytes *= config->n_devices;
	return 0;
}

static int ranks_check(struct config *config)
{
	config->n_ranks = 1;
	if (config->ranks[0] && list_ranks(config->ranks, &config->n_ranks) < 0)
		return -EINVAL;
	if (config->rank < config->n_ranks)
		return 0;
	log_error("rank: %u is not accepted; accepted: a number below %u, as many as ranks has "
		  "addresses",
		  config->rank, config->n_ranks);
	return -EINVAL;
}

static int pool_check(const struct value_target *target)
{
	struct config *config = target->config;

	if (config->page_tokens & (config->page_tokens - 1)) {
		log_error("page_tokens: %u is not accepted; accepted: 16, 32, 64",
			  config->page_tokens);
		return -EINVAL;
	}
	if (config->extent_bytes % EXTENT_GRAIN_BYTES) {
		log_error("extent: %s is not accepted; accepted: multiples of 2M",
			  typed(target, "extent", config->extent_bytes).text);
		return -EINVAL;
	}
	if (devices_check(config) < 0)
		return -EINVAL;
	if (config->pool_bytes == 0)
		return 0; /* backends_open knows */
	if (config->pool_bytes < config->extent_bytes ||
	    config->pool_bytes / config->extent_bytes > UINT32_MAX) {
		log_error("pool: %s is not accepted; accepted: one extent (%s on all devices "
			  "together) or more",
			  typed(target, "pool", config->pool_bytes).text,
			  typed(target, "extent", config->extent_bytes).text);
		return -EINVAL;
	}
	strcpy(config->pool_text, typed(target, "pool", config->pool_bytes).text);
	config->pool_bytes -= config->pool_bytes % config->extent_bytes;
	return 0;
}

/* In whole extents, of which the pool has more. */
static int stage_check(const struct value_target *target)
{
	struct config *config = target->config;
	uint64_t n = ceil_div_u64(config->stage_bytes, config->extent_bytes);

	if (config->stage_bytes && !config->host_tier_bytes) {
		log_error("stage: it needs host_tier: KV comes from there");
		return -EINVAL;
	}
	if (config->pool_bytes && n >= config->pool_bytes / config->extent_bytes) {
		log_error("stage: %s is not accepted; accepted: less than the pool (%s), whose "
			  "part it is",
			  typed(target, "stage", config->stage_bytes).text,
			  typed(target, "pool", config->pool_bytes).text);
		return -EINVAL;
	}
	config->stage_bytes = n * config->extent_bytes;
	if (config->stage_block & (config->stage_block - 1)) {
		log_error("stage_block: %u is not accepted; accepted: a power of two",
			  config->stage_block);
		return -EINVAL;
	}
	return 0;
}

static int tiers_check(const struct value_target *target)
{
	struct config *config = target->config;

	config->host_tier_unit = value_unit(target, "host_tier");
	config->file_tier_unit = value_unit(target, "file_tier_bytes");
	if (config->file_tier[0] && !config->host_tier_bytes) {
		log_error("file_tier: it needs host_tier: KV goes to the file through host memory");
		return -EINVAL;
	}
	if (stage_check(target) < 0)
		return -EINVAL;
	if (config->host_tier_bytes && config->host_tier_bytes < config->extent_bytes) {
		log_error("host_tier: %s is not accepted; accepted: 0, or one extent (%s) or more",
			  typed(target, "host_tier", config->host_tier_bytes).text,
			  typed(target, "extent", config->extent_bytes).text);
		return -EINVAL;
	}
	return 0;
}

int check_whole(struct value_target *target)
{
	if (pool_check(target) < 0 || ranks_check(target->config) < 0 || tiers_check(target) < 0)
		return -EINVAL;
	return 0;
}
