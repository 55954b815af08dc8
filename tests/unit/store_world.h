/*
 * store_world.h - a store with all it stands on, and a naive model of it, for store_random_test.c.
 *
 * store_world.c   the pool, whose rows are written, copied and lost; lower tiers; the random
 * numbers store_naive.c   the model: what sequences must have, find and claim store_ops.c
 * operations, each on both
 */
#ifndef COPPICE_TESTS_STORE_WORLD_H
#define COPPICE_TESTS_STORE_WORLD_H

#include "store_fixture.h"
#include "store_inside.h"

#include "kvstore/seq/gather.h"
#include "kvstore/files/tier_file.h"
#include "kvstore/files/tier_host.h"
#include "kvstore/tier.h"
#include "proto/arith.h"

#define WORLD_SEQS 24u
#define WORLD_MAX_TOKENS 48u
#define WORLD_MODELS 2u
#define WORLD_SPACES 6u
#define WORLD_PINS 4u
#define WORLD_RECENT 32u
#define WORLD_EXTENT_BYTES 832u
#define WORLD_UNIT_BYTES 4096u
#define WORLD_CHUNK_UNITS 4u
#define WORLD_MAX_COPIES 256u

struct model_seq {
	struct store_seq *q; /* owned; NULL: this entry is free */
	uint32_t space;
	uint32_t n; /* published */
	uint32_t n_prompt; /* 0: computed or left */
	uint32_t n_live;
	uint32_t n_accepted;
	bool draft;
	bool claims;
	uint64_t lease_ns;
	uint32_t tokens[2 * WORLD_MAX_TOKENS]; /* published, then the prompt's rest */
	uint32_t live[WORLD_MAX_TOKENS];
	uint32_t accepted[WORLD_MAX_TOKENS]; /* indices that will be accepted */
};

/* A token string that was published and may be there still. */
struct recent {
	uint32_t space, n;
	uint64_t losses; /* when it was seen to be there */
	uint32_t tokens[WORLD_MAX_TOKENS];
};

/* Of a run. */
struct room {
	uint32_t n_extents;
	uint32_t n_devices; /* 0: one */
	uint32_t n_reserved; /* extents: store_config.reserved_extents */
	uint64_t domain_bytes;
	bool owner_is_free; /* domain 0 has no limit */
	uint32_t host_units, file_units; /* 0: no such tier */
	uint64_t domain_tier_bytes;
	bool flips; /* bits in the file */
	bool short_memory; /* of tiers, extensions and publications */
	bool long_paths; /* may be longer than the device has room for */
};

/* A copy under way: down, with the bytes on their way; up, not begun. */
struct copy {
	struct tier_copy what;
	uint8_t bytes[WORLD_EXTENT_BYTES];
};

/* Copies of one way, a ring. */
struct copies {
	struct copy ring[WORLD_MAX_COPIES];
	uint64_t n_asked, n_done;
};

struct world {
	struct fixture f;
	struct room room;
	char directory[64], path[80];
	struct copies downs, ups;
	struct store_model *models[WORLD_MODELS];
	struct model_seq seqs[WORLD_SEQS];
	struct recent recent[WORLD_RECENT];
	uint64_t pins[WORLD_PINS];
	struct gather gather; /* for checks; its room stays */
	struct gather held; /* while others do what they do */
	const struct model_seq *held_by; /* NULL: nobody */
	uint8_t pool[FIXTURE_EXTENTS][WORLD_EXTENT_BYTES];
	uint64_t random;
	uint64_t cursor;
	uint32_t n_recent;
	uint64_t n_enospc, n_edquot, n_promoted, n_restarts, n_restored, n_held, n_below, n_tails;
	uint64_t n_collapsed; /* before the last restart */
};

extern const uint32_t world_page_tokens[WORLD_MODELS], world_page_bytes[WORLD_MODELS];

static inline uint32_t model_of(uint32_t space)
{
	return space % WORLD_MODELS;
}

static inline uint64_t prefix_hash(uint64_t before, uint32_t token)
{
	return (before ^ (token + 1)) * 0x9e3779b97f4a7c15u ^ before >> 29;
}

static inline uint64_t path_hash(const uint32_t *tokens, uint32_t n)
{
	uint64_t hash = 1;

	for (uint32_t i = 0; i < n; i++)
		hash = prefix_hash(hash, tokens[i]);
	return hash;
}

static inline uint32_t common(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

/* ---- store_world.c ---- */

/* Every fortieth request for memory fails, while this is on. */
extern bool world_memory_is_short;

void world_init(struct world *w, uint64_t seed, struct room room);
void world_done(struct world *w);
/* Between them: all but the file ends, and is made anew. */
void world_open(struct world *w);
void world_close(struct world *w);
/* 0 to n - 1 */
uint32_t world_below(struct world *w, uint32_t n);
uint32_t world_n_devices(const struct world *w);
/* What was last written there: the hash of a prefix. */
uint64_t *world_row(struct world *w, uint32_t model, uint32_t page, uint32_t row);
/* The rows of a place in host memory, which may be on their way there. */
const uint64_t *world_place(const struct world *w, const void *memory);

/* ---- store_naive.c ---- */

/* Every token of the path lies in its row, with its prefix. */
void naive_check_path(struct world *w, const struct model_seq *m);
void naive_check_match(struct world *w, struct model_seq *m, struct store_match match);
void naive_check_counts(struct world *w);
/* At least so many tokens must be found: in use, or seen since the last eviction. */
uint32_t naive_least_cached(struct world *w, const struct model_seq *m, const uint32_t *tokens,
			    uint32_t n);
void naive_remember(struct world *w, const struct model_seq *m);
void naive_end_leases(struct world *w);
/* The sequence has moved down; its claim moves with it or ends. */
void naive_move_claim(struct world *w, struct model_seq *m);
/* Mostly what others have, changed somewhere. */
uint32_t naive_prompt(struct world *w, uint32_t *ret);

/* ---- store_ops.c ---- */

void ops_open(struct world *w, struct model_seq *m);
void ops_fork(struct world *w, struct model_seq *m, struct model_seq *to);
/* Any other of a sequence that is open. */
void ops_on_seq(struct world *w, struct model_seq *m);
void ops_walk(struct world *w);
/* Every pin is listed once, the oldest first. */
void ops_pins(struct world *w);
/* Of a sequence that stands below the device a gather begins, and stays until the sequence does
 * anything. */
void ops_hold(struct world *w, const struct model_seq *m);
void ops_let_go(struct world *w);
void ops_tick(struct world *w);

#endif
