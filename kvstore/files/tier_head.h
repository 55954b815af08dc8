/*
 * tier_head.h - the first block of a tier file, and where the rest of it lies.
 */
#ifndef COPPICE_KVSTORE_TIER_HEAD_H
#define COPPICE_KVSTORE_TIER_HEAD_H

#include "proto/must_check.h"

#include <stddef.h>
#include <stdint.h>

#define TIER_HEAD_BYTES 4096u
#define TIER_HEAD_VERSION 1u

struct tier_head {
	char magic[8];
	uint32_t version; /* stands here in every version */
	uint32_t unit_bytes;
	uint32_t chunk_units;
	uint32_t pad;
	uint64_t n_units;
	uint64_t journal_bytes; /* of each area; the first begins after the head */
	uint64_t data_at; /* of unit 0; a multiple of unit_bytes */
	uint64_t id; /* random */
	uint64_t check; /* of what stands before */
};

_Static_assert(sizeof(struct tier_head) == 64, "as it lies in files");

static inline uint64_t tier_head_file_bytes(const struct tier_head *head)
{
	return head->data_at + head->n_units * head->unit_bytes;
}

/* The head of a new file of at most so many bytes. -EINVAL where not even one chunk fits, -EFBIG
 * where more do than can be counted. */
MUST_CHECK int tier_head_make(uint64_t bytes, uint32_t unit_bytes, uint32_t chunk_units,
			      struct tier_head *ret);
/* Bytes of the smallest file with such units. */
uint64_t tier_head_least_bytes(uint32_t unit_bytes, uint32_t chunk_units);

/* Of a file with file_bytes. 0; -EINVAL, -EPROTONOSUPPORT, -errno with a sentence. */
MUST_CHECK int tier_head_read(int fd, uint64_t file_bytes, struct tier_head *ret, char *error,
			      size_t error_bytes);
MUST_CHECK int tier_head_write(int fd, const struct tier_head *head); /* 0 or -errno */

#endif
