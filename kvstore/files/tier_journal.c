/*
 * tier_journal.c - records and areas.
 *
 * A record goes behind the last one, and a zero head behind it, in one write; a torn write is found
 * by the checksum. What is written anew goes to the other area, whose head with the next generation
 * is written last: until then the old area counts. What a record says is its caller's, of
 * tier_catalog.c.
 */
#include "tier_journal.h"

#include "proto/arith.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Of records for which no memory is needed; those of what goes are short. */
#define SOME_BYTES 1024u
#define AREA_MAGIC UINT64_C(0x316c6e6a656361ff)

struct area_head {
	uint64_t magic;
	uint64_t file_id;
	uint64_t generation;
	uint64_t check; /* of what stands before */
};

/* The body follows, padded to 8 bytes. A head with bytes == 0 ends the log. */
struct record_head {
	uint32_t bytes; /* of the body */
	uint32_t type;
	uint64_t check; /* of bytes, type and body */
};

_Static_assert(sizeof(struct area_head) == 32 && sizeof(struct record_head) == 16,
	       "as they lie in files");

static uint64_t record_seed(uint64_t file_id, uint64_t generation)
{
	return file_id ^ generation * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t record_check(const struct record_head *head, const void *body, uint64_t seed)
{
	uint64_t of_head = XXH3_64bits_withSeed(head, offsetof(struct record_head, check), seed);

	return XXH3_64bits_withSeed(body, head->bytes, of_head);
}

static uint64_t head_check(const struct area_head *head)
{
	return XXH3_64bits(head, offsetof(struct area_head, check));
}

uint64_t tier_journal_record_bytes(uint32_t body_bytes)
{
	return sizeof(struct record_head) + align_to(body_bytes, 8);
}

static int write_all(int fd, const void *from, uint64_t bytes, uint64_t at)
{
	while (bytes > 0) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from = (const char *)from + n;
		bytes -= (uint64_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static int read_all(int fd, void *to, uint64_t bytes, uint64_t at)
{
	while (bytes > 0) {
		ssize_t n = pread(fd, to, bytes, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		to = (char *)to + n;
		bytes -= (uint64_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static int head_write(const struct tier_journal *j, uint32_t area, uint64_t generation)
{
	struct area_head head = {
		.magic = AREA_MAGIC,
		.file_id = j->file_id,
		.generation = generation,
	};

	head.check = head_check(&head);
	return write_all(j->fd, &head, sizeof(head), j->at[area]);
}

int tier_journal_format(struct tier_journal *j)
{
	static const char zero[TIER_JOURNAL_BLOCK];
	int r = 0;

	for (uint32_t i = 0; i < 2 && !r; i++) {
		r = write_all(j->fd, zero, sizeof(zero), j->at[i]);
		if (!r)
			r = write_all(j->fd, zero, sizeof(zero), j->at[i] + TIER_JOURNAL_BLOCK);
	}
	j->active = 0;
	j->generation = 1;
	j->tail = TIER_JOURNAL_BLOCK;
	j->n_records = 0;
	j->failed = false;
	return r ? r : head_write(j, 0, 1);
}

/* The area with the newest head. */
static int area_find(struct tier_journal *j)
{
	bool found = false;

	for (uint32_t i = 0; i < 2; i++) {
		struct area_head head;
		int r = read_all(j->fd, &head, sizeof(head), j->at[i]);
		if (r)
			return r;
		if (head.magic != AREA_MAGIC || head.file_id != j->file_id ||
		    head.check != head_check(&head) || (found && head.generation < j->generation))
			continue;
		found = true;
		j->active = i;
		j->generation = head.generation;
	}
	return found ? 0 : -EINVAL;
}

/* The record at an offset of an area, checked; NULL: there is none. */
static const struct record_head *record_at(const struct tier_journal *j, const char *area,
					   uint64_t at)
{
	const struct record_head *head = (const void *)(area + at);

	if (at + sizeof(*head) > j->area_bytes || head->bytes == 0 ||
	    head->bytes > TIER_JOURNAL_MAX_BYTES ||
	    at + tier_journal_record_bytes(head->bytes) > j->area_bytes)
		return NULL;
	uint64_t seed = record_seed(j->file_id, j->generation);
	return head->check == record_check(head, head + 1, seed) ? head : NULL;
}

int tier_journal_replay(struct tier_journal *j, tier_journal_read read, void *ctx, bool *ret_torn)
{
	int r = area_find(j);

	if (r)
		return r;
	CLEANUP_FREE char *area = malloc(j->area_bytes);
	if (!area)
		return -ENOMEM;
	r = read_all(j->fd, area, j->area_bytes, j->at[j->active]);
	const struct record_head *head;
	uint64_t at = TIER_JOURNAL_BLOCK;
	j->n_records = 0;
	while (!r && (head = record_at(j, area, at))) {
		if (read(ctx, head->type, head + 1, head->bytes))
			break;
		at += tier_journal_record_bytes(head->bytes);
		j->n_records++;
	}
	j->tail = at;
	*ret_torn = !r && at + sizeof(*head) <= j->area_bytes &&
		    ((const struct record_head *)(const void *)(area + at))->bytes != 0;
	return r;
}

/* Fills to with a record; room must be there. */
static void record_make(char *to, uint32_t type, const void *body, uint32_t bytes, uint64_t seed)
{
	struct record_head head = {.bytes = bytes, .type = type};

	head.check = record_check(&head, body, seed);
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), body, bytes);
	memset(to + sizeof(head) + bytes, 0, align_to(bytes, 8) - bytes);
}

int tier_journal_append(struct tier_journal *j, uint32_t type, const void *body, uint32_t bytes)
{
	uint64_t record_bytes = tier_journal_record_bytes(bytes);
	uint64_t end_bytes = sizeof(struct record_head);

	if (j->failed)
		return -EIO;
	if (j->tail + record_bytes + end_bytes > j->area_bytes)
		return -ENOSPC;
	char some[SOME_BYTES];
	char *buffer =
		record_bytes + end_bytes <= sizeof(some) ? some : malloc(record_bytes + end_bytes);
	if (!buffer)
		return -ENOMEM;
	record_make(buffer, type, body, bytes, record_seed(j->file_id, j->generation));
	memset(buffer + record_bytes, 0, end_bytes);
	int r = write_all(j->fd, buffer, record_bytes + end_bytes, j->at[j->active] + j->tail);
	if (buffer != some)
		free(buffer);
	if (r) {
		j->failed = true;
		return r == -ENOSPC ? -EIO : r;
	}
	j->tail += record_bytes;
	j->n_records++;
	return 0;
}

int tier_journal_copy_begin(const struct tier_journal *j, struct tier_journal_copy *ret)
{
	struct tier_journal_copy copy = {
		.capacity = j->area_bytes - TIER_JOURNAL_BLOCK,
		.generation = j->generation + 1,
		.file_id = j->file_id,
	};

	copy.bytes = malloc(copy.capacity);
	if (!copy.bytes)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

int tier_journal_copy_add(struct tier_journal_copy *copy, uint32_t type, const void *body,
			  uint32_t bytes)
{
	uint64_t record_bytes = tier_journal_record_bytes(bytes);

	if (copy->used + record_bytes + sizeof(struct record_head) > copy->capacity)
		return -ENOSPC;
	record_make(copy->bytes + copy->used, type, body, bytes,
		    record_seed(copy->file_id, copy->generation));
	copy->used += record_bytes;
	copy->n_records++;
	return 0;
}

/* Records first, then the head that makes them count. */
int tier_journal_copy_commit(struct tier_journal *j, struct tier_journal_copy *copy)
{
	uint32_t other = !j->active;

	memset(copy->bytes + copy->used, 0, sizeof(struct record_head));
	int r = j->failed ? -EIO : 0;
	if (!r)
		r = write_all(j->fd, copy->bytes, copy->used + sizeof(struct record_head),
			      j->at[other] + TIER_JOURNAL_BLOCK);
	if (!r)
		r = head_write(j, other, copy->generation);
	if (r) {
		j->failed = true;
	} else {
		j->active = other;
		j->generation = copy->generation;
		j->tail = TIER_JOURNAL_BLOCK + copy->used;
		j->n_records = copy->n_records;
	}
	tier_journal_copy_free(copy);
	return r;
}

void tier_journal_copy_free(struct tier_journal_copy *copy)
{
	free(copy->bytes);
	copy->bytes = NULL;
}
