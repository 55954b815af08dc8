/*
 * evict.c - victims and room; see evict.h.
 *
 * The first entry of an LRU list is a leaf, as children stand before parents; lists are compared by
 * the stamps of their first entries. What will be read of the next entries is prefetched: in a big
 * store each is half a dozen cache misses, one after the other.
 */
#include "evict.h"

#include "kvstore/base/prefetch.h"
#include "kvstore/tree/lru.h"
#include "kvstore/tree/radix.h"
#include "kvstore/tree/namespace.h"
#include "demote.h"
#include "kvstore/tree/places.h"
#include "proto/arith.h"

#include <errno.h>
#include <string.h>

#define HOME_LOOKS 64u /* for a victim at home on the right device */

static struct store_node *oldest_of_name(const struct store *s, const char *name)
{
	struct store_node *best = NULL;
	const struct store_model *m;

	LIST_FOREACH (m, &s->all_models, all) {
		struct store_node *n =
			strcmp(m->name, name) ? NULL : lru_oldest_of_model(m, STORE_DEVICE);
		if (n && (!best || n->stamp < best->stamp))
			best = n;
	}
	return best;
}

/* Two places on in its list; NULL: it ends before. */
static inline const struct store_node *lru_skip(const struct store_node *n)
{
	n = n ? TAILQ_NEXT(n, lru) : NULL;
	return n ? TAILQ_NEXT(n, lru) : NULL;
}

/* Of victims to come first their own lines, then those that they point to, then those behind these:
 * the last two victims before they are read, and all that is cold earlier. Following the list alone
 * would wait for memory at every node, thus ahead. */
PREFETCHES void victims_prefetch(const struct store *s, const struct store_node *n)
{
	const char *far = (const char *)n->ahead;

	for (size_t line = 0; far && line < sizeof(*n); line += BLOCKS_LINE_BYTES)
		__builtin_prefetch(far + line);
	n = lru_skip(n);
	if (!n)
		return;
	__builtin_prefetch(*index_bucket(&s->children, n->link.hash));
	__builtin_prefetch(pages_at(&s->pages, &node_model(n)->lent, n->slices[0].page));
	n = lru_skip(lru_skip(lru_skip(n)));
	if (!n)
		return;
	__builtin_prefetch(index_bucket(&s->children, n->link.hash));
	__builtin_prefetch(n->slices);
	__builtin_prefetch(n->tokens);
	__builtin_prefetch(n->sibling.le_prev);
	if (LIST_NEXT(n, sibling))
		__builtin_prefetch(&LIST_NEXT(n, sibling)->sibling);
	numbers_prefetch(&s->slab.slots, node_number(n) - 1);
}

/* The last slice goes, the node with the only one; where there is a tier for it, it goes there.
 * Returns how many pages were freed. */
static uint32_t evict_node(struct store *s, struct store_node *n)
{
	struct store_namespace *namespace = n->namespace;
	uint64_t before = s->pages.n_used;

	if (s->tiers && places_units(&s->places, node_model(n)) > 0) {
		uint32_t n_freed = demote_slice(s, n);
		s->stats.pages_evicted += n_freed;
		return n_freed;
	}
	victims_prefetch(s, n);
	s->stats.slices_evicted++;
	if (n->n_slices > 1) {
		radix_drop_last(n);
	} else {
		radix_cut(n);
		namespace_prune(namespace);
		s->stats.nodes_evicted++;
	}
	s->stats.pages_evicted += before - s->pages.n_used;
	return (uint32_t)(before - s->pages.n_used);
}

/* At most so many of a tenant's extents would be empty if so many idle slices went: what stays has
 * as few as it fits in. */
static uint64_t empty_bound(const struct pages_tenant *t, uint64_t extent_pages, uint64_t n_idle)
{
	uint64_t n_used = t->n_extents * extent_pages - t->n_free;

	if (n_idle == 0)
		return 0;
	if (n_used <= n_idle)
		return t->n_extents;
	return t->n_extents - ceil_div_u64(n_used - n_idle, extent_pages);
}

/* The same of everything idle in the holding. Of a tenant who is several there may be more than one
 * holding's. */
static uint64_t extents_bound(const struct store_holding *of)
{
	const struct pages_tenant *t = of->pages.tenant;

	if (of->n_idle_slices > 0 && !t->account)
		return t->n_extents;
	return empty_bound(t, of->model->lent.extent_pages, of->n_idle_slices);
}

/* At most so many pages of this kind could be had from a holding if everything idle in it went. */
static uint64_t idle_bound(const struct store_holding *h, const struct store_holding *of)
{
	if (of->pages.tenant == h->pages.tenant)
		return of->n_idle_slices;
	return extents_bound(of) * h->model->lent.extent_pages;
}

