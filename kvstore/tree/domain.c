/*
 * domain.c - domains by id.
 *
 * A domain lives as long as it holds something of a model, or a place below the device. What it is
 * charged is counted by pages.c and places.c; here it is only found, made and freed.
 */
#include "domain.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int domain_new(struct store *s, uint64_t id, struct store_domain **ret)
{
	struct store_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->id = id;
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
