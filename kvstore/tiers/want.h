/*
 * want.h - what sequences want from lower tiers.
 *
 * A want is the path to where a prompt's match ends, of which a part is below the device. It counts
 * as used until the sequence matches again, goes its own way or closes.
 */
#ifndef COPPICE_KVSTORE_WANT_H
#define COPPICE_KVSTORE_WANT_H

#include "state.h"

/* Does more of the prompt lie in lower tiers? If so it is wanted from now on, and the sequence's
 * match is pending up to q->want_path; unless it could not be had before. Else nothing is wanted
 * any more. */
bool want_update(struct store *s, struct store_seq *q, uint64_t now_ns);
/* Nothing is wanted any more. */
void want_end(struct store *s, struct store_seq *q);

/* Is all that the sequence wants in memory, and is it to stay there? */
bool want_is_there(const struct store_seq *q);

/* There is no more to come: it does not wait, and is not asked for again. */
void want_give_up(struct store *s, struct store_seq *q);
/* How many slices of a node on its path are wanted. */
uint32_t want_n_slices(const struct store_seq *q, const struct store_node *n);

/* Wants that are met are noted. */
void want_note_met(struct store *s, uint64_t now_ns);

#endif
