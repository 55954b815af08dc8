/*
 * tier_head.c - where the parts of a tier file lie, and whether a file is one.
 *
 * The head is written once, when the file is made, and everything else is found from it. What it
 * says is held against the file's size and against sense before anything is read by it.
 */
#include "tier_head.h"

#include "tier_journal.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#define UNIT_JOURNAL_BYTES 512u /* a record of 64 tokens, and half as much again for what was */
#define LEAST_JOURNAL_BYTES (64u << 10)

static const char magic[8] = "coptier";

static uint64_t head_check(const struct tier_head *head)
{
	return XXH3_64bits(head, offsetof(struct tier_head, check));
}

static struct tier_head layout(uint64_t n_units, uint32_t unit_bytes, uint32_t chunk_units)
{
	struct tier_head head = {
		.version = TIER_HEAD_VERSION,
		.unit_bytes = unit_bytes,
		.chunk_units = chunk_units,
		.n_units = n_units,
	};

	memcpy(head.magic, magic, sizeof(magic));
	head.journal_bytes =
		round_up(n_units * UNIT_JOURNAL_BYTES + LEAST_JOURNAL_BYTES, TIER_JOURNAL_BLOCK);
	head.data_at = round_up(TIER_HEAD_BYTES + 2 * head.journal_bytes, unit_bytes);
	return head;
}

uint64_t tier_head_least_bytes(uint32_t unit_bytes, uint32_t chunk_units)
{
	struct tier_head head = layout(chunk_units, unit_bytes, chunk_units);

	return tier_head_file_bytes(&head);
}

int tier_head_make(uint64_t bytes, uint32_t unit_bytes, uint32_t chunk_units, struct tier_head *ret)
{
	if (unit_bytes == 0 || unit_bytes % TIER_HEAD_BYTES || chunk_units == 0)
		return -EINVAL;
	if (bytes / unit_bytes >= UINT32_MAX)
		return -EFBIG;
	uint64_t chunk_bytes = (uint64_t)unit_bytes * chunk_units;
	uint64_t n_chunks = bytes / chunk_bytes;
	struct tier_head head = layout(n_chunks * chunk_units, unit_bytes, chunk_units);
	while (n_chunks > 0 && tier_head_file_bytes(&head) > bytes)
		head = layout(--n_chunks * chunk_units, unit_bytes, chunk_units);
	if (n_chunks == 0)
		return -EINVAL;
	if (getrandom(&head.id, sizeof(head.id), 0) != sizeof(head.id))
		return -errno;
	head.check = head_check(&head);
	*ret = head;
	return 0;
}

/* Numbers that no file of ours has, whatever the checksum says. */
static bool layout_ok(const struct tier_head *head)
{
	return head->unit_bytes > 0 && head->unit_bytes % TIER_HEAD_BYTES == 0 &&
	       head->chunk_units > 0 && head->n_units > 0 && head->n_units < UINT32_MAX &&
	       head->journal_bytes > TIER_JOURNAL_BLOCK &&
	       head->journal_bytes % TIER_JOURNAL_BLOCK == 0 &&
	       head->journal_bytes < UINT64_C(1) << 48 && head->data_at < UINT64_C(1) << 56 &&
	       head->data_at >= TIER_HEAD_BYTES + 2 * head->journal_bytes &&
	       head->data_at % head->unit_bytes == 0;
}

int tier_head_read(int fd, uint64_t file_bytes, struct tier_head *ret, char *error,
		   size_t error_bytes)
{
	struct tier_head head = {0};

	if (pread(fd, &head, sizeof(head), 0) < 0) {
		int r = -errno;
		snprintf(error, error_bytes, "the head cannot be read: %s", strerror(-r));
		return r;
	}
	if (memcmp(head.magic, magic, sizeof(magic))) {
		snprintf(error, error_bytes, "it is no tier file, and is left alone");
		return -EINVAL;
	}
	if (head.version != TIER_HEAD_VERSION) {
		snprintf(error, error_bytes, "it has version %u, and this program knows %u",
			 head.version, TIER_HEAD_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (head.check != head_check(&head) || !layout_ok(&head)) {
		snprintf(error, error_bytes, "its head is damaged");
		return -EINVAL;
	}
	if (tier_head_file_bytes(&head) > file_bytes) {
		snprintf(error, error_bytes, "it is truncated: %lu bytes of %lu", file_bytes,
			 tier_head_file_bytes(&head));
		return -EINVAL;
	}
	*ret = head;
	return 0;
}

int tier_head_write(int fd, const struct tier_head *head)
{
	ssize_t n = pwrite(fd, head, sizeof(*head), 0);

	if (n < 0)
		return -errno;
	return n == sizeof(*head) ? 0 : -EIO;
}
