/*
 * backend.h - the seam between the daemon and what computes: the CPU, or a CUDA module loaded at
 * run time.
 *
 * A backend owns the KV pool (extents of equal size, named by index; the store decides what lies in
 * which page) and runs batches: append new K and V to pages, then attention over a work list. Page
 * p of a model with n pages to an extent lies in extent p / n. All calls come from one thread, the
 * scheduler's, but for open, close, prepare and extent_prepare.
 *
 * Several devices of one kind are a backend too (group/group.h). Each has as much of every extent.
 * Where they share the tokens of a model (shape->split), its page p is on device p mod their
 * number, whoever gives out pages stripes each node's over the devices, and no move goes from
 * device to device; where one device has all of it, whoever gives out pages gives pages of that
 * device.
 */
#ifndef COPPICE_BACKEND_H
#define COPPICE_BACKEND_H

#include "proto/must_check.h"
#include "work.h"

#include <stdbool.h>

#define BACKEND_DEVICES_MAX 32u /* of a group */

struct backend; /* each backend's own */
struct group_config; /* group/group.h */

struct backend_config {
	uint64_t pool_bytes; /* capacity of the KV pool; a multiple of extent_bytes */
	uint64_t extent_bytes; /* multiple of 2 MiB */
	uint32_t n_threads; /* CPU: threads that compute, the caller among them; 0: one per core */
	const char *device; /* CUDA: index or UUID; NULL: the first */
	const struct group_config *group; /* a group: its devices, else unused */
};

/* The new tokens of one query (same index as tree->queries). Addresses are the backend's own, from
 * arena_attach; row i of Q is q + i * q_stride bytes: [n_q_heads][head_dim], of K and V
 * [n_kv_heads][head_dim], of O as Q. LSE is natural-log sum-exp of the scaled scores, fp32
 * [n_q_heads] a row; lse == 0: not wanted. slots: where the query's n_rows tokens go, as slices in
 * row order (n_slots of them); none when the K and V are there already. o == 0: append only; q may
 * be anything then. */
struct backend_io {
	uint64_t q, k, v, o, lse;
	uint64_t q_stride, k_stride, v_stride, o_stride, lse_stride;
	const struct work_slice *slots;
	uint32_t n_slots;
};

/* A query's rows in ranges, each of which attends to some blocks of its path, other ones for every
 * KV head. */
struct backend_chosen {
	/* Of the path: its tokens from position 0 on, the query's own among them. page WORK_NONE:
	 * not there, and in no block that is kept. */
	const struct work_slice *slices;
	uint32_t n_slices;
	uint32_t block_tokens; /* a multiple of 32 */
	uint32_t n_blocks; /* up to the path's end */
	uint32_t n_ranges;
	const uint32_t *ranges; /* [n_ranges]: first row, ascending from 0 */
	/* [n_kv_heads][n_ranges][(n_blocks + 63) / 64]: bits; NULL: everything. Blocks that a row
	 * stands in are kept, where they are this job's: of a part of a long path a head may keep
	 * none at all. */
	const uint64_t *kept;
};

/* All steps of one model and layer in a batch. Pointers stay valid until the batch is complete. */
struct backend_job {
	const struct work_shape *shape;
	const struct work_tree *tree;
	const struct work_list *list;
	const struct backend_io *io; /* [tree->n_queries] */
	uint32_t layer;
	/* Of tree and list: the same as in an earlier job, the same plan; 0: nobody says whether
	 * another will have the same. */
	uint64_t plan_id;
	/* Of a plan that nobody asks for any more, in whose place this one may be kept. 0: none. */
	uint64_t replaces;
	/* the plan has taken in tokens that tree and list lack: nothing else serves this job */
	bool advanced;
	/* A device of a group that has some of the KV only: the address of
	 * [list->n_rows][n_q_heads][2 + head_dim] fp32, where (max, sum, output) of each row and
	 * head go as merge.h has them, instead of O and LSE (io->o still says whether the row is
	 * wanted). 0: no. Only where the backend's leaves_parts says so. */
	uint64_t parts;
	/* Or, of devices that have met: whose O and LSE the rows are, [list->n_rows]. Each device
	 * merges and writes its own, from what all have. NULL: this device has all of the KV. */
	const uint32_t *owner;
	/* KV heads [head, head + n_heads) alone, and their query heads' part of the rows; n_heads
	 * 0: all. Only where the backend can estimate. */
	uint32_t head, n_heads;
	/* Of a tree of one query: what it attends to, in place of what the list says, whose rows
	 * alone count. NULL: the list. Only where the backend's takes_chosen says so. */
	const struct backend_chosen *chosen;
};

