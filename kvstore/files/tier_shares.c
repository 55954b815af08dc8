/*
 * tier_shares.c - bytes of a journal by domain.
 *
 * A table of those who take any, looked through from the first on: domains are users, and those of
 * one machine are few. An entry without bytes is as good as none.
 */
#include "tier_shares.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

void tier_shares_done(struct tier_shares *t)
{
	free(t->shares);
	*t = (struct tier_shares){0};
}

static struct tier_share *share_find(const struct tier_shares *t, uint64_t domain)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->shares[i].domain == domain)
			return &t->shares[i];
	return NULL;
}

static struct tier_share *share_empty(const struct tier_shares *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->shares[i].bytes == 0)
			return &t->shares[i];
	return NULL;
}

int tier_shares_reserve(struct tier_shares *t, uint64_t domain)
{
	if (share_find(t, domain))
		return 0;
	struct tier_share *share = share_empty(t);
	if (!share) {
		struct tier_share *grown = realloc(t->shares, (t->n + 1) * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		t->shares = grown;
		share = &grown[t->n++];
	}
	*share = (struct tier_share){.domain = domain};
	return 0;
}

void tier_shares_add(struct tier_shares *t, uint64_t domain, uint64_t bytes)
{
	struct tier_share *share = share_find(t, domain);

	assert(share);
	share->bytes += bytes;
	t->bytes += bytes;
}

void tier_shares_take(struct tier_shares *t, uint64_t domain, uint64_t bytes)
{
	struct tier_share *share = share_find(t, domain);

	assert(share && share->bytes >= bytes);
	share->bytes -= bytes;
	t->bytes -= bytes;
}

uint64_t tier_shares_of(const struct tier_shares *t, uint64_t domain)
{
	const struct tier_share *share = share_find(t, domain);

	return share ? share->bytes : 0;
}

uint64_t tier_shares_most(const struct tier_shares *t)
{
	const struct tier_share *most = t->shares;

	for (uint32_t i = 1; i < t->n; i++)
		if (t->shares[i].bytes > most->bytes)
			most = &t->shares[i];
	return most ? most->domain : 0;
}
