/*
 * program.h - from a work list to what the kernels run (format.h): groups of 8 tokens in slots of 4
 * and stages of 16, rows in units of at most 128, long units cut so that every multiprocessor has
 * about the same to do.
 *
 * Depends on nothing but the list and the shape: made once per plan, used by every layer, and,
 * where every query is a single token at the end of a path of its own, by the next tokens too:
 * program_advance says what changes. How many rows a unit takes and how finely units are cut is
 * chosen by modelled time: bytes from memory, arithmetic, partials that cuts cost.
 */
#ifndef COPPICE_CUDA_PROGRAM_H
#define COPPICE_CUDA_PROGRAM_H

#include "kernels/work.h"
#include "costs.h"
#include "kernels/cuda/device/code.h"
#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/shape.h"

#include <stddef.h>

/* How rows and groups are parted, where it is not the planner's to choose. */
struct program_choice {
	/* of the program's rows (row_map.h), at most 128 with their heads; 0: the planner
	 * chooses */
	uint32_t unit_tokens;
	/* of what a block has to do if all have the same, that a unit takes at most; 0: no cuts */
	double share;
};

/* Those that the planner tries. */
#define PROGRAM_N_SHARES 5u
extern const double program_shares[PROGRAM_N_SHARES];

struct program_want {
	const struct work_shape *shape;
	const struct work_list *list;
	const bool *wanted; /* [queries]: whose output is wanted; NULL: all */
	struct pool_pages pages;
	const struct costs *costs;
	uint32_t n_blocks; /* that compute at the same time */
	enum code code; /* that computes it */
	bool flushed; /* the time is that of a bench that writes other memory before */
	struct program_choice choice;
	bool tails; /* every query is one token, and may be followed by the next */
};

/* Memory that grows and never shrinks. */
struct program_memory {
	void *at; /* owned */
	size_t bytes;
};

#define PROGRAM_TAIL_GROUPS 4u /* of 8 tokens, that a row may grow by */

/* Where the next tokens of a row's own go: groups set aside in slots behind those of the unit. */
struct program_tail {
	uint32_t slots[PROGRAM_TAIL_GROUPS];
	uint8_t groups[PROGRAM_TAIL_GROUPS]; /* of the slot */
	uint8_t warps[PROGRAM_TAIL_GROUPS]; /* that fold the slot once it has something */
	uint32_t unit; /* PROGRAM_NO_TAIL: none */
	uint32_t unit_slot; /* its first */
	uint32_t token; /* of the unit */
	/* newest: its tokens are at 8 x group and on; PROGRAM_NO_GROUP: the row's last token is on
	 * another device */
	uint32_t group;
	uint32_t used; /* of the groups set aside */
};

#define PROGRAM_NO_TAIL UINT32_MAX
#define PROGRAM_NO_GROUP UINT32_MAX

/* A word at an offset of an array. */
struct program_patch {
	uint32_t array; /* enum program_array */
	uint32_t offset; /* bytes */
	uint32_t value;
};

/* What was chosen, and the modelled time of one launch by its parts, spread over all blocks. */
struct program_expect {
	uint32_t unit_tokens; /* of the list's rows, at most */
	uint32_t n_cut; /* strips of rows whose groups several units share */
	uint32_t n_units;
	double launch_ns; /* whatever there is to do */
	double groups_ns; /* reading and folding */
	double units_ns; /* what each unit costs beyond that, its rows' Q and O among it */
	double parts_ns; /* partials written and read */
	double idle_ns; /* blocks that wait for the last */
	double memory_ns; /* blocks that wait for memory, which all share */
	double merge_ns;
	double all_ns;
};

enum program_array {
	PROGRAM_UNITS,
	PROGRAM_FIRSTS,
	PROGRAM_SLOTS,
	PROGRAM_SOURCES,
	PROGRAM_DESTS,
	PROGRAM_MERGES,
	PROGRAM_N_ARRAYS,
	PROGRAM_N_SCRATCH = 18
};

struct program {
	struct program_memory arrays[PROGRAM_N_ARRAYS]; /* owned */
	uint32_t n[PROGRAM_N_ARRAYS]; /* entries */
	uint32_t n_parts; /* of one query head */
	uint32_t most_parts; /* of one row */
	uint64_t n_groups; /* fetched for one KV head */
	struct program_expect expect;
	/* [rows of the program] with want.tails, else NULL; until the next program_make */
	struct program_tail *tails;
	struct program_memory scratch[PROGRAM_N_SCRATCH]; /* owned */
};

/* What a program has become since it was made. */
struct program_growth {
	uint32_t *unit_slots; /* owned, [n_units]: how many slots each has by now */
	uint32_t *unit_patches; /* owned, [n_units]: 1 + index of the patch that says so; 0: none */
	/* owned: not written yet. No two are of the same word with another value */
	struct program_patch *patches;
	uint32_t n_units, n_patches, patches_room;
};

/* Bytes of an entry. */
size_t program_entry_bytes(enum program_array array);

/* Fills *program, which the caller zeroed once and may use again. 0 or -ENOMEM. */
int program_make(struct program *program, const struct program_want *want);
/* As program_make, program->expect alone. */
int program_estimate(struct program *program, const struct program_want *want);

/* Of a program as it was made. 0 or -ENOMEM. */
int program_growth_init(struct program_growth *growth, const struct program *program);
/* The patches are written, or will be before anything else is. */
void program_growth_written(struct program_growth *growth);
void program_growth_done(struct program_growth *growth);

/* The row's next token is at pos, in the group at source: adds what is to be patched. Tokens
 * between, if any, are on other devices. 0, -ENOMEM, or -ESTALE where there is no room; after
 * either: make a new program. */
int program_advance(struct program_tail *tail, uint32_t pos, uint32_t source,
		    struct program_growth *growth);
void program_done(struct program *program);

#endif
