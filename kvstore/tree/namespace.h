/*
 * namespace.h - where trees live: models, what domains hold of them (holdings), and in there the
 * namespaces, one a salt, with a tree each.
 *
 * Everything but an open model is made when first needed and goes when nothing is in it any more.
 */
#ifndef COPPICE_KVSTORE_NAMESPACE_H
#define COPPICE_KVSTORE_NAMESPACE_H

#include "core.h"

/* Finds or makes. Whoever gets it puts a user on its root or calls namespace_prune. -ENOMEM. */
MUST_CHECK int namespace_get(struct store_model *m, uint64_t domain, uint64_t salt,
			     struct store_namespace **ret);
/* It is empty and unused: frees it, and then what is empty above it. */
void namespace_free(struct store_namespace *namespace);
/* The same if it is. */
static inline void namespace_prune(struct store_namespace *namespace)
{
	if (namespace->root->n_users == 0 && LIST_EMPTY(&namespace->root->children))
		namespace_free(namespace);
}
/* Free what is empty, holds no places and no moves, and then what is empty above it. */
void holding_prune(struct store_holding *h);
void model_free(struct store_model *m);

#endif
