/*
 * namespace.h - where trees live: models, domains, what domains hold of models, and the spaces in
 * there.
 *
 * Everything but an open model is made when first needed and goes when nothing is in it any more.
 */
#ifndef COPPICE_KVSTORE_SPACE_H
#define COPPICE_KVSTORE_SPACE_H

#include "core.h"

/* Finds or makes. Whoever gets it puts a user on its root or calls space_settle. -ENOMEM. */
int space_get(struct store_model *m, uint64_t domain, uint64_t salt, struct store_space **ret);
/* Frees the space if it is empty and unused, and then what is empty above it. */
void space_settle(struct store_space *space);
/* Free what is empty, holds no places and no moves, and then what is empty above it. */
void holding_settle(struct store_holding *h);
void domain_settle(struct store *s, struct store_domain *d);
void model_free(struct store_model *m);

#endif
