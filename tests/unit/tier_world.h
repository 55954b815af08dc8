/*
 * tier_world.h - a store with lower tiers over a pool of real bytes, for tests.
 *
 * The row of a token is filled with a pattern of the token's whole prefix, so that a path can be
 * compared with what ought to have been computed for it, wherever its pages have been. Copies take
 * place when they are asked for, or, while held, when they are let go.
 */
#ifndef COPPICE_TIER_WORLD_H
#define COPPICE_TIER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kvstore/seq/gather.h"
#include "store_inside.h"
#include "kvstore/files/tier_file.h"
#include "kvstore/files/tier_host.h"
#include "kvstore/tier.h"

#define WORLD_EXTENTS 64u
#define WORLD_PAGE_TOKENS 4u
#define WORLD_ROW_BYTES 2048u
#define WORLD_PAGE_BYTES (WORLD_PAGE_TOKENS * WORLD_ROW_BYTES)
#define WORLD_UNIT_BYTES 4096u
#define WORLD_PAGE_UNITS (WORLD_PAGE_BYTES / WORLD_UNIT_BYTES)
#define WORLD_CHUNK_UNITS 8u
#define WORLD_COPIES 256u
#define WORLD_OWNER 77u /* a domain that no limit of a tier binds */

/* In pages; 0: none. */
struct tier_world_options {
	uint32_t device_pages, host_pages, file_pages;
	uint32_t domain_host_pages, domain_file_pages;
	const char *path; /* of the file */
	uint32_t depth; /* 0: 4 */
	bool long_paths;
};

/* Copies of one way, in order. */
struct tier_world_way {
	struct tier_copy copies[WORLD_COPIES]; /* a ring */
	uint64_t n_asked, n_done;
	bool held;
};

struct tier_world {
	struct tier_world_options options;
	struct store *store;
	struct store_model *model;
	uint8_t *pool; /* owned */
	struct tier_world_way downs, ups;
	struct store_tiers_found found;
	struct tier_report report; /* of the file, at open */
	uint64_t now_ns;
};

/* 0, or what tier_file_open said, with its sentence. */
int tier_world_open(struct tier_world *w, struct tier_world_options options, char *error,
		    size_t error_bytes);
void tier_world_close(struct tier_world *w);
void tier_world_check(struct tier_world *w); /* store_validate */
/* Held copies take place. */
void tier_world_let_go(struct tier_world *w);

/* Whose tokens: of domain 1 and salt 0 unless said otherwise. */
struct tier_world_key {
	struct store_model *model;
	uint64_t domain, salt;
};

struct store_seq *tier_world_seq(struct tier_world *w, struct tier_world_key key,
				 const char *prompt, struct store_match *ret);
/* Computes and publishes what is left of a document after where the sequence stands. 0 or what the
 * store said. */
int tier_world_publish(struct tier_world *w, struct store_seq *q, const char *document);
/* Polls until nothing is promoted for the sequence any more; returns its match. */
struct store_match tier_world_wait(struct tier_world *w, struct store_seq *q);
/* Polls until nothing is under way. */
void tier_world_settle(struct tier_world *w);
/* Every byte of the sequence's path is what ought to be there for these tokens. */
bool tier_world_right(struct tier_world *w, const struct store_seq *q, const char *tokens);
/* The same of a path that may be partly in host memory; waits for copies under way. */
bool tier_world_right_anywhere(struct tier_world *w, struct store_seq *q, const char *tokens);

/* Computes a document and leaves it. */
void tier_world_leave(struct tier_world *w, const char *document);
/* Opens a document, waits for what comes from lower tiers, compares it, and closes; returns how
 * much of it was there. Fails the test if any byte of it is wrong. */
uint32_t tier_world_cached(struct tier_world *w, struct tier_world_key key, const char *document);

struct store_tiers_stats tier_world_stats(const struct tier_world *w);

#endif
