/*
 * tier.h - tiers below the device: host memory, and a file.
 *
 *      device pages  --down-->  host memory  --write-->  file
 *                    <---up---               <--read---
 *
 * Down goes what is evicted; the file is also written ahead. Up goes what a prompt matches, the
 * slices nearest to the root first.
 *
 * With tiers eviction moves slices down instead of dropping them, the last of the oldest leaf
 * first; where a tier is full, its oldest go. A match that ends in a lower tier reports the rest as
 * pending and asks for it; it is cached once it is on the device, or ours to compute where it
 * cannot be had. So sequences stand on the device, unless long_paths allows otherwise.
 *
 * The file holds copies, of whole paths from the root on, and outlives the process. What a read
 * brings is verified; bytes that are not what was written become a miss, and what hangs below them
 * with them.
 *
 * The store moves no bytes of pages: the mover does, for any backend. While copies up are under way
 * that nobody wants any more, their pages are not to be had: an extension that finds no room then
 * may do so after the next poll.
 */
#ifndef COPPICE_KVSTORE_TIER_H
#define COPPICE_KVSTORE_TIER_H

#include "kvstore/store.h"

struct tier_host; /* files/tier_host.h */
struct tier_file; /* files/tier_file.h */

/* A page of the pool and as many bytes of host memory. */
struct tier_copy {
	uint32_t extent;
	uint64_t offset_bytes; /* of the page, in the extent */
	uint64_t bytes;
	void *host; /* aligned to 4 KiB */
	uint32_t page_tokens;
	uint16_t first, count; /* the rows that matter; the others may be copied or not */
};

/*
 * Copies between the pool and host memory. Copies of one way end in the order in which they were
 * asked for; tokens count them, from 1.
 *
 * After down() returns the store takes the page for free: whoever writes to it later (a batch, a
 * copy up) must do so after the copy has read it. After up() returns the page belongs to the copy:
 * it is written after batches that were submitted before have read it; the store tells nobody of it
 * before ups_done() says that it is there.
 */
struct tier_mover {
	void *ctx; /* borrowed */
	/* returns its token; does not block */
	uint64_t (*down)(void *ctx, const struct tier_copy *copy);
	uint64_t (*up)(void *ctx, const struct tier_copy *copy);
	uint64_t (*downs_done)(void *ctx); /* token of the newest that has ended, 0: none */
	uint64_t (*ups_done)(void *ctx);
	void (*kick)(void *ctx); /* no more for now: what was asked for begins at the latest now */
};

struct store_tiers_config {
	struct tier_mover mover;
	struct tier_host *host; /* the store's from success on */
	struct tier_file *file; /* the same; NULL: none */
	uint64_t domain_bytes[STORE_TIERS]; /* of host and file a domain may have; 0: no limit */
	uint64_t owner_bytes[STORE_TIERS]; /* the same of those whose store it is (store.h) */
	uint32_t depth; /* moves of each kind under way at most */
	/* Paths may be longer than the device has room for: see gather.h. Else an extension for
	 * which they would have to be fails, and so does a want. */
	bool long_paths;
};

/* What a restart found, and how the file will be served. */
struct store_tiers_found {
	uint64_t n_tokens; /* in the file, whole paths */
	uint64_t n_lost; /* images of no use: a model that does not fit, or no path before them */
	/* 0, or why host memory is pinned anew for each read and write, not only for those of
	 * several pieces of it (-ENOMEM: at its limit). */
	int register_error;
};

/* Gives an empty store its lower tiers; what the file holds joins the tree. -EINVAL: the store is
 * not empty, or the file's units are not the host's; -ENOMEM. Blocks while it reads the file's
 * index, not its pages. */
MUST_CHECK int store_tiers_attach(struct store *s, const struct store_tiers_config *config,
				  struct store_tiers_found *ret);

/* Takes note of what has ended and begins what is next. To be called when store_tiers_fd is
 * readable, when copies have ended, and after calls that opened, matched again or evicted. Does not
 * block. Returns whether anything is under way or waits to be. */
bool store_tiers_poll(struct store *s, uint64_t now_ns);
/* Readable while reads or writes of the file have ended; -1: no file. */
int store_tiers_fd(const struct store *s);
/* All that is not in the file yet shall be written, as far as it has room; store_tiers_poll returns
 * false when that is done. For an orderly end. */
void store_tiers_flush(struct store *s);

struct store_tier_stats {
	uint64_t used_bytes, capacity_bytes; /* of host and file */
	uint64_t domain_bytes; /* a domain may have of it, if the store is not its own */
	uint64_t hits; /* slices that matches found here and in no nearer tier */
	uint64_t bytes_in; /* moved here from the tier above: down, written */
	uint64_t bytes_out; /* moved to the tier above: up, read */
	uint64_t waited_ns; /* from match to arrival, of what came from here at the lowest */
	uint64_t share_evicted; /* slices that left as their domain had what it may */
};

struct store_tiers_stats {
	struct store_tier_stats tiers[STORE_TIERS]; /* of the device: none */
	uint64_t slices_dropped; /* evicted from the last tier that could have had them */
	uint64_t images_bad; /* came back altered, or not at all */
	uint64_t wants_failed; /* for lack of room */
	uint64_t n_wants, n_moves; /* now */
	/* Of the file's journal: bytes of records that are needed, and how many there may be;
	 * models that have pages in the file; slices that left it as the journal was full. */
	uint64_t journal_bytes, journal_capacity, n_file_models, journal_evicted;
	const char *error; /* why nothing is written to the file any more; NULL: it is */
};

void store_tiers_stats(const struct store *s, struct store_tiers_stats *ret);

#endif
