/*
 * demote.h - the way down: what leaves the device goes to host memory, what leaves host memory
 * stays in the file if it is there, and what leaves the last tier is gone. Always the last slice of
 * the oldest leaf.
 */
#ifndef COPPICE_KVSTORE_DEMOTE_H
#define COPPICE_KVSTORE_DEMOTE_H

#include "state.h"

/* The last slice that an idle node has on the device leaves it; nothing below the node is there.
 * Returns the pages that were freed, 0 or 1. The node may be gone. */
uint32_t demote_slice(struct store *s, struct store_node *n);

/* The same of a node that is used: its sequences stand below the device then. -ENOSPC: no place in
 * host memory; -ENOMEM. */
MUST_CHECK int demote_used(struct store *s, struct store_node *n);

/* Would a page of the holding's cost host memory a slice that could stay if what is under way had
 * ended? Who can wait does. */
bool demote_can_wait(const struct store *s, const struct store_holding *h);

/* A place for a page of the holding's, with one reference and its domain charged; the oldest make
 * room: its own if it has what it may; two for one if it has more, as after a restart. Else those
 * of who has more than he may go first. avoid: a node whose path must stay as it is; NULL: none.
 * TIER_NONE: there is none. */
uint32_t demote_take(struct store *s, struct store_holding *h, enum store_tier tier,
		     const struct store_node *avoid);

/* The file's journal has room for one more page of the holding's, and its domain no more than its
 * share, three quarters; the oldest of the domain, or of who takes most of the journal, make room.
 * There is a file. -EAGAIN: when what is under way has ended; -ENOSPC. */
MUST_CHECK int demote_for_journal(struct store *s, struct store_holding *h,
				  const struct store_node *avoid);

#endif
