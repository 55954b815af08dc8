/*
 * windows.c - see windows.h. A window is named by one word only if all of its tokens lie side by
 * side from a KV block's first row on; a page that is not there names nothing, which is told apart
 * from what lies askew.
 */
#include "windows.h"
#include "proto/arith.h"

/* Where a token lies. */
struct page_row {
	uint32_t page, row;
};

/* Along a path, token by token. */
struct walk {
	const struct work_shape *shape;
	struct pool_pages pages;
	/* where the next token has to be, for a window to go on side by side */
	struct page_row next;
};

/* Tokens from row on, the in-th of a window: what it is, and whether it had been whole or
 * nothing. */
static uint32_t window_goes_on(const struct walk *w, struct page_row at, uint32_t in,
			       uint32_t *window)
{
	uint32_t had = *window;

	if (in > 0 && at.page == w->next.page && (at.page == WORK_NONE || at.row == w->next.row))
		return 0;
	if (in == 0 && at.page != WORK_NONE && at.row % KV_BLOCK_TOKENS == 0) {
		*window = shape_source(w->shape, &w->pages, at.page, at.row);
		return 0;
	}
	*window = DEVICE_NONE;
	return in == 0 ? at.page != WORK_NONE : had != DEVICE_NONE || w->next.page == WORK_NONE;
}

uint32_t windows_find(const struct pool *pool, const struct work_shape *shape,
		      const struct work_slice *slices, uint32_t n_slices, uint32_t *ret)
{
	struct walk walk = {.shape = shape, .pages = shape_pages(pool, shape)};
	uint32_t pos = 0, n_none = 0;

	for (uint32_t i = 0; i < n_slices; i++) {
		uint32_t row = slices[i].first, end = row + slices[i].count, n;

		for (; row < end; row += n, pos += n) {
			struct page_row at = {slices[i].page, row};
			uint32_t in = pos % WINDOW_TOKENS;

			n = min_u32(end - row, WINDOW_TOKENS - in);
			n_none += window_goes_on(&walk, at, in, &ret[pos / WINDOW_TOKENS]);
			walk.next = (struct page_row){at.page, row + n};
		}
	}
	return n_none;
}
