/*
 * validate_pages.c - pages, extents, and who has them, counted again.
 *
 * What slices and live extensions cover was noted before; here each page is held against that, each
 * extent against its pages, and models, tenants and devices against their extents.
 */
#include "validate_pages.h"

/* Adds the free pages of an extent on a device. */
static int count_free(struct validate *v, uint32_t index, uint32_t device, uint32_t *n_free)
{
	const struct extent *e = &v->s->pages.extents[index];
	const struct pages_lent *lent = e->lent;

	CHECK(v, e->sides[device].extent == e, "extent %u: the side of another", index);
	for (uint32_t i = e->sides[device].free_page; i != PAGES_NONE; i = e->pages[i].next_free) {
		CHECK(v, i < lent->extent_pages && e->pages[i].n_slices == 0,
		      "page %u of extent %u is not free", i, index);
		CHECK(v, pages_device(lent, i) == device, "extent %u: page %u is not on device %u",
		      index, i, device);
		CHECK(v, ++*n_free <= lent->extent_pages, "extent %u: a ring of free pages", index);
	}
	return 0;
}

static bool is_spare(const struct pages *pages, const struct extent *extent)
{
	const struct extent *e;

	LIST_FOREACH (e, &pages->spares, link)
		if (e == extent)
			return true;
	return false;
}

/* Each page has the slices that were found; a free one is in the extent's list. Returns the free
 * ones. */
static int check_extent_pages(struct validate *v, uint32_t index, uint32_t *ret_n_free)
{
	const struct extent *e = &v->s->pages.extents[index];
	uint32_t n = e->lent->extent_pages;
	uint32_t n_free = 0, n_used = 0;

	for (uint32_t i = 0; i < n; i++) {
		CHECK(v, e->pages[i].n_slices == v->extents[index].n_slices[i],
		      "page %u of extent %u: %u slices, counted %u", i, index, e->pages[i].n_slices,
		      v->extents[index].n_slices[i]);
		n_used += e->pages[i].n_slices > 0;
	}
	for (uint32_t d = 0; d < e->lent->n_devices; d++)
		TRY(count_free(v, index, d, &n_free));
	CHECK(v, n_used == e->n_used && n_used + n_free == n,
	      "extent %u: %u pages used, counted %u, %u free", index, e->n_used, n_used, n_free);
	CHECK(v, n_used > 0 || v->s->pages.hold || is_spare(&v->s->pages, e),
	      "extent %u is empty but not returned", index);
	CHECK(v, (n_used > 0) == (e->tenant != NULL), "extent %u with %u pages used: tenant %d",
	      index, n_used, e->tenant != NULL);
	*ret_n_free = n_free;
	return 0;
}

static int check_model_pages(struct validate *v, const struct store_model *m)
{
	const struct pages *pages = &v->s->pages;
	uint32_t n_extents = 0, n = 0;
	uint64_t n_free = 0;

	for (uint32_t i = 0; i < pages->n_extents; i++) {
		if (pages->extents[i].lent != &m->lent)
			continue;
		TRY(check_extent_pages(v, i, &n));
		n_extents++;
		n_free += n;
	}
	CHECK(v, n_extents == m->lent.n_extents && n_free == m->lent.n_free,
	      "model %s: %u extents, counted %u", m->name, m->lent.n_extents, n_extents);
	return 0;
}

static int check_room(struct validate *v, const struct store_model *m, const struct pages_tenant *t,
		      uint32_t device)
{
	const struct pages *pages = &v->s->pages;
	const struct extent_side *side;
	uint32_t n_room = 0;

	for (uint32_t i = 0; i < pages->n_extents; i++) {
		const struct extent *e = &pages->extents[i];
		n_room += e->tenant == t && e->sides[device].free_page != PAGES_NONE;
	}
	LIST_FOREACH (side, &t->room[device], link)
		CHECK(v, side->extent->tenant == t && n_room-- > 0,
		      "extents with room on device %u that are not so", device);
	CHECK(v, n_room == 0, "model %s: %u extents with room on device %u are not listed", m->name,
	      n_room, device);
	return 0;
}

