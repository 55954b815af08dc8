/*
 * note.c - what is found in the trees: rows that are covered, pages that are referred to.
 *
 * No row may be covered twice; what is noted here is held against the page table afterwards.
 */
#include "note.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int note_fail(struct validate *v, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(v->error, v->error_bytes, format, args);
	va_end(args);
	return -EINVAL;
}

int note_slice(struct validate *v, struct store_holding *h, struct store_slice slice, uint32_t pos)
{
	const struct pages *pages = &v->s->pages;
	const struct store_model *m = h->model;
	uint32_t e = slice.page / m->lent.extent_pages;
	uint32_t i = slice.page % m->lent.extent_pages;

	CHECK(v, e < pages->n_extents && pages->extents[e].lent == &m->lent,
	      "page %u is not the model's", slice.page);
	CHECK(v, pages->extents[e].tenant == h->pages.tenant, "page %u is another domain's",
	      slice.page);
	CHECK(v, slice.count > 0, "an empty slice of page %u", slice.page);
	CHECK(v, slice.first == pos % m->lent.page_tokens, "page %u: position %u in row %u",
	      slice.page, pos, slice.first);
	const struct page *page = &pages->extents[e].pages[i];
	CHECK(v, (uint32_t)slice.first + slice.count <= page->fill, "page %u: rows beyond fill",
	      slice.page);
	CHECK(v, page->fill <= m->lent.page_tokens, "page %u: fill %u", slice.page, page->fill);
	struct found_extent *found = &v->extents[e];
	for (uint32_t row = slice.first; row < (uint32_t)slice.first + slice.count; row++) {
		uint8_t *covered = &found->rows[(size_t)i * m->lent.page_tokens + row];
		CHECK(v, !*covered, "page %u row %u is in two slices", slice.page, row);
		*covered = 1;
	}
	found->n_slices[i]++;
	return 0;
}

const struct store_node *note_next(const struct store_node *n)
{
	if (!LIST_EMPTY(&n->children))
		return LIST_FIRST(&n->children);
	while (n->parent && !LIST_NEXT(n, sibling))
		n = n->parent;
	return n->parent ? LIST_NEXT(n, sibling) : NULL;
}
