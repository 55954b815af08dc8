/*
 * listing.h - what the daemon sends in pages, read whole: the nodes of its tree, its sessions, its
 * models, its pins.
 */
#ifndef CTL_LISTING_H
#define CTL_LISTING_H

#include "call.h"
#include "proto/must_check.h"
#include "table.h"

#include <jansson.h>

struct listing {
	ProtobufCMessage **items; /* owned, each and all; of the type that the reply repeats */
	size_t n;
};

/* Asks page after page for verb, a field of control.proto's Request and Reply alike. Blocks. 0, or
 * -errno with call->error; listing_done empties *ret either way. */
MUST_CHECK int listing_read(struct call *call, const char *verb, struct listing *ret);
void listing_done(struct listing *listing);

/* Drops item i; those behind it move up. */
void listing_drop(struct listing *listing, size_t i);

/* Every item, in order. New reference, NULL where memory is out. */
json_t *listing_json(const struct listing *listing);
/* {"name": [...]} on a line. 0, or -errno with call->error. */
MUST_CHECK int listing_print_json(struct call *call, const struct listing *listing,
				  const char *name);

struct listing_table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns;
	const char *none; /* what an empty one says */
	int (*add)(struct table *table, const void *item); /* by table_add; 0 or -ENOMEM */
};
/* A row for each item. 0, or -ENOMEM with call->error. */
MUST_CHECK int listing_print_table(struct call *call, const struct listing *listing,
				   const struct listing_table *as);

static inline void listing_donep(struct listing *listing)
{
	listing_done(listing);
}
#define LISTING __attribute__((cleanup(listing_donep))) struct listing

#endif
