/*
 * validate_domain.h - the part of store_validate that is about what a domain is charged beside
 * pages.
 */
#ifndef COPPICE_KVSTORE_VALIDATE_DOMAIN_H
#define COPPICE_KVSTORE_VALIDATE_DOMAIN_H

#include "note.h"

/* Ids of its prompts, and what its pins keep. */
MUST_CHECK int validate_domain(struct validate *v, const struct store_domain *d);

#endif
