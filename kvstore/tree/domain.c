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

int domain_get(struct store *s, uint64_t id, struct store_domain **ret)
{
	uint64_t hash = index_hash(s->seed, id, 0);

	for (struct index_link *l = index_find(&s->domains, hash); l; l = index_find_next(l)) {
		*ret = INDEX_ENTRY(l, struct store_domain, link);
		if ((*ret)->id == id)
			return 0;
	}
	struct store_domain *d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->id = id;
	index_insert(&s->domains, &d->link, hash);
	*ret = d;
	return 0;
}

void domain_prune(struct store *s, struct store_domain *d)
{
	if (!LIST_EMPTY(&d->holdings) || d->tier_units[STORE_HOST] > 0 ||
	    d->tier_units[STORE_FILE] > 0)
		return;
	assert(d->pages.bytes == 0 && d->pages.n_extents == 0);
	index_remove(&s->domains, &d->link);
	free(d);
}
