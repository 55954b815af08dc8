/*
 * domain.h - domains: who is charged, for pages of the pool and for places below it.
 */
#ifndef COPPICE_KVSTORE_DOMAIN_H
#define COPPICE_KVSTORE_DOMAIN_H

#include "core.h"

static inline uint64_t domain_hash(const struct store *s, uint64_t id)
{
	return index_hash(s->seed, id, 0);
}

/* Whose store it is: they are not bound by what users leave to each other. */
static inline bool domain_is_owners(const struct store_config *config, uint64_t id)
{
	return id == 0 || id == config->owner;
}

/* NULL: there is none. */
static inline struct store_domain *domain_find(const struct store *s, uint64_t id)
{
	for (struct index_link *l = index_find(&s->domains, domain_hash(s, id)); l;
	     l = index_find_next(l)) {
		struct store_domain *d = INDEX_ENTRY(l, struct store_domain, link);
		if (d->id == id)
			return d;
	}
	return NULL;
}

/* One that there is not. Whoever makes it puts something in or calls domain_prune. -ENOMEM. */
MUST_CHECK int domain_new(struct store *s, uint64_t id, struct store_domain **ret);
/* Frees the domain if it holds nothing any more. */
void domain_prune(struct store *s, struct store_domain *d);

#endif
