/*
 * share.c - how much of what there is for weights a user may have.
 *
 * There is a limit for all and one for each user, and the last tenth is shared (reserve.h). What
 * nobody refers to counts for neither, as it goes for whoever comes; taken up again it counts as
 * what is loaded does.
 */
#include "share.h"

#include "daemon/base/uid.h"

#include "kvstore/base/reserve.h"

#include <errno.h>

static const struct weights_max *max_of(const struct weights_table *table, enum weights_kind kind)
{
	return kind == WEIGHTS_MEMORY ? &table->config.memory : &table->config.names;
}

static uint64_t has(const struct weights *weights, enum weights_kind kind)
{
	return kind == WEIGHTS_MEMORY ? weights->content.bytes + weights->scratch_bytes
				      : weights->content.names_bytes;
}

uint64_t share_booked(const struct weights_table *table, enum weights_kind kind,
		      const uid_t *domain)
{
	const struct weights *weights;
	uint64_t bytes = 0;

	TAILQ_FOREACH (weights, &table->all, link)
		if (!domain || weights->domain == *domain)
			bytes += has(weights, kind);
	return bytes;
}

/* The same of what somebody refers to. */
static uint64_t used(const struct weights_table *table, enum weights_kind kind, const uid_t *domain)
{
	const struct weights *weights;
	uint64_t bytes = 0;

	TAILQ_FOREACH (weights, &table->all, link)
		if (weights->n_refs > 0 && (!domain || weights->domain == *domain))
			bytes += has(weights, kind);
	return bytes;
}

static bool exceeds(uint64_t has_bytes, uint64_t bytes, uint64_t most)
{
	return bytes > most || has_bytes > most - bytes;
}

bool share_is_beyond(const struct weights_table *table, enum weights_kind kind, const uid_t *domain,
		     uint64_t bytes)
{
	const struct weights_max *max = max_of(table, kind);

	return exceeds(share_booked(table, kind, domain), bytes,
		       domain ? max->domain_bytes : max->bytes);
}

uint64_t share_reserved_bytes(const struct weights_max *max)
{
	return reserve_of(max->bytes, max->domain_bytes);
}

/* With so many more in use, which are within the limit of all: would the user have more of the last
 * than he leaves? */
static bool is_others(const struct weights_table *table, enum weights_kind kind, uid_t domain,
		      uint64_t bytes)
{
	const struct weights_max *max = max_of(table, kind);
	uint64_t all = used(table, kind, NULL);

	return !uid_is_privileged(domain) && !exceeds(all, bytes, max->bytes) &&
	       bytes > reserve_room(share_reserved_bytes(max), used(table, kind, &domain),
				    max->bytes - all);
}

int share_check(const struct weights_table *table, enum weights_kind kind, uid_t domain,
		uint64_t bytes)
{
	const struct weights_max *max = max_of(table, kind);

	if (exceeds(used(table, kind, &domain), bytes, max->domain_bytes))
		return -EDQUOT;
	if (exceeds(used(table, kind, NULL), bytes, max->bytes))
		return -ENOSPC;
	return is_others(table, kind, domain, bytes) ? -EUSERS : 0;
}

bool share_may_be_used(const struct weights *weights)
{
	const struct weights_table *table = weights->home;
	uid_t domain = weights->domain;

	return weights->n_refs > 0 ||
	       (!is_others(table, WEIGHTS_MEMORY, domain, has(weights, WEIGHTS_MEMORY)) &&
		!is_others(table, WEIGHTS_NAMES, domain, has(weights, WEIGHTS_NAMES)));
}
