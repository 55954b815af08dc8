/*
 * tier.h - copies between the pool and host memory, beside the batches, on streams of their own.
 *
 *      way     asked for one by one, launched together (tier_kick), each launch with an event that says when it is done
 *      down    pool to host memory; after the batches that were submitted before
 *      up      the other way; and after those copies down that read what it is about to write to
 *
 * Large copies are the copy engines'. Small ones would take 3 us each there (a slice of 64 KiB: 16 GB/s of 55): they are
 * done by TIER_BLOCKS blocks of one busy thread each, for which attention leaves room (tier_blocks).
 */
#ifndef COPPICE_CUDA_TIER_H
#define COPPICE_CUDA_TIER_H

#include "device.h"

#include <stdbool.h>
#include <stdint.h>

#define TIER_COPIES 248u /* of a launch, whose parameters have 4 KiB */
#define TIER_BLOCKS 2u
#define TIER_STAYS \
	32u /* batches that leave room for copies behind the last one beside which there were some */
#define TIER_LAUNCHES 256u /* of a way under way */
#define TIER_KNOWN 1024u /* copies down under way */

enum tier_way { TIER_DOWN, TIER_UP, TIER_WAYS };

/* Copies of so many bytes each, a multiple of 16, as are the addresses. */
struct device_tier {
	uint64_t from[TIER_COPIES], to[TIER_COPIES];
	uint32_t n, bytes;
};

/* The states of rows folded with a part, which attention has left as O and LSE: [n_rows][n_heads] entries of head_dim values. */
struct device_fold {
	float *state; /* [entry][head_dim + 2]: output, LSE, and 1 where there is anything yet; all zero: nothing */
	const void *part_o;
	const float *part_lse;
	uint64_t o, lse; /* of the last: where the rows' outputs go; lse == 0: not wanted */
	uint64_t o_stride, lse_stride;
	uint64_t heads; /* bits: KV heads that there is a part of; from 64 on all */
	uint32_t n_rows, n_heads, head_dim;
	uint32_t group; /* query heads of a KV head */
	uint32_t bf16, last;
};

struct tier_known {
	uint64_t pool, bytes;
	uint64_t launch;
};

struct tier_stream {
	device_stream stream; /* owned */
	struct device_tier next; /* not launched yet */
	void *events[TIER_LAUNCHES]; /* owned: [launch % TIER_LAUNCHES] */
	uint64_t tokens[TIER_LAUNCHES]; /* the newest of that launch */
	bool small[TIER_LAUNCHES]; /* that launch takes blocks */
	uint64_t n_asked, n_done; /* copies */
	uint64_t n_launched, n_ended; /* launches */
	uint32_t stays; /* batches that still leave it room */
	uint64_t behind; /* up: launches down that the next launch comes after */
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
	struct tier_memory *memories; /* owned */
	uint32_t n_memories;
	bool bulk; /* the device has bulk copies */
	bool ready; /* streams and events are there */
	int error; /* the cudaError_t that ended it; 0: none */
};

/* Host memory becomes reachable. 0, -ENOMEM. Blocks. */
int tier_pin(struct tier *t, device_stream batches, bool bulk, void *host, uint64_t bytes);
void tier_unpin(struct tier *t, void *host);
/* One that is all zero is fine. Waits for what is under way. */
void tier_done(struct tier *t);

/* Returns the token. Blocks where very many are under way. */
uint64_t tier_copy(struct tier *t, enum tier_way way, uint64_t pool, const void *host,
		   uint64_t bytes);
void tier_kick(struct tier *t);
/* Token of the newest that has ended. */
uint64_t tier_ended(struct tier *t, enum tier_way way);

/* The batches' stream goes on once no copy down reads these bytes of the pool any more. */
void tier_before_write(struct tier *t, uint64_t pool, uint64_t bytes);
/* Is any copy down under way? */
bool tier_reads(const struct tier *t);
/* Until nothing is under way. */
void tier_settle(struct tier *t);
/* Multiprocessors that a batch is to leave to copies, those under way and those that come while it waits: to be asked once for
 * each. */
uint32_t tier_blocks(struct tier *t);

#ifdef __cplusplus
extern "C" {
#endif

int device_tier_init(void); /* readies the kernel; a cudaError_t */
int device_tier(const struct device_tier *copies, device_stream stream);
int device_fold(const struct device_fold *fold, device_stream stream);

#ifdef __cplusplus
}
#endif

#endif
