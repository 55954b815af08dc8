/*
 * slices.h - slices of pages as every backend reads them: do they fit, and which tokens of them
 * share a mean key of a summary (backend.h).
 *
 *      slice      rows 3 .. 20 of a page, position 8027 the first of them
 *      its parts  rows 3 .. 7, 8 .. 15, 16 .. 20         what one mean is of; 8027 is 3 above 8 x n
 *
 * Positions and rows of pages go together: a token's row is its position mod the page's tokens.
 */
#ifndef COPPICE_SLICES_H
#define COPPICE_SLICES_H

#include "proto/arith.h"
#include "backend.h"

/* None is empty, all are within pages of so many tokens, of the first n_pages. ret: tokens of
 * all. */
static inline bool slices_fit(const struct work_slice *slices, uint32_t n_slices, uint32_t n_pages,
			      uint32_t page_tokens, uint64_t *ret)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < n_slices; i++) {
		if (slices[i].count == 0 || slices[i].page >= n_pages ||
		    slices[i].first + slices[i].count > page_tokens)
			return false;
		n += slices[i].count;
	}
	*ret = n;
	return true;
}

/* The keys of an estimate that reads pages. */
static inline bool slices_fit_estimate(const struct backend_estimate *e, uint32_t n_pages)
{
	uint64_t n;

	return slices_fit(e->slices, e->n_slices, n_pages, e->shape->page_tokens, &n) &&
	       n == e->n_k;
}

/* Is the span one of the first n_pages, for a summary of so many layers? ret_end: of its
 * positions. */
static inline bool slices_fit_span(const struct backend_span *span, uint32_t n_pages,
				   uint32_t to_layers, uint64_t *ret_end)
{
	uint64_t n;

	if (!slices_fit(span->slices, span->n_slices, n_pages, span->shape->page_tokens, &n))
		return false;
	*ret_end = span->pos + n;
	return span->layer < span->shape->n_layers && span->to_layer < to_layers &&
	       *ret_end <= UINT32_MAX;
}

/* Rows [row, row + n) of a page, all of the mean at index of the path's. */
struct slices_part {
	uint32_t page, row, n;
	uint32_t index;
};

/* How far somebody has come in a span; zeroed, with the span, at first. */
struct slices_walk {
	const struct backend_span *span;
	uint32_t slice, in_slice, done; /* tokens of the slice, of all */
};

/* The next part; false: there is none. */
static inline bool slices_next(struct slices_walk *walk, struct slices_part *ret)
{
	const struct work_slice *slice = &walk->span->slices[walk->slice];
	uint32_t pos = walk->span->pos + walk->done, left = BACKEND_SUMMARY_TOKENS;

	if (walk->slice == walk->span->n_slices)
		return false;
	left -= pos % BACKEND_SUMMARY_TOKENS;
	*ret = (struct slices_part){.page = slice->page,
				    .row = slice->first + walk->in_slice,
				    .n = min_u32(left, slice->count - walk->in_slice),
				    .index = pos / BACKEND_SUMMARY_TOKENS};
	walk->done += ret->n;
	walk->in_slice += ret->n;
	if (walk->in_slice == slice->count) {
		walk->slice++;
		walk->in_slice = 0;
	}
	return true;
}

#endif
