/*
 * pin.h - paths that count as used until some time; a heap orders the pins by when they end.
 */
#ifndef COPPICE_KVSTORE_PIN_H
#define COPPICE_KVSTORE_PIN_H

#include "core.h"
#include "proto/must_check.h"

void pin_init(struct pin_heap *h);
/* Keeps the path of n_path tokens that ends in node n. -ENOMEM, -EUSERS, -EDQUOT: store.h. */
MUST_CHECK int pin_new(struct store *s, struct store_node *n, uint32_t n_path, uint64_t until_ns,
		       uint64_t *ret_pin);
void pin_end(struct store *s, struct store_pin *p);
void pin_expire(struct store *s, uint64_t now_ns);
/* UINT64_MAX: none. */
uint64_t pin_next_ns(const struct store *s);
/* Ends all of them. */
void pin_done(struct store *s);

#endif
