/*
 * domain.h - domains: who is charged, for pages of the pool and for places below it.
 */
#ifndef COPPICE_KVSTORE_DOMAIN_H
#define COPPICE_KVSTORE_DOMAIN_H

#include "core.h"

/* Finds or makes. Whoever gets it puts something in or calls domain_prune. -ENOMEM. */
MUST_CHECK int domain_get(struct store *s, uint64_t id, struct store_domain **ret);
/* Frees the domain if it holds nothing any more. */
void domain_prune(struct store *s, struct store_domain *d);

#endif
