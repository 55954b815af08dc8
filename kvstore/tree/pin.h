/*
 * pin.h - paths that count as used until some time; a heap orders the pins by when they end.
 */
#ifndef COPPICE_KVSTORE_PIN_H
#define COPPICE_KVSTORE_PIN_H

#include "core.h"

void pin_init(struct pin_heap *h);
void pin_end(struct store *s, struct store_pin *p);
void pin_expire(struct store *s, uint64_t now_ns);
/* UINT64_MAX: none. */
uint64_t pin_next_ns(const struct store *s);
/* Ends all of them. */
void pin_done(struct store *s);

#endif
