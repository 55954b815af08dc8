/*
 * ranks.c - the rendezvous before the daemon serves: connect all, then compare.
 *
 * What must be alike is told by each to all, so that every daemon finds the same difference and
 * none serves while another gives up.
 */
#include "ranks.h"

#include "daemon/base/log.h"
#include "daemon/base/threads.h"
#include "daemon/config/lists.h"
#include "kernels/group/ranks.h"

#include <assert.h>
#include <errno.h>

/* What all must have alike. */
enum agreed { AGREED_PAGE_TOKENS, AGREED_DEVICES, AGREED_EXTENT_MIB, AGREED_POOL_MIB, AGREED_N };

static const char *const agreed_names[] = {"page_tokens", "devices", "extent (MiB)", "pool (MiB)"};

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
	int n = list_items(config->ranks, copy, addresses, EXCHANGE_RANKS_MAX);

	assert(n == (int)config->n_ranks); /* config/check.c counted them */
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

int ranks_open(const struct config *config, struct exchange **ret)
{
	*ret = NULL;
	if (!config->ranks[0])
		return 0;
	threads_let_end(true);
	int r = meet(config, ret);

	threads_let_end(false);
	return r;
}