static int check_tenant(struct validate *v, const struct store_model *m,
			const struct pages_tenant *t)
{
	const struct pages *pages = &v->s->pages;
	const struct extent *e;
	uint32_t n_extents = 0;
	uint64_t n_free = 0;

	for (uint32_t i = 0; i < pages->n_extents; i++) {
		e = &pages->extents[i];
		if (e->tenant != t)
			continue;
		CHECK(v, e->lent == &m->lent, "extent %u of another model's tenant", i);
		n_extents++;
		n_free += m->lent.extent_pages - e->n_used;
	}
	for (uint32_t d = 0; d < m->lent.n_devices; d++)
		TRY(check_room(v, m, t, d));
	CHECK(v, n_extents == t->n_extents && n_free == t->n_free,
	      "a tenant of model %s: %u extents, counted %u", m->name, t->n_extents, n_extents);
	return 0;
}

int validate_tenants(struct validate *v)
{
	const struct store_model *m;
	const struct store_holding *h;

	LIST_FOREACH (m, &v->s->all_models, all)
		TRY(check_tenant(v, m, &m->tenant));
	LIST_FOREACH (h, &v->s->all_holdings, all) {
		CHECK(v, h->tenant.account == &h->domain->pages && h->pages.lent == &h->model->lent,
		      "a holding charges another domain");
		CHECK(v,
		      h->pages.tenant ==
			      (h->domain->pages.max_extents ? &h->tenant : &h->model->tenant),
		      "domain %lu: extents of others", h->domain->id);
		TRY(check_tenant(v, h->model, &h->tenant));
	}
	return 0;
}

/* The bytes on a device are those of the pages there, and its part of those that are everywhere. */
static int check_devices(struct validate *v)
{
	const struct pages *pages = &v->s->pages;

	for (uint32_t d = 0; d < pages->n_devices; d++) {
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < pages->n_extents; i++) {
			const struct pages_lent *lent = pages->extents[i].lent;
			for (uint32_t p = 0; lent && p < lent->extent_pages; p++) {
				bool is_here = lent->n_devices == 1 || pages_device(lent, p) == d;
				uint64_t n = lent->n_devices == 1 ? pages->n_devices : 1;
				if (is_here && pages->extents[i].pages[p].n_slices > 0)
					bytes += lent->page_bytes / n;
			}
		}
		CHECK(v, bytes == pages->device_bytes[d], "device %u: %lu bytes, counted %lu", d,
		      pages->device_bytes[d], bytes);
	}
	return 0;
}

int validate_pages(struct validate *v)
{
	const struct pages *pages = &v->s->pages;
	const struct store_model *m;
	const struct extent *e;
	uint64_t n_used = 0, used_bytes = 0;
	uint32_t n_extents = 0, n_free = 0, n_spares = 0;

	LIST_FOREACH (m, &v->s->all_models, all) {
		TRY(check_model_pages(v, m));
		uint64_t n = (uint64_t)m->lent.n_extents * m->lent.extent_pages - m->lent.n_free;
		n_extents += m->lent.n_extents;
		n_spares += m->lent.n_spares;
		n_used += n;
		used_bytes += n * m->lent.page_bytes;
	}
	LIST_FOREACH (e, &pages->free, link)
		n_free++;
	LIST_FOREACH (e, &pages->spares, link)
		CHECK(v, e->lent && n_spares-- > 0, "a spare of no model");
	CHECK(v, n_spares == 0, "%u spares are not listed", n_spares);
	CHECK(v, n_extents == pages->n_extents_used && n_free == pages->n_extents - n_extents,
	      "%u extents used, counted %u, %u free", pages->n_extents_used, n_extents, n_free);
	CHECK(v, n_used == pages->n_used && used_bytes == pages->used_bytes,
	      "%lu pages used, counted %lu", pages->n_used, n_used);
	return check_devices(v);
}
