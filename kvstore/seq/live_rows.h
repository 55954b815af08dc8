/*
 * live_rows.h - the rows of a live extension, which are its own until they join the tree.
 */
#ifndef COPPICE_KVSTORE_LIVE_ROWS_H
#define COPPICE_KVSTORE_LIVE_ROWS_H

#include "kvstore/tree/core.h"

/* Of the live tokens only [first, end) keep their rows; what else there is of the extension is the
 * caller's. */
void live_rows_keep(struct store_seq *q, uint32_t first, uint32_t end);
/* The room for an extension goes; there is none. */
void live_rows_free(struct store_seq *q);
/* Its rows are others' by now, or never were: there is no extension any more. */
void live_rows_end(struct store_seq *q);
/* The extension goes, and its rows with it. None: nothing happens. */
void live_rows_drop(struct store_seq *q);
/*
 * All of the path to a node is on the device from now on: what was not has been computed anew, in
 * the first rows of these slots, which change hands. Returns how many slots are left; the first may
 * have lost rows. The path fits node_path.
 */
uint32_t live_rows_fill(struct store *s, struct store_node *n, struct store_slice *slots,
			uint32_t n_slots);

#endif
