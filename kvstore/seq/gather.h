/*
 * gather.h - where the KV of a sequence's path is while attention over it is computed in pieces.
 *
 *      slices   # # # # # # h h h h h h h h h | t t t t L
 *               n_device slices: pages        |
 *                  the others: places in host memory, which stay what they are until the end
 *
 * The slices on the device are the first of the path; they may leave it at the store's next call
 * that changes anything: whoever reads them has begun before, or asks gather_holds. What lies in
 * host memory is there, or on its way: gather_is_there.
 */
#ifndef COPPICE_KVSTORE_GATHER_H
#define COPPICE_KVSTORE_GATHER_H

#include "kvstore/store.h"

struct gather {
	struct store *store;
	struct store_seq *seq; /* whose it is; NULL: nobody's */
	struct store_slice *slices; /* owned; page: of the pool, or a place */
	uint32_t n_slices, n_device;
	uint32_t n_tokens, n_device_tokens; /* of the path; behind it lies the tail */
	uint32_t capacity;
	uint64_t n_left; /* store_n_left, when the device was last known to have its slices */
};

/* All of the path is on the device, and it has no tail: nothing needs to be gathered. */
bool store_seq_is_resident(const struct store_seq *q);
/* The tokens between path and live extension, which are the sequence's alone, on the device. Valid
 * until the next call on the sequence. */
const struct store_slice *store_seq_tail(const struct store_seq *q, uint32_t *ret_n_slices,
					 uint32_t *ret_n_tokens);
/* Grows when sequences may have come to stand below the device. */
uint64_t store_n_left(const struct store *s);

/* Of a gather that is all zero, or was ended; one at a time for a sequence, which outlives it. Its
 * tail stays on the device until the end. -ENOMEM. */
MUST_CHECK int gather_begin(struct gather *g, struct store_seq *q);
/* The places may be used otherwise. The room stays, for the next. */
void gather_end(struct gather *g);
void gather_done(struct gather *g); /* frees the room too */

/* Its slices on the device are all still where they were. */
bool gather_holds(struct gather *g);
/* Of slices from n_device on: where the page begins in host memory. */
void *gather_memory(const struct gather *g, uint32_t index);
/* The copy to host memory has ended. */
bool gather_is_there(const struct gather *g, uint32_t index);

#endif
