/* slice.h - parts of runs of slices. */
#ifndef COPPICED_SLICE_H
#define COPPICED_SLICE_H

#include "kvstore/store.h"

/* What the slice has of the next *count tokens after *first, both of which shrink by what it has:
 * of a run, in turn, until there is nothing to count. */
static inline struct store_slice slice_cut(const struct store_slice *slice, uint32_t *first,
					   uint32_t *count)
{
	uint32_t skip = *first < slice->count ? *first : slice->count, n = slice->count - skip;

	n = n < *count ? n : *count;
	*first -= skip;
	*count -= n;
	return (struct store_slice){slice->page, (uint16_t)(slice->first + skip), (uint16_t)n};
}

#endif
