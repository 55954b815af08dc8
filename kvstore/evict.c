/*
 * evict.c - victims and room; see evict.h.
 *
 * The first entry of an LRU list is a leaf, as children stand before parents; lists are compared by the stamps of
 * their first entries. What will be read of the next entries is prefetched: in a big store each is half a dozen cache
 * misses, one after the other.
 */
#include "evict.h"

#include "node.h"
#include "radix.h"
#include "space.h"

#include <errno.h>

static struct store_node *older(struct store_node *best, const struct store_holding *h)
{
	struct store_node *n = TAILQ_FIRST(&h->lru);

	return n && (!best || n->stamp < best->stamp) ? n : best;
}

static struct store_node *oldest_of_domain(const struct store_domain *d)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &d->holdings, of_domain)
		best = older(best, h);
	return best;
}

static struct store_node *oldest_of_model(const struct store_model *m)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &m->holdings, of_model)
		best = older(best, h);
	return best;
}

static struct store_node *oldest_of_all(const struct store *s)
{
	struct store_node *best = NULL;
	struct store_holding *h;

	LIST_FOREACH (h, &s->all_holdings, all)
		best = older(best, h);
	return best;
}

static const struct store_node *lru_skip(const struct store_node *n, uint32_t n_places)
{
	while (n && n_places-- > 0)
		n = TAILQ_NEXT(n, lru);
	return n;
}

/* Of victims to come first their own lines, then those that they point to, then those behind these: each a few
 * victims before it is read. Following the list alone would wait for memory at every node, thus node.ahead. */
static void victims_prefetch(const struct store *s, const struct store_node *n)
{
	const char *far = (const char *)n->ahead;

	for (size_t line = 0; far && line < sizeof(*n); line += 64)
		__builtin_prefetch(far + line);
	n = lru_skip(n, 2);
	if (!n)
		return;
	__builtin_prefetch(*index_bucket(&s->children, n->link.hash));
	__builtin_prefetch(pages_at(&s->pages, &n->space->holding->model->lent, n->slices[0].page));
	n = lru_skip(n, 3);
	if (!n)
		return;
	__builtin_prefetch(index_bucket(&s->children, n->link.hash));
	__builtin_prefetch(n->slices);
	__builtin_prefetch(n->tokens);
	__builtin_prefetch(n->sibling.le_prev);
	if (LIST_NEXT(n, sibling))
		__builtin_prefetch(&LIST_NEXT(n, sibling)->sibling);
}

/* Returns how many pages were freed. */
static uint32_t evict_node(struct store *s, struct store_node *n)
{
	struct store_space *space = n->space;
	uint64_t before = s->pages.n_used;

	victims_prefetch(s, n);
	radix_cut(n);
	space_settle(space);
	s->stats.nodes_evicted++;
	s->stats.pages_evicted += before - s->pages.n_used;
	return (uint32_t)(before - s->pages.n_used);
}

static int quota_keep(struct store *s, struct store_domain *d, uint64_t bytes)
{
	uint64_t limit = s->config.domain_bytes;
	uint64_t idle_bytes = 0;
	struct store_holding *h;

	if (limit == 0 || d->bytes + bytes <= limit)
		return 0;
	LIST_FOREACH (h, &d->holdings, of_domain)
		idle_bytes += h->n_idle_slices * h->model->lent.page_bytes;
	if (bytes > limit || d->bytes + bytes - limit > idle_bytes)
		return -EDQUOT;
	while (d->bytes + bytes > limit) {
		struct store_node *victim = oldest_of_domain(d);
		if (!victim)
			return -EDQUOT;
		evict_node(s, victim);
	}
	return 0;
}

/* At most so many pages could be had for a model if everything idle went. */
static uint64_t room_bound(const struct store *s, const struct store_model *m)
{
	const struct pages *p = &s->pages;
	uint64_t n_extents = p->n_extents - p->n_extents_used + p->n_spares;
	uint64_t n = m->lent.n_free + n_extents * m->lent.extent_pages;
	const struct store_holding *h;

	LIST_FOREACH (h, &s->all_holdings, all) {
		if (h->model == m)
			n += h->n_idle_slices;
		else if (h->n_idle_slices > 0)
			n += (uint64_t)h->model->lent.n_extents * m->lent.extent_pages;
	}
	return n;
}

static int page_take(struct store *s, struct store_holding *h, uint32_t row, uint32_t *ret)
{
	int r;

	while ((r = pages_take(&s->pages, h->model, h->domain, row, ret)) == -ENOSPC) {
		struct store_node *victim = oldest_of_model(h->model);
		if (!victim)
			victim = oldest_of_all(s);
		if (!victim)
			return r;
		evict_node(s, victim);
	}
	return r;
}

int evict_take(struct store_holding *h, uint32_t first_row, struct store_slice *ret, uint32_t n)
{
	struct store *s = h->model->store;
	int r = quota_keep(s, h->domain, n * h->model->lent.page_bytes);

	if (r)
		return r;
	if (n > h->model->lent.n_free && n > room_bound(s, h->model))
		return -ENOSPC;
	for (uint32_t i = 0; i < n; i++) {
		r = page_take(s, h, i == 0 ? first_row : 0, &ret[i].page);
		if (!r)
			continue;
		while (i-- > 0)
			pages_drop(&s->pages, h->model, h->domain,
				   (struct store_slice){.page = ret[i].page});
		return r;
	}
	return 0;
}

void evict_all(struct store *s)
{
	for (struct store_node *n; (n = oldest_of_all(s));)
		evict_node(s, n);
}

uint32_t store_evict(struct store *s, const struct store_model *m, uint32_t n_pages,
		     uint32_t max_nodes)
{
	uint32_t freed = 0;

	pages_settle(&s->pages);
	for (uint32_t i = 0; i < max_nodes && freed < n_pages; i++) {
		struct store_node *victim = m ? oldest_of_model(m) : oldest_of_all(s);
		if (!victim)
			break;
		freed += evict_node(s, victim);
	}
	return freed;
}
