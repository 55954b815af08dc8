/*
 * cut.h - a list cut per device: each gets the pieces whose pages it has, and nothing is planned
 * again.
 *
 *      list      item 0: [page 0][page 1][page 2][page 3]      2 devices
 *      device 0  item 0: [page 0]        [page 1]
 *      device 1  item 0:         [page 0]        [page 1]
 *
 * Rows keep their numbers on every device. A row's partials are those of the items in which it sees
 * something there. Page p is on device p mod their number, which knows it as page p / their number.
 * Keys keep their place in a tile. Items and tiles shrink to the rows that see something, or
 * vanish.
 */
#ifndef COPPICE_PLAN_CUT_H
#define COPPICE_PLAN_CUT_H

#include "proto/must_check.h"
#include "array.h"
#include "kernels/work.h"

static inline uint32_t cut_device(uint32_t page, uint32_t n_devices)
{
	return page % n_devices;
}

/* What the device calls it. */
static inline uint32_t cut_page(uint32_t page, uint32_t n_devices)
{
	return page / n_devices;
}

enum cut_memory {
	CUT_ITEMS,
	CUT_TILES,
	CUT_PIECES,
	CUT_MERGE_FIRST,
	CUT_MERGE_PARTS,
	CUT_NEW_PARTS,
	CUT_N_MEMORY
};

/* One device's list. Zeroed once by the caller; may be made again and again. */
struct cut {
	/* rows are the whole list's, the rest is of memory; kv_tokens_alone is 0 */
	struct work_list list;
	struct array memory[CUT_N_MEMORY]; /* owned */
};

/* What device of n_devices has of the list. The list's rows must outlive its use. 0 or -ENOMEM. */
MUST_CHECK int cut_make(struct cut *cut, const struct work_list *list, uint32_t n_devices,
			uint32_t device);
void cut_done(struct cut *cut);

#endif
