/*
 * domain.c - domains by id.
 *
 * A domain lives as long as it holds something of a model, or a place below the device. What it is
 * charged is counted by pages.c and places.c; here it is found, made with its limits, and freed.
 */
#include "domain.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t max_bytes_of(const struct store_config *config, uint64_t id)
{
	return domain_is_owners(config, id) ? config->owner_bytes : config->domain_bytes;
}

static uint32_t extents_of(const struct store_config *config, uint64_t bytes)
{
	uint64_t n = ceil_div_u64(bytes, config->extent_bytes);

	return (uint32_t)min_u64(n, UINT32_MAX);
}

int domain_new(struct store *s, uint64_t id, struct store_domain **ret)
{
	struct store_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->id = id;
	d->pages.max_bytes = max_bytes_of(&s->config, id);
	d->pages.max_extents = extents_of(&s->config, d->pages.max_bytes);
	memcpy(d->max_units,
	       domain_is_owners(&s->config, id) ? s->places.owner_units : s->places.domain_units,
	       sizeof(d->max_units));
	memcpy(d->most_units, d->max_units, sizeof(d->most_units));
	index_insert(&s->domains, &d->link, domain_hash(s, id));
	*ret = d;
	return 0;
}

void domain_prune(struct store *s, struct store_domain *d)
{
	if (!LIST_EMPTY(&d->holdings) || d->tier_units[STORE_HOST] > 0 ||
	    d->tier_units[STORE_FILE] > 0)
		return;
	assert(d->pinned_bytes == 0 && d->pages.bytes == 0 && d->pages.n_extents == 0 &&
	       d->prompt_bytes == 0);
	index_remove(&s->domains, &d->link);
	free(d);
}