/* Could n pages be had if everything idle went? */
static bool room_is_possible(const struct store *s, struct store_holding *h, uint32_t n)
{
	const struct pages_account *account = h->pages.tenant->account;
	uint64_t n_own = account ? account->n_extents : 0, n_left = pages_left(&s->pages);
	uint64_t bound = h->pages.tenant->n_free;
	const struct store_holding *of;

	LIST_FOREACH (of, &s->all_holdings, all) {
		if (of->pages.tenant == h->pages.tenant) {
			bound += of->n_idle_slices;
			continue;
		}
		n_left += extents_bound(of);
		if (account && of->domain == h->domain)
			n_own -= extents_bound(of);
	}
	return n <=
	       bound + pages_most(&s->pages, account, n_own, n_left) * h->model->lent.extent_pages;
}

static bool over_bytes(const struct store_domain *d, uint64_t bytes)
{
	return d->pages.max_bytes > 0 && d->pages.bytes + bytes > d->pages.max_bytes;
}

/* Could they be had within the bytes of the domain? */
static bool bytes_are_possible(const struct store_domain *d, uint64_t bytes)
{
	uint64_t idle_bytes = 0;
	struct store_holding *h;

	if (!over_bytes(d, bytes))
		return true;
	LIST_FOREACH (h, &d->holdings, of_domain)
		idle_bytes += h->n_idle_slices * h->model->lent.page_bytes;
	return d->pages.bytes + bytes - d->pages.max_bytes <= idle_bytes;
}

/* Could they be had within the extents of the domain? */
static bool extents_are_possible(struct store_holding *h, uint32_t n)
{
	const struct pages_account *account = &h->domain->pages;
	uint64_t n_more = account->max_extents - account->n_extents;
	uint64_t bound = h->tenant.n_free + n_more * h->model->lent.extent_pages;
	const struct store_holding *of;

	if (account->max_extents == 0)
		return true;
	LIST_FOREACH (of, &h->domain->holdings, of_domain)
		bound += idle_bound(h, of);
	return n <= bound;
}

/* -EDQUOT or -ENOSPC where no eviction could make the room. */
static int room_check(const struct store *s, struct store_holding *h, uint32_t n, uint64_t bytes)
{
	if (!bytes_are_possible(h->domain, bytes))
		return -EDQUOT;
	if (n <= h->pages.tenant->n_free)
		return 0;
	if (!extents_are_possible(h, n))
		return -EDQUOT;
	return room_is_possible(s, h, n) ? 0 : -ENOSPC;
}

static int bytes_keep(struct store *s, struct store_domain *d, uint64_t bytes)
{
	while (over_bytes(d, bytes)) {
		struct store_node *victim = lru_oldest_of_domain(d, STORE_DEVICE);
		if (!victim)
			return -EDQUOT;
		evict_node(s, victim);
	}
	return 0;
}

/* The oldest of those that share the namespace's extents and are not at home elsewhere. The first
 * of a namespace in the list is a leaf. Behind too many that are, the oldest of all: the next look
 * goes further, and no stranger pays for it. */
static struct store_node *victim_at_home(const struct store_namespace *namespace)
{
	struct store_node *n = TAILQ_FIRST(&namespace->holding->lru[STORE_DEVICE]);

	for (uint32_t i = 0; n && i < HOME_LOOKS; i++, n = TAILQ_NEXT(n, lru))
		if (!n->namespace->at_home || n->namespace->home == namespace->home)
			return n;
	return n ? TAILQ_FIRST(&namespace->holding->lru[STORE_DEVICE]) : NULL;
}

/* Of those who have extents of their own, or of the domain that is short of them. */
static struct store_node *victim_of_others(const struct store *s, const struct store_holding *h,
					   int error)
{
	struct store_node *best = NULL;
	struct store_holding *of;

	LIST_FOREACH (of, &s->all_holdings, all) {
		struct store_node *n = TAILQ_FIRST(&of->lru[STORE_DEVICE]);

		if (of == h || !n || (error == -EDQUOT && of->domain != h->domain))
			continue;
		if (!best || n->stamp < best->stamp)
			best = n;
	}
	return best;
}

/* Of those who share the holding's extents. */
static struct store_node *oldest_of_tenant(const struct store_holding *h)
{
	struct store_node *best = NULL;
	const struct store_holding *of;

	if (h->pages.tenant == &h->tenant)
		return TAILQ_FIRST(&h->lru[STORE_DEVICE]);
	LIST_FOREACH (of, &h->model->holdings, of_model) {
		struct store_node *n = TAILQ_FIRST(&of->lru[STORE_DEVICE]);

		if (n && of->pages.tenant == h->pages.tenant && (!best || n->stamp < best->stamp))
			best = n;
	}
	return best;
}

