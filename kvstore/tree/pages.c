/*
 * pages.c - page table and extents; see pages.h.
 *
 *      pool.free --commit--> tenant's, its sides in tenant.room while they have a free page
 *          ^                   |      ^
 *        release         last page    | first page
 *          |                   v      |
 *          `------------- lent's spares <-- release -- pool.vacant, while hold
 */
#include "pages.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SPARES_MOST 8u /* of a model */

int pages_init(struct pages *p, const struct store_config *config)
{
	*p = (struct pages){.pool = config->pool,
			    .n_extents = config->n_extents,
			    .n_devices = config->n_devices ? config->n_devices : 1,
			    .n_reserved = config->reserved_extents};
	p->extents = calloc(p->n_extents, sizeof(*p->extents));
	if (!p->extents)
		return -ENOMEM;
	for (uint32_t i = p->n_extents; i-- > 0;)
		LIST_INSERT_HEAD(&p->free, &p->extents[i], link);
	return 0;
}

void pages_done(struct pages *p)
{
	pages_release(p);
	assert(p->n_extents_used == 0);
	free(p->extents);
}

/* Page table and sides of an empty extent, all pages free. */
static int extent_tables(struct extent *e, const struct pages_lent *lent)
{
	uint32_t n = lent->extent_pages, n_devices = lent->n_devices;
	struct page *pages = calloc(n, sizeof(*pages));
	struct extent_side *sides = &e->side;

	if (n_devices > 1)
		sides = calloc(n_devices, sizeof(*sides));
	if (!pages || !sides) {
		free(pages);
		if (n_devices > 1)
			free(sides);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		pages[i].next_free = n - i > n_devices ? i + n_devices : PAGES_NONE;
	for (uint32_t i = 0; i < n_devices; i++)
		sides[i] = (struct extent_side){.extent = e, .free_page = i};
	e->pages = pages;
	e->sides = sides;
	return 0;
}

static void extent_forget(struct extent *e)
{
	free(e->pages);
	if (e->sides != &e->side)
		free(e->sides);
	e->pages = NULL;
	e->sides = NULL;
}

/* Those that are ready are the first of all. NULL: none is. */
static struct extent *last_ready(const struct pages *p)
{
	struct extent *last = NULL, *e;

	for (e = LIST_FIRST(&p->free); e && e->ready; e = LIST_NEXT(e, link))
		last = e;
	return last;
}

static void free_insert(struct pages *p, struct extent *e)
{
	struct extent *last = last_ready(p);

	if (last)
		LIST_INSERT_AFTER(last, e, link);
	else
		LIST_INSERT_HEAD(&p->free, e, link);
}

/* An empty extent of the pool's becomes the model's, with memory. -ENOSPC, -ENOMEM. */
static int extent_commit(struct pages *p, struct pages_lent *lent, struct extent **ret)
{
	struct extent *e = LIST_FIRST(&p->free);

	if (!e)
		return -ENOSPC;
	if (extent_tables(e, lent))
		return -ENOMEM;
	if (p->pool.commit(p->pool.ctx, (uint32_t)(e - p->extents))) {
		extent_forget(e);
		return -ENOSPC;
	}
	LIST_REMOVE(e, link);
	e->ready = false;
	e->lent = lent;
	lent->n_extents++;
	lent->n_free += lent->extent_pages;
	p->n_extents_used++;
	*ret = e;
	return 0;
}

/* An empty one, in no list, goes back to the pool. */
static void extent_return(struct pages *p, struct extent *e)
{
	struct pages_lent *lent = e->lent;

	extent_forget(e);
	e->lent = NULL;
	lent->n_extents--;
	lent->n_free -= lent->extent_pages;
	p->n_extents_used--;
	free_insert(p, e);
	p->pool.release(p->pool.ctx, (uint32_t)(e - p->extents));
}

/* The model's spare behind this one, or its first; NULL: there is none. */
static struct extent *spare_behind(const struct pages *p, const struct pages_lent *lent,
				   const struct extent *e)
{
	struct extent *next = e ? LIST_NEXT(e, link) : LIST_FIRST(&p->spares);

	while (next && next->lent != lent)
		next = LIST_NEXT(next, link);
	return next;
}

static void spare_add(struct pages *p, struct extent *e)
{
	LIST_INSERT_HEAD(&p->spares, e, link);
	e->lent->n_spares++;
	p->n_spares++;
}

/* Behind all others: who has looked at it has seen them first. */
static void spare_add_last(struct pages *p, struct extent *e)
{
	struct extent *last = NULL, *other;

	LIST_FOREACH (other, &p->spares, link)
		last = other;
	if (!last) {
		spare_add(p, e);
		return;
	}
	LIST_INSERT_AFTER(last, e, link);
	e->lent->n_spares++;
	p->n_spares++;
}

static struct extent *spare_take(struct pages *p, struct extent *e)
{
	LIST_REMOVE(e, link);
	e->lent->n_spares--;
	p->n_spares--;
	return e;
}

uint32_t pages_give_spares(struct pages *p, uint32_t n)
{
	uint32_t given = 0;

	for (; given < n && !LIST_EMPTY(&p->spares); given++)
		extent_return(p, spare_take(p, LIST_FIRST(&p->spares)));
	return given;
}

/* An empty one, in no list: kept or returned. */
static void extent_retire(struct pages *p, struct extent *e)
{
	if (e->lent->n_spares)
		extent_return(p, e);
	else
		spare_add(p, e);
}

bool pages_make_spare(struct pages *p, struct pages_lent *lent, uint32_t n)
{
	struct extent *e;

	if (lent->n_spares >= n || lent->n_spares >= SPARES_MOST || extent_commit(p, lent, &e) < 0)
		return false;
	spare_add_last(p, e);
	return true;
}

void pages_set_ready(struct pages *p, uint32_t extent, bool ready)
{
	struct extent *e = &p->extents[extent];

	LIST_REMOVE(e, link);
	e->ready = false;
	free_insert(p, e);
	e->ready = ready;
}

static uint32_t number_of(const struct pages *p, const struct extent *e)
{
	return e ? (uint32_t)(e - p->extents) : PAGES_NONE;
}

uint32_t pages_last_ready(const struct pages *p)
{
	return number_of(p, last_ready(p));
}

uint32_t pages_next_unready(const struct pages *p)
{
	const struct extent *last = last_ready(p);

	return number_of(p, last ? LIST_NEXT(last, link) : LIST_FIRST(&p->free));
}

void pages_leave(struct pages *p, struct pages_lent *lent)
{
	while (lent->n_spares)
		extent_return(p, spare_take(p, spare_behind(p, lent, NULL)));
}

/* A spare of the model, or one of the pool; where that has none, others' spares go there first. */
static int extent_borrow(struct pages *p, struct pages_lent *lent, struct extent **ret)
{
	if (lent->n_spares) {
		*ret = spare_take(p, spare_behind(p, lent, NULL));
		return 0;
	}
	int r = extent_commit(p, lent, ret);
	while (r == -ENOSPC && !LIST_EMPTY(&p->spares)) {
		pages_give_spares(p, 1);
		r = extent_commit(p, lent, ret);
	}
	return r;
}

uint32_t pages_left(const struct pages *p)
{
	uint32_t n = p->n_extents - p->n_extents_used;
	uint32_t most = p->pool.left ? p->pool.left(p->pool.ctx) : n;

	return min_u32(n, most) + p->n_spares;
}

int pages_may_lend(const struct pages *p, const struct pages_account *account, uint32_t n_left)
{
	if (account && account->n_extents >= account->max_extents)
		return -EDQUOT;
	if (account && n_left <= p->n_reserved && account->n_extents >= n_left)
		return -ENOSPC;
	return n_left > 0 ? 0 : -ENOSPC;
}

uint64_t pages_most(const struct pages *p, const struct pages_account *account, uint64_t n_own,
		    uint64_t n_left)
{
	uint64_t n_free = n_left > p->n_reserved ? n_left - p->n_reserved : 0;

	if (!account)
		return n_left;
	n_left -= n_free;
	n_own += n_free;
	return n_free + (n_own < n_left ? ceil_div_u64(n_left - n_own, 2) : 0);
}

static int tenant_add_extent(struct pages *p, struct pages_tenant *t, struct pages_lent *lent)
{
	struct extent *e;
	int r = pages_may_lend(p, t->account, pages_left(p));

	if (!r)
		r = extent_borrow(p, lent, &e);
	if (r)
		return r;
	for (uint32_t i = 0; i < lent->n_devices; i++)
		LIST_INSERT_HEAD(&t->room[i], &e->sides[i], link);
	e->tenant = t;
	t->n_extents++;
	t->n_free += lent->extent_pages;
	if (t->account)
		t->account->n_extents++;
	return 0;
}

/* The extent, empty, is in no list then. */
static void tenant_lose_extent(struct extent *e)
{
	struct pages_tenant *t = e->tenant;

	for (uint32_t i = 0; i < e->lent->n_devices; i++)
		LIST_REMOVE(&e->sides[i], link);
	e->tenant = NULL;
	t->n_extents--;
	t->n_free -= e->lent->extent_pages;
	if (t->account)
		t->account->n_extents--;
}

/* A page was taken on a device, or with by == -1 freed. */
static inline void count_page(struct pages *p, const struct pages_holder *h, uint32_t device,
			      int by)
{
	struct pages_lent *lent = h->lent;
	uint64_t bytes = (uint64_t)by * lent->page_bytes;

	lent->n_free -= (uint64_t)by;
	h->account->bytes += bytes;
	p->n_used += (uint64_t)by;
	p->used_bytes += bytes;
	if (lent->n_devices > 1) {
		p->device_bytes[device] += bytes;
		return;
	}
	for (uint32_t i = 0; i < p->n_devices; i++)
		p->device_bytes[i] += (uint64_t)by * lent->part_bytes;
}

int pages_take(struct pages *p, const struct pages_holder *h, uint32_t device, uint32_t row,
	       uint32_t *ret)
{
	struct pages_tenant *t = h->tenant;

	if (LIST_EMPTY(&t->room[device])) {
		int r = tenant_add_extent(p, t, h->lent);
		if (r)
			return r;
	}
	struct extent_side *side = LIST_FIRST(&t->room[device]);
	struct extent *e = side->extent;
	struct page *page = &e->pages[side->free_page];
	*ret = (uint32_t)(e - p->extents) * h->lent->extent_pages + side->free_page;
	side->free_page = page->next_free;
	if (side->free_page == PAGES_NONE)
		LIST_REMOVE(side, link);
	e->n_used++;
	page->n_slices = 0;
	page->fill = row;
	t->n_free--;
	count_page(p, h, device, 1);
	return 0;
}

/* The empty extent that would be lent now, after those that the look has seen lent. */
static const struct extent *look_at_empty(const struct pages *p, const struct pages_lent *lent,
					  struct store_foresight *look)
{
	const struct extent *e = look->empty;

	if (e && !e->pages)
		e = LIST_NEXT(e, link);
	else
		e = spare_behind(p, lent, e) ? spare_behind(p, lent, e) : LIST_FIRST(&p->free);
	look->empty = e;
	look->ended = !e;
	look->n_empty += e != NULL;
	return e;
}

/* The extent that the tenant takes pages from after this one; NULL: after none. */
static const struct extent *extent_behind(const struct pages_tenant *t, const struct extent *e)
{
	const struct extent_side *side;

	if (e && e->tenant != t)
		return NULL;
	side = e ? LIST_NEXT(&e->sides[0], link) : LIST_FIRST(&t->room[0]);
	return side ? side->extent : NULL;
}

/* The page that is taken after this one of an extent. */
static uint32_t page_behind(const struct extent *e, const struct pages_lent *lent, uint32_t page)
{
	if (e->pages)
		return e->pages[page].next_free;
	return page + 1 < lent->extent_pages ? page + 1 : PAGES_NONE;
}

uint32_t pages_look_on(struct pages *p, const struct pages_holder *h, struct store_foresight *look)
{
	struct pages_looked *at = &h->tenant->looked;
	uint32_t page;

	if (h->lent->n_devices > 1 || look->ended)
		return PAGES_NONE;
	if (look->number == 0)
		look->number = ++p->n_looks;
	if (at->look != look->number)
		*at = (struct pages_looked){look->number, NULL, PAGES_NONE};
	page = at->page;
	if (page == PAGES_NONE) {
		const struct extent *e = extent_behind(h->tenant, at->extent);

		at->extent = e ? e : look_at_empty(p, h->lent, look);
		if (!at->extent)
			return PAGES_NONE;
		page = at->extent->pages ? at->extent->sides[0].free_page : 0;
	}
	at->page = page_behind(at->extent, h->lent, page);
	return (uint32_t)(at->extent - p->extents) * h->lent->extent_pages + page;
}

static void page_free(struct pages *p, const struct pages_holder *h, struct extent *e,
		      struct page *page)
{
	uint32_t device = pages_device(h->lent, (uint32_t)(page - e->pages));
	struct extent_side *side = &e->sides[device];

	if (side->free_page == PAGES_NONE)
		LIST_INSERT_HEAD(&e->tenant->room[device], side, link);
	page->next_free = side->free_page;
	side->free_page = (uint32_t)(page - e->pages);
	e->tenant->n_free++;
	count_page(p, h, device, -1);
	if (--e->n_used)
		return;
	tenant_lose_extent(e);
	if (p->hold)
		LIST_INSERT_HEAD(&p->vacant, e, link);
	else
		extent_retire(p, e);
}

struct store_slice pages_fill(const struct pages *p, const struct pages_lent *lent, uint32_t page,
			      uint32_t count)
{
	struct page *at = pages_at(p, lent, page);
	struct store_slice slice = {.page = page,
				    .first = (uint16_t)at->fill,
				    .count = (uint16_t)count};

	assert(at->fill + count <= lent->page_tokens);
	at->fill += count;
	at->n_slices++;
	return slice;
}

static void page_give_back(struct page *page, struct store_slice rows)
{
	if (page->fill == (uint32_t)rows.first + rows.count)
		page->fill = rows.first;
}

void pages_give_back(const struct pages *p, const struct pages_lent *lent, struct store_slice rows)
{
	page_give_back(pages_at(p, lent, rows.page), rows);
}

void pages_drop(struct pages *p, const struct pages_holder *h, struct store_slice slice)
{
	struct extent *e = pages_extent(p, h->lent, slice.page);
	struct page *at = pages_in(e, h->lent, slice.page);

	page_give_back(at, slice);
	if (at->n_slices <= 1) {
		at->n_slices = 0;
		page_free(p, h, e, at);
		return;
	}
	at->n_slices--;
}

void pages_hold(struct pages *p)
{
	p->hold = true;
}

void pages_retire_vacant(struct pages *p)
{
	while (!LIST_EMPTY(&p->vacant)) {
		struct extent *e = LIST_FIRST(&p->vacant);
		LIST_REMOVE(e, link);
		extent_retire(p, e);
	}
}