static inline uint32_t backend_job_heads(const struct backend_job *job)
{
	return job->n_heads ? job->n_heads : job->shape->n_kv_heads;
}

struct backend_summary; /* each backend's own */
struct select_config; /* plan/select.h has these */
struct select_chunk;
struct select_shares;
struct backend_program_ops; /* program/backend_program.h */

/* What a chunk of queries of one sequence will attend to, from a few of its products
 * (cpu/estimate_pages.h). */
struct backend_estimate {
	const struct work_shape *shape;
	/* mean keys of the path's n_k tokens; NULL: their K, in pages */
	const struct backend_summary *summary;
	/* of the path: its n_k tokens from position 0 on; unused with a summary */
	const struct work_slice *slices;
	uint32_t n_slices;
	uint32_t layer;
	uint64_t q, q_stride; /* as backend_io's */
	uint32_t n_q, q_pos, n_k; /* q_pos + n_q <= n_k */
	uint32_t stride; /* 8 or 16, with a summary 8; q_pos is a multiple of it */
	uint32_t block_tokens; /* of the masses: 8 x stride x a power of two */
	uint64_t rows_id; /* with a summary: these rows may next be seen in legs; 0: no */
};

/* A 64-bit word in device memory that arena_new gave, and what it becomes. */
struct backend_tell {
	uint64_t address, value;
};

#define BACKEND_TELLS_MAX 32u /* of a batch */

struct backend_batch {
	const struct backend_job *jobs;
	uint32_t n_jobs;
	/* What the device may write once all outputs are there, before completed says so; nobody
	 * depends on it. Need not stay. */
	const struct backend_tell *tells;
	uint32_t n_tells; /* BACKEND_TELLS_MAX at most */
};

/* Since open; only grow. Bytes are of K and V together, over all KV heads, as the device memory or
 * the cache hierarchy delivered them to the attention kernel. */
struct backend_counters {
	uint64_t batches;
	uint64_t rows;
	uint64_t kv_bytes_read;
	uint64_t kv_bytes_alone; /* what the same rows would have read, each query alone */
	uint64_t busy_ns;
	uint64_t exchange_bytes; /* that devices of a group gave each other: of rows, never of KV */
	/* of KV that moves would have taken from device to device: all of them were refused */
	uint64_t kv_bytes_moved;
	/* of busy_ns: telling each other, and waiting for the others; of a group, the longest
	 * device's */
	uint64_t exchange_ns;
};

/* Rows from one page to another, all layers and heads; for accepted draft tokens. */
struct backend_move {
	uint32_t from_page, from_row;
	uint32_t to_page, to_row;
};

/* What a query costs apart and what it adds to a batch: the scheduler weighs waiting against it. */
struct backend_cost {
	double fixed_ns; /* a batch of nothing */
	double kv_ns_per_byte; /* reading KV */
	double row_ns_per_byte; /* arithmetic on KV, of each of a KV head's rows */
};

#define BACKEND_MEETING_BYTES 128u

/* Devices of a group that find ways to each other: all of it, or those of one of several
 * processes. */
struct backend_meeting {
	struct backend *const *members; /* [n] */
	uint32_t n;
	/* the members' places among all processes' devices; 0, n: one process */
	uint32_t first, n_all;
	/* what the first process's meeting_id said, for all of them; NULL: one process */
	const uint8_t *id;
	uint32_t timeout_ms;
};

/* What devices of a group have alike beside their backend, as each has the same share of the
 * work. */
struct backend_kind {
	uint32_t capability; /* CUDA's: 10 times the major one, and the minor one */
	uint32_t n_multiprocessors;
};

#define BACKEND_DEVICE_BYTES 16u

/* Memory of the device that one other process may map. */
struct backend_arena {
	uint64_t base; /* what io addresses are made of */
	int fd; /* owned: of this memory and no other */
	uint8_t device[BACKEND_DEVICE_BYTES]; /* UUID of the device */
	/* the device goes round among processes instead of serving them at once (no MPS) */
	bool time_sliced;
};

/* Bytes of an extent that has memory, and as many of host memory that was pinned. */
struct backend_copy {
	uint32_t extent;
	uint64_t offset_bytes, bytes; /* in the extent */
	void *host;
	/* up: nothing submitted behind this batch has to do with these bytes; 0: it may */
	uint64_t after;
};

/* One of several legs over the KV of the same rows: those of the job's queries, in their order,
 * are rows first_row and on of all n_rows. */
