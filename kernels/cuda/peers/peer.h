/*
 * peer.h - devices that have met: what each has of a row goes to the device whose row it is, which
 * merges and writes it.
 *
 *      this device   O, LSE of all rows ---store---> inbox of the owner, a slot for each sender,
 *                    twice (odd and even launches)
 *                    its epoch          ---store---> every other device: it has come so far
 *      every device  merges the rows that are its own, each part as it comes, and writes them to
 *                    their arenas; leaves when all others have come
 *
 *      packet        8 bytes of O, LSE, tag (packet.cuh): whoever sees the tag sees the rest. Who
 *                    has read a packet clears it.
 *
 * A launch comes right after the attention whose rows it takes; all devices make the same launches
 * in the same order. No device is more than a launch ahead of another, so two halves of an inbox
 * are enough. Waits are bounded in time.
 *
 * Where a device cannot reach another's memory, or is another process's, all gather all rows by
 * NCCL instead, and each merges its own; where there are other processes, each process's devices
 * share out all rows among themselves.
 */
#ifndef COPPICE_CUDA_PEER_H
#define COPPICE_CUDA_PEER_H

#include "proto/must_check.h"
#include "kernels/cuda/device/kv_layout.h"
#include "kernels/cuda/device/queue.h"
#include "kernels/cuda/device/signals.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEERS_MAX 32u
#define PEER_BLOCKS 256u /* of a launch, at most */
#define PEER_BLOCKS_AT_ONCE 2u /* that a multiprocessor has room for at least, whatever the shape */
#define PEER_STAMPS 128u /* launches that are remembered */
#define PEER_PACKET_BYTES 16u
#define PEER_PACKET_VALUES 4u /* of O */
#define PEER_ENTRY_MOST (64 * PEER_PACKET_BYTES)
#define PEER_GIVEN_UP UINT32_MAX /* in place of a device that did not come: nobody waits any more */

/* Of a row and head in an inbox: packets of a warp, one to a lane, two where a lane has more of O
 * than one takes. */
static inline uint32_t peer_entry_bytes(uint32_t head_dim)
{
	return PEER_ENTRY_MOST / (kv_lane_values(head_dim) > PEER_PACKET_VALUES ? 1 : 2);
}

/* A launch, by the device's clock: what it exchanges is there; it has what the others have of
 * it. */
struct peer_stamp {
	uint64_t begin_ns, end_ns;
};

#define PEER_BLOCK (UINT64_C(1) << 48)

/* In device memory, 0 at first. */
struct peer_state {
	uint32_t epoch; /* launches that are done */
	/* PEER_BLOCK for each block of this one that knows the epoch, and the bytes they gave
	 * others */
	uint64_t known;
	struct device_exchanged exchanged; /* by all launches, each from begin to end */
	struct peer_stamp stamps[PEER_STAMPS]; /* by epoch */
};

/* Rows of a launch: n_rows of them fit an inbox's slot. */
struct device_exchange {
	const void *o; /* [n_rows][n_heads][head_dim], this device's */
	const float *lse; /* [n_rows][n_heads] */
	/* [n_rows]: o, lse: where the row is wanted (0: not); pos: its owner */
	const struct device_row *dests;
	char *inboxes[PEERS_MAX]; /* of all, as this device reaches them */
	uint32_t *come[PEERS_MAX]; /* of all, [sender]: the newest epoch to which it has come */
	/* else: [n_ranks][n_rows][n_heads][head_dim] of O; NULL: inboxes */
	const char *gathered;
	const float *gathered_lse; /* [n_ranks][n_rows][n_heads] */
	struct peer_state *state;
	/* pinned: 1 + the device that did not come in time; 0: none; or PEER_GIVEN_UP, the
	 * host's */
	uint32_t *late;
	uint64_t timeout_ns;
	uint64_t slot_bytes; /* of an inbox, [2][n_ranks] of them */
	uint32_t rank, n_ranks;
	uint32_t n_rows, n_heads, head_dim;
	uint32_t bf16;
	/* as they wait for others', they are all there at once, on a device that is several, too */
	uint32_t most_blocks;
	/* some devices are one: what comes next would keep others from ever coming */
	uint32_t crowded;
};

/* cudaError_t as int. Init readies the kernels on the current device, before the first launch on
 * any. */
MUST_CHECK int device_exchange_init(void);
MUST_CHECK int device_exchange(const struct device_exchange *exchange, device_stream stream);

/* Of a batch's job: rows whose attention is under way on the batch's stream, staged one behind the
 * other. */
struct peer_rows {
	uint64_t o, lse, dests; /* as device_exchange has them, for all rows */
	uint32_t n_rows, n_heads, head_dim;
	bool bf16;
};

struct peer;

struct peer_config {
	/* [n], of this process' devices, which end waiting in time from here on */
	struct queue *const *queues;
	const int *devices; /* [n]: the CUDA ordinals */
	uint32_t n, first, n_all; /* as backend_meeting has them */
	const uint8_t *id;
	uint32_t timeout_ms;
	uint32_t meet_ms; /* until all have come by NCCL */
};

/* As backend_ops.meet. ret_ends [n]: the devices' ends, to be freed, also those of a meeting that
 * failed; NULL before. */
MUST_CHECK int peer_meet(const struct peer_config *config, struct peer **ret_ends, char *notice,
			 char *error, size_t bytes);
/* What waits for others on the device ends soon. Does not wait. NULL is fine. */
void peer_give_up(struct peer *p);
/* Before a queue is waited for at the end of all: as that, where it goes on for seconds.
 * False: it still does, and may for ever; true also of a device that has met no other (NULL). */
bool peer_await_end(struct peer *p);
/* NULL is fine. The last end to go frees what all share. */
void peer_free(struct peer *p);
/* The rows are to be exchanged when the batch is concluded. 0 or -ENOMEM. */
MUST_CHECK int peer_add(struct peer *p, const struct peer_rows *rows);
/* They are not. NULL is fine. */
void peer_forget(struct peer *p);
/* Starts the exchange of what was added, in rounds that fit; nothing is left then. 0, or -EIO (in
 * b->queue.error). */
MUST_CHECK int peer_conclude(struct peer *p);
/* A device that this one waited for in vain, or PEER_GIVEN_UP. NULL waits for none. */
bool peer_is_late(const struct peer *p, uint32_t *ret_rank);
/* In device memory; NULL: NCCL exchanges, or p is NULL. */
const struct peer_state *peer_state_of(const struct peer *p);
/* Of others' rows, that NCCL was asked to bring to this device; 0: none, or p is NULL. */
uint64_t peer_gathered_bytes(const struct peer *p);
/* Of the rows' first round, as peer_conclude would launch it; for measuring. n_rows 0: it is not a
 * launch alone. */
void peer_describe(const struct peer *p, const struct peer_rows *rows, struct device_exchange *ret);

#ifdef __cplusplus
}
#endif

#endif
