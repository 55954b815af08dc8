/*
 * ranks.h - from a list of addresses to an exchange between processes, of one host or of several.
 *
 * Every rank listens at its own address, calls those below it and is called by those above. Both
 * ends say who they are; whoever says anything else is hung up on. What may reach the addresses is
 * trusted: they belong on a network, or in a folder, of the ranks' own.
 */
#ifndef COPPICE_GROUP_RANKS_H
#define COPPICE_GROUP_RANKS_H

#include "proto/must_check.h"
#include "exchange.h"

struct ranks_config {
	const char *const *
		/* [n_ranks]: path of a socket (with a slash), or numeric host:port, [host]:port */
		addresses;
	uint32_t rank, n_ranks; /* this one's, of all */
	uint32_t timeout_ms; /* until all have come; and of the exchange's each round */
};

/* Is it a path, or a numeric host:port? */
bool ranks_is_address(const char *text);

/* Blocks until all ranks are joined, no longer than timeout_ms. Ranks may start in any order; one
 * that goes before all have come is awaited once more. 0; -ETIMEDOUT, -EINVAL (no such address),
 * -EADDRINUSE and other errors of bind, with a sentence in error. */
MUST_CHECK int ranks_connect(const struct ranks_config *config, struct exchange **ret, char *error,
			     size_t error_bytes);

#endif
