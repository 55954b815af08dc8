/*
 * schedule_cache.h - schedules in host memory, found by what they were made from.
 *
 * Whoever computes his layers himself brings the rows of a prompt once a layer: nobody says that
 * they are those of the layer before, but their work list does, as it names rows, pages and
 * positions and neither layer nor head. A schedule depends on nothing else, so what is found here
 * is what schedule_make would make, whoever asks.
 */
#ifndef COPPICE_CUDA_SCHEDULE_CACHE_H
#define COPPICE_CUDA_SCHEDULE_CACHE_H

#include "kernels/cuda/schedule/schedule.h"
#include "proto/must_check.h"

#define SCHEDULE_CACHE_ENTRIES 64u
#define SCHEDULE_CACHE_BYTES ((size_t)64 << 20) /* of schedules and lists, together */
/* An entry that others were asked for so often in place of is of no more use. Until then it stays,
 * however many do not fit: of slices that go round, layer after layer, some are found then. */
#define SCHEDULE_CACHE_PATIENCE 256u

struct schedule_cache_entry {
	uint64_t id; /* of no other entry, ever; 0: there is nothing */
	uint64_t asked; /* when it was last, in n_asked */
	size_t bytes;
	/* what it was made from: of the list rows, items, tiles and pieces, which are owned */
	struct work_shape shape;
	struct work_list list;
	struct schedule_choice choice;
	struct costs costs;
	uint32_t n_blocks;
	struct schedule schedule; /* owned */
};

/* Zeroed: empty. */
struct schedule_cache {
	struct schedule_cache_entry entries[SCHEDULE_CACHE_ENTRIES];
	uint64_t n_asked, last_id;
	size_t bytes;
};

/* The schedule of want, which has no tails and wants all rows; code and pages are the same whenever
 * the cache is asked. *ret: an entry's, or *making, in which it was made. *ret_id: the
 * entry's; 0: it is not kept. Both hold until the next call. 0 or -ENOMEM. */
MUST_CHECK int schedule_cache_get(struct schedule_cache *cache, const struct schedule_want *want,
				  struct schedule *making, const struct schedule **ret,
				  uint64_t *ret_id);
void schedule_cache_done(struct schedule_cache *cache);

#endif
