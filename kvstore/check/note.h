/*
 * note.h - what the parts of store_validate share: what was found in the trees, to be held
 * against what is counted.
 */
#ifndef COPPICE_KVSTORE_NOTE_H
#define COPPICE_KVSTORE_NOTE_H

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
	uint64_t *lru_ranks[STORE_TIERS]; /* owned: [node slot] rank in its list, 0: not listed */
	/* owned: [place] of a lower tier, slices and moves that refer to it */
	uint32_t *refs[STORE_TIERS];
	uint64_t n_nodes, n_tokens, n_seqs, prompt_bytes, pinned_bytes, n_pins, n_claims,
		n_namespaces, n_wants, n_dirty, n_noted;
};

/* Writes the sentence; returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int note_fail(struct validate *v, const char *format, ...);

#define CHECK(v, condition, ...) \
	do { \
		if (!(condition)) \
			return note_fail(v, __VA_ARGS__); \
	} while (0)

#define TRY(call) \
	do { \
		int try_result = (call); \
		if (try_result) \
			return try_result; \
	} while (0)

/* A slice of tokens that begin at pos: in a page of the holding's, rows where they belong and
 * nobody else's. */
MUST_CHECK int note_slice(struct validate *v, struct store_holding *h, struct store_slice slice,
			  uint32_t pos);

/* Depth first; NULL: that was the namespace's last. */
const struct store_node *note_next(const struct store_node *n);

#endif