struct backend_leg {
	uint32_t first_row, n_rows;
	bool first; /* nothing is known of any row yet */
	bool last; /* O and LSE of the job's rows are written; the state goes */
	/* the estimate before was of all these rows, and Q is what it was; 0: it was not */
	uint64_t rows_id;
};

/* What a pool can lie in. */
struct backend_memory {
	uint64_t bytes; /* of the device, or of the machine; in use or not */
	uint64_t usual_bytes; /* of a pool where nobody says how large */
	bool common; /* the devices of a group have it together */
};

#define BACKEND_SUMMARY_TOKENS 8u /* of a mean key */

/* Tokens of a path, in pages. */
struct backend_span {
	const struct work_shape *shape; /* of the pages */
	const struct work_slice *slices;
	uint32_t n_slices;
	uint32_t layer; /* of the pages */
	uint32_t to_layer; /* of the summary */
	uint32_t pos; /* of the first token */
};

/*
 * What is left on the device of a path whose KV is not: of each layer, KV head and 8 tokens from a
 * multiple of 8 on their mean key, in the model's type. That is 1/16 of K and V, and enough for an
 * estimate of which blocks matter.
 */
struct backend_summary_ops {
	/* 0 or -ENOMEM. Of nothing yet. */
	MUST_CHECK int (*make)(struct backend *b, const struct work_shape *shape,
			       struct backend_summary **ret);
	void (*free)(struct backend *b, struct backend_summary *summary); /* NULL is fine */
	/* Takes in tokens, as batches submitted before leave them and before any submitted later
	 * alters them. Of 8 tokens that come in several slices the last one's part counts. Memory
	 * for it grows to half as much again as is needed. 0, -ENOMEM, -EIO. */
	MUST_CHECK int (*add)(struct backend *b, struct backend_summary *summary,
			      const struct backend_span *span);
};

/*
 * Copies between the pool and host memory, beside batches. Those of one way end in the order in
 * which they were asked for; tokens count them, from 1.
 *
 * A copy down reads what batches submitted before it have written, a copy up writes after these
 * have read; batches, moves and copies after it find both done as far as they write to the same
 * bytes, and extents stay until copies have left them. What a copy up brings may be read by batches
 * that are submitted once ups_done says so. The host memory is the copy's until then.
 *
 * A page is its layers' parts one after the other, and these are their KV heads': each may be
 * copied alone.
 */
struct backend_tier_ops {
	/* Host memory, aligned to 4 KiB, becomes reachable for copies. 0, or -ENOMEM: it cannot be
	 * pinned. Blocks. */
	MUST_CHECK int (*pin)(struct backend *b, void *host, uint64_t bytes);
	void (*unpin)(struct backend *b, void *host, uint64_t bytes);
	/* Return the token; do not block but where very many are under way. */
	uint64_t (*down)(struct backend *b, const struct backend_copy *copy);
	uint64_t (*up)(struct backend *b, const struct backend_copy *copy);
	/* Token of the newest that has ended, 0: none. Do not block. */
	uint64_t (*downs_done)(struct backend *b);
	uint64_t (*ups_done)(struct backend *b);
	void (*kick)(struct backend *b); /* what was asked for begins at the latest now */
	/* Attention of rows whose KV is in the pool a part at a time: submits a batch that sees
	 * such a part of some of them or all, in one job, or in several of the same tree and io and
	 * some KV heads each; heads that have none see nothing. The rows' states are folded in
	 * order of legs and stay with the backend from the first leg to the last, which is of
	 * all rows; of one such set of rows at a time. io of a row is the same in all legs but
	 * for the slots. Errors and ret_id as submit. NULL: cannot. */
	MUST_CHECK int (*leg)(struct backend *b, const struct backend_batch *batch,
			      const struct backend_leg *leg, uint64_t *ret_id);
	const struct backend_summary_ops *summary; /* NULL: cannot */
	/* What the bytes of a page mean: pages of another layout mean nothing here. Not 0. */
	uint64_t (*layout)(struct backend *b);
};

/* The plan has room for few tokens more: now is the time to prepare the next. */
#define BACKEND_SOON 1

