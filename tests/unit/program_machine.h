/*
 * program_machine.h - a program on a backend, and sequences that run through it in any company.
 */
#ifndef COPPICE_TESTS_PROGRAM_MACHINE_H
#define COPPICE_TESTS_PROGRAM_MACHINE_H

#include "kernels/program/backend_program.h"
#include "program_model.h"

#define MACHINE_SEQS 6
#ifndef MACHINE_TOKENS
#define MACHINE_TOKENS 160 /* of a sequence, at most */
#endif

struct machine_seq {
	uint32_t ids[MACHINE_TOKENS];
	uint32_t n_tokens; /* that have run */
	uint32_t pages[MACHINE_TOKENS / 16];
	uint32_t n_pages;
};

struct machine {
	const struct backend_ops *ops;
	struct backend *backend; /* owned, unless it is another machine's */
	struct program_model *model;
	struct backend_weights *weights; /* owned */
	struct backend_program *program; /* owned */
	struct machine_seq seqs[MACHINE_SEQS];
	uint32_t next_page;
	uint32_t want; /* of every row; at first everything there is */
	uint32_t n_segments; /* of the last run */
	uint32_t segment_tokens; /* the planner's */
	uint32_t replan_at; /* so many segments; then it has a tile more. 0: never */
	uint32_t extent; /* the first of its own; 0: the backend is, too */
};

/* The next n tokens of a sequence; with parents [n_before + n] a draft tree, which is as work.h has
 * it, and whose first n_before tokens came before. */
struct machine_part {
	uint32_t seq, n;
	const uint32_t *parents;
	uint32_t n_before;
};

/* Of every row of a run, in order of the parts. */
struct machine_result {
	struct program_row *rows; /* owned */
	float *logits; /* owned, [n][n_vocab]; of what is not wanted nothing is said */
	float *hidden; /* owned, [n][hidden] */
	uint32_t n;
};

/* The model stays the caller's. Sequences have random ids, the same with every machine of a model.
 * Asserts that all goes well, here and below. */
void machine_init(struct machine *machine, struct program_model *model, uint32_t n_threads);
/* The same on another backend than the CPU's. */
void machine_init_on(struct machine *machine, const struct backend_ops *ops,
		     struct program_model *model, uint32_t n_threads);
/* Another program on the same backend, in pages of its own: half of what the other one has. Done
 * before that one is. Its sequences have other ids. */
void machine_init_beside(struct machine *machine, const struct machine *other,
			 struct program_model *model);
void machine_done(struct machine *machine);

/* Until a batch is complete. */
void machine_await(struct machine *machine, uint64_t id);
/* Parts of different sequences, in segments of most_ns: 0: at once, 1: as little at a time as can
 * be. The `next` of a row is its sequence's next token. */
struct machine_pass *machine_begin(struct machine *machine, const struct machine_part *parts,
				   uint32_t n_parts, uint64_t most_ns);
/* A segment; false: it was the last. */
bool machine_go_on(struct machine_pass *pass);
/* When it was: the pass is gone. */
void machine_end(struct machine_pass *pass, struct machine_result *ret);
/* All segments, one after the other. */
void machine_run(struct machine *machine, const struct machine_part *parts, uint32_t n_parts,
		 uint64_t most_ns, struct machine_result *ret);
/* A most_ns by chance: the least, some of all, or all. */
uint64_t segment_random(struct oracle_random *random);
void machine_result_done(struct machine_result *result);

#endif
