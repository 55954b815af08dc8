/* ranks.c - see ranks.h. */
#include "ranks.h"

#include "kv_split.h"
#include "kernels/group/ranks.h"
#include "daemon/base/log.h"
#include "daemon/server/signals.h"

#include <errno.h>
#include <string.h>

/* What all must have alike. */
enum agreed { AGREED_PAGE_TOKENS, AGREED_DEVICES, AGREED_EXTENT_MIB, AGREED_POOL_MIB, AGREED_N };

static const char *const agreed_names[] = {"page_tokens", "devices", "extent (MiB)", "pool (MiB)"};

int joined_parse(const char *text, uint32_t *ret_n)
{
	char copy[sizeof(((struct config *)0)->ranks)];
	const char *addresses[EXCHANGE_RANKS_MAX];
	int n = list_split(text, copy, addresses, EXCHANGE_RANKS_MAX);

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		if (!ranks_is_address(addresses[i]))
			return -EINVAL;
		for (int j = 0; j < i; j++) {
			if (strcmp(addresses[i], addresses[j]) == 0)
				return -EINVAL;
		}
	}
	*ret_n = (uint32_t)n;
	return 0;
}

static int compare(const struct config *config, struct exchange *x)
{
	const uint64_t mine[AGREED_N] = {
		[AGREED_PAGE_TOKENS] = config->page_tokens,
		[AGREED_DEVICES] = config->n_devices,
		[AGREED_EXTENT_MIB] = config->extent_bytes >> 20,
		[AGREED_POOL_MIB] = config->pool_bytes >> 20,
	};
	uint64_t all[EXCHANGE_RANKS_MAX][AGREED_N];
	int r = exchange_tell(x, mine, sizeof(mine), all);

	if (r < 0) {
		log_error("ranks: %s", x->error);
		return r;
	}
	for (uint32_t i = 0; i < x->n_ranks * AGREED_N; i++) {
		uint64_t theirs = all[i / AGREED_N][i % AGREED_N];

		if (theirs == mine[i % AGREED_N])
			continue;
		log_error("ranks: rank %u has %llu for %s, this one, rank %u, has %llu: all have "
			  "the same",
			  i / AGREED_N, (unsigned long long)theirs, agreed_names[i % AGREED_N],
			  x->rank, (unsigned long long)mine[i % AGREED_N]);
		return -EINVAL;
	}
	return 0;
}

static int meet(const struct config *config, struct exchange **ret)
{
	char copy[sizeof(config->ranks)], error[256] = "";
	const char *addresses[EXCHANGE_RANKS_MAX];
	struct ranks_config ranks = {.addresses = addresses,
				     .rank = config->rank,
				     .n_ranks = config->n_ranks,
				     .timeout_ms = config->ranks_timeout_ms};
	struct exchange *x;

	list_split(config->ranks, copy, addresses, EXCHANGE_RANKS_MAX);
	log_info("rank %u of %u: waiting for the others", config->rank, config->n_ranks);
	int r = ranks_connect(&ranks, &x, error, sizeof(error));

	if (r < 0) {
		log_error("ranks: %s", error);
		return r;
	}
	r = compare(config, x);
	if (r < 0) {
		exchange_free(x);
		return r;
	}
	log_info("rank %u of %u: all have joined", config->rank, config->n_ranks);
	*ret = x;
	return 0;
}

int joined_open(const struct config *config, struct exchange **ret)
{
	*ret = NULL;
	if (!config->ranks[0])
		return 0;
	signals_end(true);
	int r = meet(config, ret);

	signals_end(false);
	return r;
}