struct backend_ops {
	const char *name;
	bool wants_rows; /* few rows leave most of it idle: slices of a prompt are to be long */
	/* knows job->parts, as a device of a group must whose devices share tokens and do
	 * not meet */
	bool leaves_parts;
	/* Of a device, as backend_config has it, that need not be open. 0, or -EINVAL and a
	 * sentence. Blocks. */
	MUST_CHECK int (*memory)(const char *device, struct backend_memory *ret, char *error,
				 size_t error_bytes);
	/* 0, -ENOMEM, -EINVAL; what was wrong goes to error (a sentence). Blocks. */
	MUST_CHECK int (*open)(const struct backend_config *config, struct backend **ret,
			       char *error, size_t error_bytes);
	void (*close)(struct backend *b); /* NULL is fine */
	/* The devices of a group find ways to each other, once, before anything else: jobs may have
	 * owners then, and submits of all the same jobs follow in the same order on each, from a
	 * thread each. Every batch is submitted to all, then concluded on all, after which its
	 * pointers are theirs no more. A device that waits for another in vain for timeout_ms
	 * fails. Blocks until all processes' have met. 0; 1: they do not reach each other's memory;
	 * -errno and a sentence. notice: one of what works but not well, else empty. NULL: devices
	 * of this kind do not meet. */
	MUST_CHECK int (*meet)(const struct backend_meeting *meeting, char *notice, char *error,
			       size_t bytes);
	/* What the processes of a meeting know it by, BACKEND_MEETING_BYTES; once for each. 0, or
	 * -errno and a sentence. NULL: devices of several processes do not meet. */
	MUST_CHECK int (*meeting_id)(uint8_t *ret, char *error, size_t bytes);
	/* Of what kind a device is, as backend_config names it. 0, or -EINVAL and a sentence. NULL:
	 * all are of one. */
	MUST_CHECK int (*kind)(const char *device, struct backend_kind *ret, char *error,
			       size_t bytes);
	/* Of devices that have met: what waits for others begins, of the batch submitted last. Once
	 * submit has returned on all, so that nobody waits for a device that still gets memory
	 * ready. 0 or -EIO. */
	MUST_CHECK int (*conclude)(struct backend *b);
	/* In place of conclude, where devices have refused the batch submitted last, this one (it
	 * has) or another: it ends with nothing exchanged and nobody told. Who refused it counts an
	 * empty one, so that ids stay alike. Blocks until nothing of it is under way. 0 or -EIO. */
	MUST_CHECK int (*abandon)(struct backend *b, bool it_has);
	/* The group has failed: what waits for other devices without a limit of its own ends, so
	 * that all else does, too. Does not wait. NULL: nothing waits so. */
	void (*give_up)(struct backend *b);

	/* Bytes of one page of this shape, or 0 where the backend refuses the shape (why goes to
	 * error). */
	uint64_t (*page_bytes)(struct backend *b, const struct work_shape *shape, char *error,
			       size_t error_bytes);
	/* An extent gets memory (zeroed) or gives it up. commit: 0 or -ENOMEM. */
	MUST_CHECK int (*extent_commit)(struct backend *b, uint32_t extent);
	void (*extent_release)(struct backend *b, uint32_t extent);
	/* As commit, on any thread, beside all other calls but close; one at a time. Blocks until
	 * the memory is there, and zeroed. NULL: this backend never does. */
	MUST_CHECK int (*extent_prepare)(struct backend *b, uint32_t extent);
	/* One that was prepared, and of which nothing submitted since knows, gives its memory up.
	 * Does not wait for what is under way, if the driver does not. */
	void (*extent_forget)(struct backend *b, uint32_t extent);
	/* A committed one is zeroed in order with batches: behind those that were submitted, which
	 * may still read and write it, and behind copies down of it. Does not wait for batches. 0,
	 * or -ENOMEM, -EIO: it is of no use, and to be released. */
	MUST_CHECK int (*extent_renew)(struct backend *b, uint32_t extent);

	/* Makes host memory of an arena reachable, or a piece of it; ret_base is what io addresses
	 * are made of. 0 or -errno. Detached is what was attached, by the same pieces. Both keep
	 * their caller, and may keep all who ask the driver for something: 0.05 and 0.02 ms a MiB
	 * on an H200. */
	MUST_CHECK int (*arena_attach)(struct backend *b, void *host, uint64_t bytes,
				       uint64_t *ret_base);
	void (*arena_detach)(struct backend *b, uint64_t base, uint64_t bytes);

	/* Device memory, zeroed, which others map by a descriptor; bytes: a multiple of 2 MiB.
	 * ret->device is that wanted, 0 in all bytes: any. 0, -ENOMEM, -ENODEV (none of this
	 * backend's), -ENOTSUP (no device has memory of its own), -EIO. Freed once nobody has it
	 * mapped any more. Both NULL: the backend has no device. Block. */
	MUST_CHECK int (*arena_new)(struct backend *b, uint64_t bytes, struct backend_arena *ret);
	void (*arena_free)(struct backend *b, uint64_t base);

