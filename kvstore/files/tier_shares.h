/*
 * tier_shares.h - who takes how much of a tier file's journal.
 */
#ifndef COPPICE_KVSTORE_TIER_SHARES_H
#define COPPICE_KVSTORE_TIER_SHARES_H

#include "proto/must_check.h"

#include <stdint.h>

struct tier_share {
	uint64_t domain;
	uint64_t bytes; /* 0: the next new domain may have the entry */
};

struct tier_shares {
	struct tier_share *shares; /* owned */
	uint32_t n;
	uint64_t bytes; /* of all */
};

void tier_shares_done(struct tier_shares *t);
/* The domain has an entry, until another is asked for. -ENOMEM. */
MUST_CHECK int tier_shares_reserve(struct tier_shares *t, uint64_t domain);
/* Of a domain that has an entry. */
void tier_shares_add(struct tier_shares *t, uint64_t domain, uint64_t bytes);
void tier_shares_take(struct tier_shares *t, uint64_t domain, uint64_t bytes);
/* What the domain takes. */
uint64_t tier_shares_of(const struct tier_shares *t, uint64_t domain);
/* Who takes most; some domain where nobody takes anything. */
uint64_t tier_shares_most(const struct tier_shares *t);

#endif
