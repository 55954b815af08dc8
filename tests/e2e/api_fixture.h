/*
 * api_fixture.h - a daemon, two sessions of it, and a sequence with a few handles that are not what
 * they seem.
 *
 * Everything asserts: a failure ends the test.
 */
#ifndef API_FIXTURE_H
#define API_FIXTURE_H

#include "client/coppice.h"
#include "client/lib/seq/seq.h"
#include "control_harness.h"
#include "element.h"

#define N_LAYERS 2u
#define HEAD_DIM 64u
#define N_NEW 4u
#define MAX_SEQ_TOKENS 30000u
#define N_IDS 32768u
#define LSE_TOLERANCE (test_on_gpu() ? 1e-4 : 1e-5)
#define PATIENCE_NS UINT64_C(30000000000)

struct fixture {
	struct harness *h;
	struct client watch; /* the test's own look at the daemon */
	struct coppice *c, *stranger; /* two sessions */
	struct coppice_arena *arena, *other_arena; /* of c */
	struct coppice_lane *lane, *other_lane; /* of c */
	struct coppice_lane *strangers_lane;
	struct coppice_seq *seq; /* of lane */
	struct coppice_seq *strangers_seq;
	struct coppice_seq closed; /* as a sequence was that is no more */
	struct coppice_seq foreign; /* the stranger's handle in our hands */
	struct coppice_seq astray; /* ours, on the wrong lane */
	uint32_t model, strangers_model;
	uint32_t ids[N_IDS];
};

/* What a refused entry may not move. */
struct counts {
	uint64_t n_nodes, n_tokens, n_pages, n_seqs, n_pins;
};

struct coppice_model_info fixture_model(void);

/* CMocka's: *state is a struct fixture. A small pool has room for some thousand tokens, a small
 * share as well. */
int fixture_setup(void **state);
int fixture_setup_small_pool(void **state);
int fixture_setup_small_share(void **state);
int fixture_teardown(void **state);

struct counts counts_of(struct fixture *f);
void assert_counts(struct fixture *f, const struct counts *before);
/* The connection's last sentence has the words. */
void assert_explained(struct coppice *c, const char *words);

void fixture_open_seq(struct fixture *f); /* f->seq, anew */
/* N_NEW live tokens; all their layers; back to none. */
void fixture_extend(struct fixture *f);
void fixture_finish(struct fixture *f);
void fixture_trim(struct fixture *f);
/* A sequence's part that is right in all, and its step's status; O and LSE are checked where that
 * is 0. */
struct coppice_step_seq right_part(struct fixture *f);
int right_step(struct fixture *f, uint32_t layer);
/* A whole extension goes through, and the sequence is as new. */
void assert_usable(struct fixture *f);

#endif
