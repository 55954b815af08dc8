/*
 * reserve.h - of what all users share, the last part is for those who have little of it.
 *
 * There is a limit for all and one for each user. Of the last tenth of what all may have a user
 * gets no more than he leaves: so whoever comes finds half of what the one before him found. Where
 * one user may have all, there is no such part. Whom it does not bind the caller knows.
 */
#ifndef COPPICE_KVSTORE_RESERVE_H
#define COPPICE_KVSTORE_RESERVE_H

#include "proto/arith.h"

#include <stdbool.h>
#include <stdint.h>

#define RESERVE_PART 10u

/* The last part, of what all and a user may have. */
static inline uint64_t reserve_of(uint64_t most, uint64_t domain_most)
{
	return domain_most < most ? most / RESERVE_PART : 0;
}

/* How much more somebody may take who has own, of what is left, the last part of it reserved. */
static inline uint64_t reserve_room(uint64_t reserved, uint64_t own, uint64_t left)
{
	uint64_t shared = left > own ? (left - own) / 2 : 0;
	uint64_t first = left > reserved ? left - reserved : 0;

	return max_u64(first, shared);
}

/* The same of what there is little of: may somebody who has n_own take one more? The last of n_most
 * at least are reserved, and who has none takes the last. */
static inline bool reserve_has_one(uint64_t n_most, uint64_t n_domain_most, uint64_t n_own,
				   uint64_t n_left)
{
	uint64_t n_reserved = n_domain_most < n_most ? ceil_div_u64(n_most, RESERVE_PART) : 0;

	return n_left > n_reserved || n_left > n_own;
}

#endif
