/*
 * tier.h - copies between the pool and host memory, beside the batches, on streams of their own.
 *
 *      way     asked for one by one, launched together (tier_kick), each launch with an event that
 *              says when it is done
 *      down    pool to host memory; after the batches that were submitted before
 *      up      the other way; and after those copies down that read what it is about to write to
 *
 * Copies that follow one another in memory, or lie at equal distances, need fewer calls
 * (tier_runs.h). Where multiprocessors do them, attention leaves these room (tier_blocks).
 */
#ifndef COPPICE_CUDA_TIER_H
#define COPPICE_CUDA_TIER_H

#include "tier_runs.h"
#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

/* Batches that leave room for copies behind the last one beside which there were some */
#define TIER_STAYS 32u
#define TIER_LAUNCHES 256u /* of a way under way */
#define TIER_MARKS 8u
#define TIER_KNOWN 2048u /* copies down under way */

enum tier_way { TIER_DOWN, TIER_UP, TIER_WAYS };

#define FOLD_PARTS 8u

/* What a leg has left of some of the rows as O and LSE. */
struct device_part {
	uint64_t heads; /* bits: KV heads that there is a part of; from 64 on all */
	uint32_t begin, end; /* rows */
};

/* Parts of rows, and what was folded before, become one: [n_rows][n_heads] entries of head_dim
 * values. */
struct device_fold {
	float *state; /* [entry][head_dim + 1]: output, LSE */
	const char *part_o, *part_lse; /* of the first part's */
	uint64_t o_bytes, lse_bytes; /* from a part to the next */
	struct device_part parts[FOLD_PARTS];
	uint64_t o, lse; /* of the last: where the rows' outputs go; lse == 0: not wanted */
	uint64_t o_stride, lse_stride;
	uint32_t first_row, n_rows; /* of state and parts */
	uint32_t n_parts, n_heads, head_dim;
	uint32_t group; /* query heads of a KV head */
	uint32_t bf16, last;
	uint32_t had; /* something was folded before */
};

struct tier_known {
	uint64_t pool, bytes;
	uint64_t launch;
};

struct tier_stream {
	device_stream stream; /* owned */
	struct tier_runs next; /* not launched yet */
	void *events[TIER_LAUNCHES]; /* owned: [launch % TIER_LAUNCHES] */
	uint64_t tokens[TIER_LAUNCHES]; /* the newest of that launch */
	bool blocks[TIER_LAUNCHES]; /* that launch takes multiprocessors */
	uint64_t n_asked, n_done; /* copies */
	uint64_t n_launched, n_ended; /* launches */
	uint32_t stays; /* batches that still leave it room */
	uint64_t behind; /* up: launches down that the next launch comes after */
	uint64_t after; /* up: the batch that it comes after; UINT64_MAX: the newest */
};

/* Where the batches' stream had all that came with a batch. */
struct tier_mark {
	void *event; /* owned */
	uint64_t id; /* the batch */
};

/* Host memory and where the device sees it. */
struct tier_memory {
	uint64_t host, device, bytes;
};

struct tier {
	struct tier_stream ways[TIER_WAYS];
	struct tier_known readers[TIER_KNOWN]; /* copies down: [token % TIER_KNOWN] */
	uint64_t read_begin, read_end; /* of the pool, that those under way read */
	device_stream batches; /* borrowed: where the pool's other readers and writers are */
	void *before; /* owned event */
	struct tier_mark marks[TIER_MARKS]; /* [n % TIER_MARKS] */
	uint64_t n_marks;
	struct tier_memory *memories; /* owned */
	uint32_t n_memories;
	struct tier_means means;
	bool ready; /* streams and events are there */
	int error; /* the cudaError_t that ended it; 0: none */
};

/* Host memory becomes reachable. 0, -ENOMEM. Blocks. */
MUST_CHECK int tier_pin(struct tier *t, device_stream batches, bool bulk, void *host,
			uint64_t bytes);
void tier_unpin(struct tier *t, void *host);
/* One that is all zero is fine. Waits for what is under way. */
void tier_done(struct tier *t);

struct tier_ask {
	uint64_t pool, bytes;
	const void *host;
	uint64_t after; /* as that of backend_copy */
};

/* Returns the token. Blocks where very many are under way. */
uint64_t tier_copy(struct tier *t, enum tier_way way, const struct tier_ask *ask);
/* What is on the batches' stream now is of batches up to this one. */
void tier_mark(struct tier *t, uint64_t id);
void tier_kick(struct tier *t);
/* Token of the newest that has ended. */
uint64_t tier_ended(struct tier *t, enum tier_way way);

/* The batches' stream goes on once no copy down reads these bytes of the pool any more. */
void tier_before_write(struct tier *t, uint64_t pool, uint64_t bytes);
/* Is any copy down under way? */
bool tier_reads(const struct tier *t);
/* Until nothing is under way. */
void tier_await_all(struct tier *t);
/* Multiprocessors that a batch is to leave to copies, those under way and those that come while it
 * waits: to be asked once for each. */
uint32_t tier_blocks(struct tier *t);

#ifdef __cplusplus
extern "C" {
#endif

MUST_CHECK int device_fold(const struct device_fold *fold, device_stream stream);

#ifdef __cplusplus
}
#endif

#endif
