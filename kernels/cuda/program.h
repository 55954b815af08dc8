/*
 * program.h - from a work list to what the kernels run (device.h): groups of 8 tokens in slots of 4 and stages of 16, rows in
 * units of at most 128, long units cut so that every multiprocessor has about the same to do.
 *
 * Depends on nothing but the list and the shape: made once per plan, used by every layer. How many rows a unit takes
 * and how finely units are cut is chosen by modelled time: bytes from memory, arithmetic, partials that cuts cost.
 */
#ifndef COPPICE_CUDA_PROGRAM_H
#define COPPICE_CUDA_PROGRAM_H

#include "../work.h"
#include "device.h"

#include <stddef.h>

/* Where pages lie, in DEVICE_SOURCE_BYTES. */
struct program_pages {
	uint32_t per_extent;
	uint64_t page_sources, extent_sources;
};

struct program_want {
	const struct work_shape *shape;
	const struct work_list *list;
	const bool *wanted; /* [queries]: whose output is wanted; NULL: all */
	struct program_pages pages;
	uint32_t n_blocks; /* that compute at the same time */
	bool wide; /* stages can be computed */
};

/* Memory that grows and never shrinks. */
struct program_memory {
	void *at; /* owned */
	size_t bytes;
};

enum program_array {
	PROGRAM_UNITS,
	PROGRAM_FIRSTS,
	PROGRAM_SLOTS,
	PROGRAM_SOURCES,
	PROGRAM_DESTS,
	PROGRAM_MERGES,
	PROGRAM_N_ARRAYS,
	PROGRAM_N_SCRATCH = 8
};

struct program {
	struct program_memory arrays[PROGRAM_N_ARRAYS]; /* owned */
	uint32_t n[PROGRAM_N_ARRAYS]; /* entries */
	uint32_t n_parts; /* of one query head */
	uint32_t most_parts; /* of one row */
	uint64_t n_groups; /* fetched for one KV head */
	struct program_memory scratch[PROGRAM_N_SCRATCH]; /* owned */
};

/* Bytes of an entry. */
size_t program_entry_bytes(enum program_array array);

/* Fills *program, which the caller zeroed once and may use again. 0 or -ENOMEM. */
int program_make(struct program *program, const struct program_want *want);
void program_done(struct program *program);

#endif