/* The own oldest goes first: no other is sure to leave a page behind that can be had. */
static struct store_node *victim_for(struct store *s, const struct store_namespace *namespace,
				     int error)
{
	struct store_holding *h = namespace->holding;

	if (namespace->at_home) {
		struct store_node *own = victim_at_home(namespace);

		return own ? own : victim_of_others(s, h, error);
	}

	struct store_node *n = oldest_of_tenant(h);

	if (n)
		return n;
	return error == -EDQUOT ? lru_oldest_of_domain(h->domain, STORE_DEVICE)
				: lru_oldest(s, STORE_DEVICE);
}

/* On the device that *ret says. */
static int page_take(struct store *s, const struct store_namespace *namespace, uint32_t row,
		     uint32_t *ret)
{
	struct store_holding *h = namespace->holding;
	uint32_t device = *ret;
	int r;

	while ((r = pages_take(&s->pages, &h->pages, device, row, ret)) == -ENOSPC ||
	       r == -EDQUOT) {
		struct store_node *victim = victim_for(s, namespace, r);
		if (!victim)
			return r;
		evict_node(s, victim);
	}
	return r;
}

int evict_take(const struct store_namespace *namespace, uint32_t first_row, struct store_slice *ret,
	       uint32_t n)
{
	struct store_holding *h = namespace->holding;
	struct store *s = h->model->store;
	uint64_t bytes = n * h->model->lent.page_bytes;
	int r = room_check(s, h, n, bytes);

	if (!r)
		r = bytes_keep(s, h->domain, bytes);
	if (r)
		return r;
	for (uint32_t i = 0; i < n; i++) {
		r = page_take(s, namespace, i == 0 ? first_row : 0, &ret[i].page);
		if (!r)
			continue;
		while (i-- > 0)
			pages_drop(&s->pages, &h->pages, (struct store_slice){.page = ret[i].page});
		return r;
	}
	return 0;
}

bool evict_is_due(struct store_holding *h)
{
	const struct pages *p = &h->model->store->pages;
	bool is_full = false;

	for (uint32_t i = 0; i < h->model->lent.n_devices; i++)
		is_full = is_full || LIST_EMPTY(&h->pages.tenant->room[i]);
	return is_full && pages_may_lend(p, h->pages.tenant->account, pages_left(p)) < 0;
}

void evict_all(struct store *s)
{
	for (struct store_node *n; (n = lru_oldest(s, STORE_DEVICE));)
		evict_node(s, n);
}

static struct store_node *oldest_of(const struct store *s, const char *name)
{
	return name ? oldest_of_name(s, name) : lru_oldest(s, STORE_DEVICE);
}

bool store_has_idle(const struct store *s, const char *name)
{
	return oldest_of(s, name);
}

/* False: none is there that goes now. */
static inline bool evict_oldest(struct store *s, const char *name, uint32_t *n_freed)
{
	struct store_node *victim = oldest_of(s, name);

	if (!victim || (s->tiers && demote_can_wait(s, victim->namespace->holding)))
		return false;
	*n_freed += evict_node(s, victim);
	return true;
}

uint32_t store_evict(struct store *s, const char *name, uint32_t n_pages, uint32_t max_slices)
{
	uint32_t n_freed = 0;

	pages_release(&s->pages);
	for (uint32_t i = 0; i < max_slices && n_freed < n_pages; i++)
		if (!evict_oldest(s, name, &n_freed))
			break;
	return n_freed;
}

/* At most so many extents of the model would be empty if everything idle went. */
static uint64_t model_bound(const struct store_model *m)
{
	const struct store_holding *h;
	uint64_t bound = 0, n_idle = 0;

	LIST_FOREACH (h, &m->holdings, of_model) {
		if (h->pages.tenant == &m->tenant)
			n_idle += h->n_idle_slices;
		else
			bound += extents_bound(h);
	}
	return bound + empty_bound(&m->tenant, m->lent.extent_pages, n_idle);
}

static uint64_t models_bound(const struct store *s)
{
	const struct store_model *m;
	uint64_t bound = 0;

	LIST_FOREACH (m, &s->all_models, all)
		bound += model_bound(m);
	return bound;
}

int store_give(struct store *s, uint32_t n, uint32_t max_slices)
{
	/* pages into which slices come up are used, and may be idle when these are there */
	uint64_t n_rising = s->tiers ? s->tiers->queues[TIER_UP].n : 0, bound;
	uint32_t i = 0, n_freed = 0;

	pages_release(&s->pages);
	n -= pages_give_spares(&s->pages, n);
	if (n == 0)
		return 0;
	bound = models_bound(s);
	if (bound < n)
		return bound + n_rising < n ? -ENOSPC : -EBUSY;
	while (i < max_slices && evict_oldest(s, NULL, &n_freed))
		i++;
	return i > 0 ? -EAGAIN : -EBUSY;
}
