/*
 * promote.h - what sequences want from lower tiers, and the way up.
 *
 * A want is the path to where a prompt's match ends, of which a part is below the device. It counts
 * as used until the sequence matches again, goes its own way or closes. The slices nearest to the
 * root come first.
 */
#ifndef COPPICE_KVSTORE_FETCH_H
#define COPPICE_KVSTORE_FETCH_H

#include "tiers.h"

/* Does more of the prompt lie in lower tiers? If so it is wanted from now on, and the sequence's
 * match is pending up to q->want_path; unless it could not be had before. Else nothing is wanted
 * any more. */
bool fetch_want(struct store *s, struct store_seq *q, uint64_t now_ns);
/* Nothing is wanted any more. */
void fetch_end(struct store *s, struct store_seq *q);

/* Is all that the sequence wants in memory, and is it to stay there? */
bool fetch_is_there(const struct store_seq *q);

/* Wants that are met are noted. */
void fetch_look(struct store *s, uint64_t now_ns);
/* Begins reads and copies while there is room for moves. */
void fetch_begin_moves(struct store *s);

#endif
