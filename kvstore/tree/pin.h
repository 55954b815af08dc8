/*
 * pin.h - paths that count as used until some time; a heap orders the pins by when they end.
 */
#ifndef COPPICE_KVSTORE_PIN_H
#define COPPICE_KVSTORE_PIN_H

#include "kvstore/base/index.h"
#include "kvstore/store.h"

#include <sys/queue.h>

struct store_pin {
	struct index_link link; /* in store.pins, by id */
	uint64_t id;
	uint64_t until_ns;
	struct store_node *node;
	uint32_t n_path; /* of the path that is pinned; ends in node */
	uint32_t heap_index;
	LIST_ENTRY(store_pin) at_node;
	TAILQ_ENTRY(store_pin) by_age;
};

TAILQ_HEAD(store_pin_queue, store_pin);

struct pin_heap {
	struct store_pin **pins; /* owned, each too; the one that ends first, first */
	uint32_t n;
	uint32_t capacity;
	uint64_t last_id;
	struct store_pin_queue by_age; /* ids rise along it */
};

void pin_init(struct pin_heap *h);
void pin_end(struct store *s, struct store_pin *p);
void pin_expire(struct store *s, uint64_t now_ns);
/* UINT64_MAX: none. */
uint64_t pin_next_ns(const struct store *s);
/* Ends all of them. */
void pin_done(struct store *s);

#endif