	/* The plan of job->plan_id, made for an earlier job of the same queries, one new token
	 * each, is to serve this one, whose queries have come one token further: list->rows have
	 * the new positions and io the new slots (none where the query is where it was, or the
	 * token on another device of a group), the tree and the rest of the list are as they were.
	 * Called once per token, before the first submit with it; one after the other for those
	 * that have come since a plan was prepared. 0, or BACKEND_SOON; -ESTALE or -ENOMEM: make a
	 * new plan. NULL: this backend never can. */
	MUST_CHECK int (*advance)(struct backend *b, const struct backend_job *job);
	/* Makes ahead what the first submit of a job with this plan id has to make of tree and
	 * list, or advance has to have if that is called before: io is not looked at. One at a
	 * time, on any thread, beside all other calls but close; tree and list are lent during the
	 * call. What was prepared before and not asked for is dropped. 0, -ESTALE: such a plan is
	 * not kept, -EINVAL, -ENOMEM. NULL: this backend never does. */
	MUST_CHECK int (*prepare)(struct backend *b, const struct backend_job *job);
	/* Starts a batch. Batches complete in order of submission. ret_id counts from 1. 0;
	 * -ESTALE: an advanced job's plan is gone or does not fit what is wanted, make new ones; or
	 * -errno. After an error nothing is under way. */
	MUST_CHECK int (*submit)(struct backend *b, const struct backend_batch *batch,
				 uint64_t *ret_id);
	/* Grows while a submit, or an estimate, is really at work: of backends that are in it until
	 * all is computed. Any thread. NULL: they only begin what completed tells the end of. */
	uint64_t (*progress)(struct backend *b);
	/* Masses [n_kv_heads][blocks of n_q][blocks of n_k], in memory of the backend's that stays
	 * as it is until its next estimate. Batches submitted before have written their K. Blocks
	 * until the masses are there. 0, -EINVAL, -ENOMEM, -EIO. NULL: this backend cannot. */
	MUST_CHECK int (*estimate)(struct backend *b, const struct backend_estimate *estimate,
				   const float **ret_mass);
	/* Estimates, and chooses by the masses what select_chunk (plan/select.h) would, for each KV
	 * head: bits [n_kv_heads][ranges] [words], where estimate's masses would be. Adds to
	 * *shares. As estimate. NULL: the caller has to choose by the masses. */
	MUST_CHECK int (*choose)(struct backend *b, const struct backend_estimate *estimate,
				 const struct select_config *config,
				 const struct select_chunk *chunk, const uint64_t **ret_kept,
				 struct select_shares *shares);
	/* Can the backend take the job with the blocks chosen as they are? Otherwise the same comes
	 * of jobs of single heads. Where everything is kept: is it better so than by the job's
	 * list? Does not block. NULL: it never can. */
	bool (*takes_chosen)(struct backend *b, const struct backend_job *job);
	/* Id of the newest batch that is complete. -EIO: the device failed, nothing will complete
	 * any more. Does not block. */
	MUST_CHECK int (*completed)(struct backend *b, uint64_t *ret_id);
	/* Of the batch submitted last, by its id: it has all of the device that it wants, so that
	 * what others begin there now is not in its way. Does not block. NULL: nobody knows. */
	bool (*settled)(struct backend *b, uint64_t id);
	/* Moves are done in order. Blocks until done. */
	MUST_CHECK int (*move)(struct backend *b, const struct work_shape *shape,
			       const struct backend_move *moves, uint32_t n);

	void (*counters)(struct backend *b, struct backend_counters *ret);
	void (*cost)(struct backend *b, const struct work_shape *shape, struct backend_cost *ret);
	/* How many times as long as that a batch may take on a machine that nobody has seen one on
	 * yet; 0: as long. */
	double unseen;
	/* What has failed for good, in a sentence; NULL: nothing. The pointer itself is NULL where
	 * nothing can fail. Does not block. */
	const char *(*fault)(struct backend *b);
	/* What works, but not as well as it might, since it was opened: a sentence; NULL: nothing.
	 * The pointer itself is NULL where there is never anything. */
	const char *(*notice)(struct backend *b);
	/* How the planner should weigh things on this backend. */
	uint32_t (*tile_rows)(struct backend *b, const struct work_shape *shape);
	/* NULL: KV stays in the pool. */
	const struct backend_tier_ops *tier;
	/* NULL: weights stay with clients. */
	const struct backend_program_ops *program;
};

extern const struct backend_ops backend_cpu;

#endif
