/*
 * stripe.h - which device a new page of a striped model goes to.
 *
 *      path       [0][1][2][3][2][0][1][3] ...
 *
 * Every first part of a path has nearly as many tokens on each device.
 *
 * A page goes to a device on which the path has no more than a run above its least, and of these to
 * the one with least in use altogether: so paths are even, and so are leaves that hang from one
 * node. A draft is on one device, as tokens that are accepted move within it. Where a namespace
 * has a home, all of its pages are there.
 */
#ifndef COPPICE_KVSTORE_STRIPE_H
#define COPPICE_KVSTORE_STRIPE_H

#include "kvstore/tree/core.h"

struct stripe {
	const struct store_model *model;
	const struct store_namespace *namespace;
	uint64_t tokens[PAGES_DEVICES_MAX]; /* of the path */
	uint64_t bytes[PAGES_DEVICES_MAX]; /* in use, these pages included */
};

/* The path's first n_path tokens, which end in the node; those of them that are in the pool. */
void stripe_begin(struct stripe *s, const struct store_node *n, uint32_t n_path);
/* So many tokens more in a page that the path has. */
void stripe_go_on(struct stripe *s, uint32_t page, uint32_t n_tokens);
/* May the device have so many tokens more? */
bool stripe_allows(const struct stripe *s, uint32_t device, uint32_t n_tokens);
/* The device for a new page that may come to hold room tokens, and holds n_tokens now. */
uint32_t stripe_choose(struct stripe *s, uint32_t room, uint32_t n_tokens);
/* The device for a slice of the node, of this index, that comes from a lower tier: many come at
 * once, they go round. */
uint32_t stripe_round(const struct store_node *n, uint32_t index);

#endif
