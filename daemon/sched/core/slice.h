/* slice.h - parts of runs of slices, and of a part's rows. */
#ifndef COPPICED_SLICE_H
#define COPPICED_SLICE_H

#include "kernels/backend.h"
#include "kvstore/store.h"
#include "proto/arith.h"

/* What the slice has of the next *count tokens after *first, both of which shrink by what it has:
 * of a run, in turn, until there is nothing to count. */
static inline struct store_slice slice_cut(const struct store_slice *slice, uint32_t *first,
					   uint32_t *count)
{
	uint32_t skip = min_u32(*first, slice->count), n = slice->count - skip;

	n = min_u32(n, *count);
	*first -= skip;
	*count -= n;
	return (struct store_slice){slice->page, (uint16_t)(slice->first + skip), (uint16_t)n};
}

/* Where rows of a part are from that row on. */
static inline struct backend_io io_from_row(struct backend_io io, uint64_t row)
{
	io.q += io.q ? row * io.q_stride : 0;
	io.k += row * io.k_stride;
	io.v += row * io.v_stride;
	io.o += io.o ? row * io.o_stride : 0;
	io.lse += io.lse ? row * io.lse_stride : 0;
	io.slots = NULL;
	io.n_slots = 0;
	return io;
}

#endif
