/*
 * tier_journal.h - a log of records in a file: appended with checksums, replayed at open, compacted
 * when full.
 *
 *      area 0: generation 7   [ head | record | record | ... | record | 0 ]      active
 *      area 1: generation 6   [ head | ...                                ]      written anew next
 *
 * A record's checksum is seeded with the file's number and the area's generation, so that what an
 * area held before is never taken for new. A record that is torn or altered ends the log: those
 * before it are a state that the file once had. After a failed write nothing is appended any more,
 * so that the log never has holes.
 *
 * Writes go to the page cache and outlive the process; the file system decides when they reach the
 * disk.
 */
#ifndef COPPICE_KVSTORE_TIER_JOURNAL_H
#define COPPICE_KVSTORE_TIER_JOURNAL_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

#define TIER_JOURNAL_BLOCK 4096u /* areas begin and end at multiples of it */
#define TIER_JOURNAL_MAX_BYTES (1u << 20) /* of a record's body */

struct tier_journal {
	int fd; /* borrowed, buffered */
	uint64_t at[2]; /* offsets of the areas */
	uint64_t area_bytes;
	uint64_t file_id;
	uint64_t generation;
	uint32_t active;
	uint64_t tail; /* offset in the active area where the next record goes */
	uint64_t n_records; /* in the active area */
	bool failed;
};

/* Empty areas; the rest of *j is set by the caller. 0 or -errno. */
MUST_CHECK int tier_journal_format(struct tier_journal *j);

/* One record; body is borrowed and aligned to 8 bytes. Non-zero ends the log before this record. */
typedef int (*tier_journal_read)(void *ctx, uint32_t type, const void *body, uint32_t bytes);

/* Feeds the records in order. *ret_torn: the log ends in something that is no record. 0; -EINVAL
 * where neither area has a head; -ENOMEM, -errno. */
MUST_CHECK int tier_journal_replay(struct tier_journal *j, tier_journal_read read, void *ctx,
				   bool *ret_torn);

/* Bytes that a record with such a body takes. */
uint64_t tier_journal_record_bytes(uint32_t body_bytes);
/* -ENOSPC: the area is full, -ENOMEM (never for a few hundred bytes): nothing has changed. Any
 * other error is final. */
MUST_CHECK int tier_journal_append(struct tier_journal *j, uint32_t type, const void *body,
				   uint32_t bytes);

/* All that is to stay, collected for the other area. */
struct tier_journal_copy {
	char *bytes; /* owned */
	uint64_t capacity, used, n_records;
	uint64_t generation;
	uint64_t file_id;
};

MUST_CHECK int tier_journal_copy_begin(const struct tier_journal *j, struct tier_journal_copy *ret);
/* -ENOSPC. */
MUST_CHECK int tier_journal_copy_add(struct tier_journal_copy *copy, uint32_t type,
				     const void *body, uint32_t bytes);
/* Makes the copy the log. An error is final. Frees the copy. */
MUST_CHECK int tier_journal_copy_commit(struct tier_journal *j, struct tier_journal_copy *copy);
void tier_journal_copy_free(struct tier_journal_copy *copy);

#endif
