/*
 * flock_stem.h - one process of flock_test: a session that computes its tokens' attention and
 * checks it.
 *
 * Q, K and V of a token are hashes of all tokens up to it and the salt, so that every process can
 * compute every output by itself, in double precision, and a row from another prefix or salt shows.
 * What goes wrong ends the process with 1.
 */
#ifndef FLOCK_STEM_H
#define FLOCK_STEM_H

#include "client/coppice.h"

#include <stdbool.h>
#include <stdint.h>

#define N_PROCESSES 8u
#define N_LAYERS 2u
#define CHUNK 256u
#define MAX_TOKENS 4096u

/* Processes arrive and wait, each at a pipe of its own; the test opens when it has seen as many as
 * it waits for. */
struct gate {
	int arrived[2], go[N_PROCESSES][2];
};

/* What a process found, for the test to read. */
struct found {
	struct coppice_match opened, settled;
	uint32_t n_computed;
};

struct stem {
	unsigned index;
	struct gate *gate;
	struct found *found;
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	uint32_t model;
	struct coppice_seq *seq;
	uint64_t salt;
	uint32_t n_tokens; /* ids known */
	uint32_t n_done; /* of them in the store */
	uint32_t ids[MAX_TOKENS];
	uint64_t prefixes[MAX_TOKENS]; /* hashes of the ids up to each, and the salt */
	void *q, *k, *v, *o; /* [CHUNK][heads][HEAD_DIM] elements, in the arena */
};

/* A process of its own cannot use the framework's assertions: it tells and ends. */
#define MUST(condition) \
	do { \
		if (!(condition)) \
			stem_die(s, #condition, __LINE__); \
	} while (0)

_Noreturn void stem_die(const struct stem *s, const char *condition, int line);

/* The gate: arrive, wait until the test opens, or both. */
void stem_arrive(struct stem *s);
void stem_wait(struct stem *s);
void stem_pass(struct stem *s);

/* The first n tokens of the one document. */
void stem_add_document(struct stem *s, uint32_t n);
void stem_connect(struct stem *s, const char *socket);
/* Opens what was added; waits until nothing of it is pending. */
void stem_open(struct stem *s);
void stem_settle(struct stem *s);
/* A layer of the n live tokens, checked. */
void stem_run_layer(struct stem *s, uint32_t n, uint32_t layer);
/* Chunks of all layers, up to the end-th token. */
void stem_compute_to(struct stem *s, uint32_t end);
/* n tokens of its own, one after the other. */
void stem_decode(struct stem *s, uint32_t n);
void stem_close(struct stem *s);

#endif
