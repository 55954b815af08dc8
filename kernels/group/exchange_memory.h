/* exchange_memory.h - ranks that are threads of one process: each reads the others' partials where
 * they lie. */
#ifndef COPPICE_GROUP_EXCHANGE_MEMORY_H
#define COPPICE_GROUP_EXCHANGE_MEMORY_H

#include "proto/must_check.h"
#include "exchange.h"

/* Fills ret_ends[n_ranks], owned by the caller; each may be used by another thread. 0, -EINVAL (too
 * many ranks, or none) or -ENOMEM. */
MUST_CHECK int exchange_memory_new(uint32_t n_ranks, uint32_t timeout_ms,
				   struct exchange **ret_ends);

#endif
