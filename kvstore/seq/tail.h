/*
 * tail.h - sequences whose paths are longer than the device has room for.
 *
 *      tree     # # # # # # # # # # # # h h h h h h h h
 *      sequence                                        t t t t L L
 *
 *      # on the device   h in host memory   t its tail   L its live extension, both on the device
 *
 * Where nothing idle is left to make room for an extension, the last slices of the own path leave
 * the device, though they are used, and then those of others of its domain. Who computes attention
 * over the path promotes them for that (gather.h). What such a sequence publishes cannot join the
 * tree where it lies, as below a slice that is not on the device none is: it becomes the sequence's
 * tail, which moves to host memory, and so joins the tree, when the next extension needs its room,
 * or the sequence forks or closes.
 */
#ifndef COPPICE_KVSTORE_TAIL_H
#define COPPICE_KVSTORE_TAIL_H

#include "kvstore/tree/core.h"

/* All of the path is on the device, and there is no tail. */
bool tail_is_resident(const struct store_seq *q);

/* Room in the tail for n tokens of the live extension. -ENOMEM. */
MUST_CHECK int tail_reserve(struct store_seq *q, uint32_t n);
/* The live extension's first n tokens, whose ids these are, become the tail's last; the others go.
 * Room is reserved. */
void tail_append(struct store_seq *q, const uint32_t *ids, uint32_t n);
/* The page with the last token, in which live ones may go on; PAGES_NONE: no tail. */
uint32_t tail_last_page(const struct store_seq *q);
/* Of the tail only the first n tokens stay. */
void tail_cut(struct store_seq *q, uint32_t n);
/* The tail moves to host memory and joins the tree. -ENOSPC, -ENOMEM: it stays. */
MUST_CHECK int tail_join(struct store_seq *q);
/* Something that is used leaves the device, so that the sequence may have its room: of its own,
 * else of others of its domain; who shares nothing with it is not to be slowed down by it. False:
 * there is nothing, or no place for it. */
bool tail_make_room(struct store_seq *q);
/* A sequence that ends: the tail settles, or is lost. */
void tail_done(struct store_seq *q);

#endif
