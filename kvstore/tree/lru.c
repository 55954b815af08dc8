/*
 * lru.c - a list a holding and tier, in the order in which nodes fell idle.
 *
 * Stamps never fall along a list, so that the oldest of several lists is the one of their first
 * entries with the least stamp. Who joins beside another node takes that one's stamp.
 */
#include "lru.h"

bool lru_has(const struct store_node *n, enum store_tier tier)
{
	if (tier == STORE_DEVICE)
		return n->listed;
	return n->residency && n->residency->listed[tier];
}

uint64_t lru_stamp(const struct store_node *n, enum store_tier tier)
{
	return tier == STORE_DEVICE ? n->stamp : n->residency->stamps[tier];
}

static inline void list_note(struct store_node *n, enum store_tier tier, bool listed,
			     uint64_t stamp)
{
	if (tier == STORE_DEVICE) {
		n->listed = listed;
		n->stamp = stamp;
		return;
	}
	n->residency->listed[tier] = listed;
	n->residency->stamps[tier] = stamp;
}

/* Nodes that are gone may be written to here: their memory stays, and nobody reads it. */
static void node_announce(struct store_holding *h, struct store_node *n)
{
	struct store_node **last = &h->last_listed[h->n_listed++ % HOLDING_AHEAD];

	if (*last)
		(*last)->ahead = n;
	*last = n;
}

static inline void list_append(struct store_node *n, enum store_tier tier)
{
	struct store_holding *h = n->namespace->holding;

	list_note(n, tier, true, ++node_store(n)->stamp);
	if (tier == STORE_DEVICE) {
		TAILQ_INSERT_TAIL(&h->lru[tier], n, lru);
		node_announce(h, n);
	} else {
		TAILQ_INSERT_TAIL(&h->lru[tier], n, residency->lru[tier]);
	}
}

static inline void list_before(struct store_node *n, struct store_node *at, enum store_tier tier)
{
	list_note(n, tier, true, lru_stamp(at, tier));
	if (tier == STORE_DEVICE)
		TAILQ_INSERT_BEFORE(at, n, lru);
	else
		TAILQ_INSERT_BEFORE(at, n, residency->lru[tier]);
}

static inline void list_after(struct store_node *n, struct store_node *at, enum store_tier tier)
{
	struct store_holding *h = n->namespace->holding;

	list_note(n, tier, true, lru_stamp(at, tier));
	if (tier == STORE_DEVICE)
		TAILQ_INSERT_AFTER(&h->lru[tier], at, n, lru);
	else
		TAILQ_INSERT_AFTER(&h->lru[tier], at, n, residency->lru[tier]);
}

static inline void list_remove(struct store_node *n, enum store_tier tier)
{
	struct store_holding *h = n->namespace->holding;

	if (tier == STORE_DEVICE)
		TAILQ_REMOVE(&h->lru[tier], n, lru);
	else
		TAILQ_REMOVE(&h->lru[tier], n, residency->lru[tier]);
	list_note(n, tier, false, lru_stamp(n, tier));
}

static inline void join(struct store_node *n, enum store_tier tier)
{
	if (lru_has(n->parent, tier))
		list_before(n, n->parent, tier);
	else
		list_append(n, tier);
	if (tier == STORE_DEVICE)
		n->namespace->holding->n_idle_slices += node_n_device(n);
}

static inline void leave(struct store_node *n, enum store_tier tier)
{
	list_remove(n, tier);
	if (tier == STORE_DEVICE)
		n->namespace->holding->n_idle_slices -= node_n_device(n);
}

void lru_update(struct store_node *n)
{
	if (n->n_users > 0 || !n->parent)
		return;
	if (!n->residency) { /* the most frequent case by far */
		if (!n->listed && n->n_slices > 0)
			join(n, STORE_DEVICE);
		return;
	}
	for (enum store_tier tier = STORE_DEVICE; tier < STORE_TIERS; tier++) {
		bool due = node_n_in(n, tier) > 0;
		if (due && !lru_has(n, tier))
			join(n, tier);
		else if (!due && lru_has(n, tier))
			leave(n, tier);
	}
}

void lru_leave(struct store_node *n)
{
	if (n->listed)
		leave(n, STORE_DEVICE);
	for (enum store_tier tier = STORE_HOST; n->residency && tier < STORE_TIERS; tier++)
		if (lru_has(n, tier))
			leave(n, tier);
}

void lru_split(struct store_node *n, struct store_node *upper)
{
	enum store_tier n_tiers = n->residency ? STORE_TIERS : STORE_HOST;

	for (enum store_tier tier = STORE_DEVICE; tier < n_tiers; tier++) {
		if (!lru_has(n, tier))
			continue;
		if (node_n_in(upper, tier) > 0)
			list_after(upper, n, tier);
		if (node_n_in(n, tier) == 0)
			list_remove(n, tier);
	}
}

void lru_collapse(struct store_node *n, struct store_node *child)
{
	enum store_tier n_tiers = child->residency ? STORE_TIERS : STORE_HOST;

	for (enum store_tier tier = STORE_DEVICE; tier < n_tiers; tier++) {
		if (!lru_has(child, tier))
			continue;
		if (!lru_has(n, tier))
			list_before(n, child, tier);
		list_remove(child, tier);
	}
}

static struct store_node *older(struct store_node *best, const struct store_holding *h,
				enum store_tier tier)
{
	struct store_node *n = TAILQ_FIRST(&h->lru[tier]);

	return n && (!best || lru_stamp(n, tier) < lru_stamp(best, tier)) ? n : best;
}

struct store_node *lru_oldest_of_domain(const struct store_domain *d, enum store_tier tier)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &d->holdings, of_domain)
		best = older(best, h, tier);
	return best;
}

struct store_node *lru_oldest_of_model(const struct store_model *m, enum store_tier tier)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &m->holdings, of_model)
		best = older(best, h, tier);
	return best;
}

struct store_node *lru_oldest(const struct store *s, enum store_tier tier)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &s->all_holdings, all)
		best = older(best, h, tier);
	return best;
}

struct store_node *lru_oldest_beyond(const struct store *s, enum store_tier tier)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	if (s->places.n_over[tier] == 0)
		return NULL;
	LIST_FOREACH (h, &s->all_holdings, all)
		if (h->domain->tier_units[tier] > h->domain->max_units[tier])
			best = older(best, h, tier);
	return best;
}
