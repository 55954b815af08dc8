/*
 * validate.h - what the parts of store_validate share: what was found in the trees, to be held
 * against what is counted.
 */
#ifndef COPPICE_KVSTORE_VALIDATE_H
#define COPPICE_KVSTORE_VALIDATE_H

#include "kvstore/tree/core.h"

struct found_extent {
	uint32_t *n_slices; /* owned: [page] */
	uint8_t *rows; /* owned: [page][row] covered by a slice */
};

struct validate {
	const struct store *s;
	char *error;
	size_t error_bytes;
	struct found_extent *extents; /* owned */
	uint64_t *lru_places[STORE_TIERS]; /* owned: [node slot] place in its list, 0: not listed */
	uint32_t *refs
		/* owned: [place] of a lower tier, slices and moves that refer to it */
		[STORE_TIERS];
	uint64_t n_nodes, n_tokens, n_seqs, n_pins, n_claims, n_spaces, n_wants, n_dirty;
};

/* Writes the sentence; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int validate_fail(struct validate *v, const char *format,
							...);

#define CHECK(v, condition, ...) \
	do { \
		if (!(condition)) \
			return validate_fail(v, __VA_ARGS__); \
	} while (0)

#define TRY(call) \
	do { \
		int try_result = (call); \
		if (try_result) \
			return try_result; \
	} while (0)

/* A slice of tokens that begin at pos: in a page of the holding's, rows where they belong and
 * nobody else's. */
int validate_slice(struct validate *v, struct store_holding *h, struct store_slice slice,
		   uint32_t pos);

int validate_tiers_begin(struct validate *v); /* 0 or -ENOMEM */
void validate_tiers_done(struct validate *v);
/* A node's part below the device, and where its slices are. */
int validate_lower(struct validate *v, const struct store_node *n);
/* A sequence's want. */
int validate_want(struct validate *v, const struct store_node *n, const struct store_seq *q);
/* After the trees: moves, places, who is charged, lists. */
int validate_tiers(struct validate *v);
/* Pages that a holding's moves hold. */
uint64_t validate_moving_pages(const struct validate *v, const struct store_holding *h);

#endif
