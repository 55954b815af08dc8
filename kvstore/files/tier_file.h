/*
 * tier_file.h - the NVMe tier: one file of places for pages, read and written through io_uring with
 * O_DIRECT.
 *
 *      [ head | journal, area 0 | journal, area 1 | unit 0 | unit 1 | ... ]
 *
 * Pages go in and out a bounded number at a time; the checksum of a page is made as its write
 * begins, and verified on every way back. What lies where is the catalog's matter (tier_catalog.h).
 *
 * One thread, none of its own. Nothing here blocks on pages; opening, closing and tier_verify
 * block.
 */
#ifndef COPPICE_KVSTORE_TIER_FILE_H
#define COPPICE_KVSTORE_TIER_FILE_H

#include "tier_catalog.h"

struct tier_file; /* opaque: io_uring stays inside */

struct tier_file_config {
	const char *path; /* borrowed during the call */
	/* of a file that is made; one that is there keeps its size, unit and chunk */
	uint64_t bytes;
	uint32_t unit_bytes; /* a multiple of 4 KiB */
	uint32_t chunk_units; /* units of the largest page at least */
	uint32_t depth; /* reads and writes under way at most, 1 to 1,024 */
	char typed_in; /* of bytes: the unit in which people said so (size_text); 0: none */
};

/* Makes the file where there is none, or an empty one, else reads its journal. Why not, as a
 * sentence, in error: -EINVAL too small, truncated, damaged or no tier file; -EPROTONOSUPPORT
 * another version; -EOPNOTSUPP no O_DIRECT; -ENOSYS, -EPERM no io_uring; -EBUSY in use; -ENOSPC,
 * -EROFS, -EACCES, ... as the system says. Nothing foreign is overwritten. */
MUST_CHECK int tier_file_open(const struct tier_file_config *config, struct tier_file **ret,
			      char *error, size_t error_bytes);
/* Waits for what is under way. What the file holds stays. NULL is fine. */
void tier_file_close(struct tier_file *file);
struct tier_catalog *tier_file_catalog(struct tier_file *file);

/* Memory that pages will be read to and written from, aligned to 4 KiB. It is pinned once for those
 * reads and writes that go to one piece of it; pages that lie together in the file and apart in
 * memory go in one, which pins them each time. Optional. 0 or -errno. */
MUST_CHECK int tier_file_register(struct tier_file *file, void *base, size_t bytes);

/* Can one more read or write begin? */
bool tier_file_has_room(const struct tier_file *file);
/* Begin, where tier_file_has_room. page: aligned to 4 KiB, with room for whole blocks of it; its
 * bytes stay as they are until the end. bytes: the model's page bytes. tag: comes back. */
void tier_file_write(struct tier_file *file, uint32_t place, void *page, uint64_t bytes, void *tag);
/* The place has an image. */
void tier_file_read(struct tier_file *file, uint32_t place, void *page, uint64_t bytes, void *tag);
/* Hands to the system what has begun. */
void tier_file_kick(struct tier_file *file);

/* A read or write that has ended. */
struct tier_done {
	void *tag;
	int result; /* 0; -EBADMSG: the bytes are not those that were written; another -errno */
	uint64_t checksum; /* of the page */
};

/* One that has ended since, false: none. Does not block. To be asked until there is none: several
 * end with one event. */
bool tier_file_next(struct tier_file *file, struct tier_done *ret);
/* A descriptor that is readable when there is one again. */
int tier_file_fd(const struct tier_file *file);

/* Reads a whole file that nobody uses, and checks every image. 0 where it could be read, and ret
 * says what is wrong in it; else as tier_file_open. Changes nothing. Blocks. */
MUST_CHECK int tier_verify(const char *path, struct tier_report *ret, char *error,
			   size_t error_bytes);

#endif
