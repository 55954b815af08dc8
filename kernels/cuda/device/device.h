/*
 * device.h - what host and kernels of the CUDA backend both know: where KV lies in a page, the
 * program of a launch, and the launches themselves.
 *
 *   page     [layer][KV head] of head blocks; a head block is page_tokens / 8 groups
 *   group    8 tokens: 8 rows of K, then 8 rows of V, each in atoms of 8 rows x 128 bytes; the 16-byte chunk c of a
 *            row r lies at c ^ r of its atom (the 128-byte swizzle), so that any run of groups is one bulk copy
 *   slot     what shared memory takes at a time: up to 4 groups, one step of a warp's softmax
 *   stage    4 slots one after the other that warp groups (4 warps, 64 rows) take in one go: wide
 *   unit     rows x slots that one block computes for one KV head; an entry of the ticket counter is (unit, head), or a unit
 *            where every head has its own
 *
 * A unit's rows (tokens x query heads of the KV head) stand in blocks of 16, whole tokens and as
 * many in each block as in the others. With 2^blocks_log2 blocks, warp w takes block w mod
 * 2^blocks_log2; the warps of one block share its slots out and merge in shared memory.
 *
 * Values in the pool are finite, all of them: append stores a token whose V has an infinity or a
 * NaN as V = 0, K = NaN, so that rows that see it become NaN and rows that do not, in the same
 * tile, are spared (0 x NaN is NaN).
 */
#ifndef COPPICE_CUDA_DEVICE_H
#define COPPICE_CUDA_DEVICE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define DEVICE_GROUP_TOKENS 8u
#define DEVICE_SLOT_GROUPS 4u
#define DEVICE_STAGE_SLOTS 4u
#define DEVICE_FIRST_SLOTS 16u /* of a unit, whose sources stand apart */
#define DEVICE_WARPS 8u /* that compute */
#define DEVICE_BLOCK_ROWS 16u
#define DEVICE_UNIT_ROWS 128u
#define DEVICE_SOURCE_BYTES 2048u /* sources count in these */
#define DEVICE_NONE UINT32_MAX

/* Tokens [first, end) of a group; token j is at pos + j; seen by the unit's tokens [row_begin,
 * row_end). */
struct device_group {
	int32_t pos;
	uint16_t row_begin, row_end;
	uint16_t first, end;
	uint32_t pad;
};

struct device_slot {
	struct device_group groups[DEVICE_SLOT_GROUPS];
	uint8_t warps; /* bit w: warp w computes it; in a stage all 4 slots have the same */
	uint8_t plain; /* bit w: all rows of the warp see all keys */
	uint8_t wide; /* of a stage, which begins at a multiple of 4 in its unit */
	/* some row sees some of a group's tokens by position; not in stages, whose groups
	 * are whole */
	uint8_t causal;
	uint8_t run; /* of a stage: stages from here on that the same warps take */
	uint8_t plain_stage; /* of a stage: bit w: plain in all 4 slots */
	/* some group has, or may come to have, tokens that not all of its rows see */
	uint8_t partial;
	uint8_t pad[9];
};

/* Where the groups of a slot lie in the pool, for layer and head 0; DEVICE_NONE: no group. */
struct device_source {
	uint32_t groups[DEVICE_SLOT_GROUPS];
};

struct device_unit {
	uint32_t row; /* first of n_rows in the list */
	uint32_t n_rows;
	uint32_t slot;
	uint32_t n_slots;
	/* first of n_rows in dests: DEVICE_NONE: the output itself; else a partial's index */
	uint32_t dest;
	uint32_t blocks_log2;
	uint32_t flags;
	uint32_t block_tokens; /* of a row block */
};

enum device_unit_flags {
	DEVICE_UNIT_WIDE = 1, /* has stages */
	DEVICE_UNIT_DEALT = 2, /* token t is in block t mod 2^blocks_log2, not t / block_tokens */
	DEVICE_UNIT_OLD = 4, /* nothing of its KV is new, and nothing of it is ever patched */
};

#define DEVICE_DEST_NOTHING (DEVICE_NONE - 1) /* the row sees nothing of the unit */

/* A row that has no partial or several: [first, first + n_parts). */
struct device_merge {
	uint32_t row;
	uint32_t first;
	uint32_t n_parts;
	uint32_t pad;
};

/* A token row of the list: addresses of head 0, of q and o multiples of 16. o == 0: not wanted, q
 * is 0 then; lse == 0: not wanted. */
struct device_row {
	uint64_t q, o, lse;
	uint32_t pos;
	uint32_t pad;
};

/* A token to append: its K and V of head 0, and the row of the group at source. */
struct device_token {
	uint64_t k, v;
	uint32_t source;
	uint32_t row;
};

struct device_shape {
	uint32_t head_dim;
	uint32_t bf16;
	uint32_t n_kv_heads;
	uint32_t group; /* query heads of a KV head */
	uint64_t head_bytes; /* from a KV head to the next */
	float scale_log2; /* softmax scale x log2 e */
	uint32_t pad;
};

struct device_attend {
	struct device_shape shape;
	const struct device_unit *units;
	const struct device_slot *slots;
	/* [unit][DEVICE_FIRST_SLOTS], once more: one miss less on the way to them */
	const struct device_source *firsts;
	const struct device_source *sources;
	const uint32_t *dests;
	const struct device_merge *merges;
	const struct device_row *rows;
	const char *pool; /* at the layer */
	float *part_o; /* [partial][n_q_heads][head_dim], times sum */
	float *part_stats; /* [partial][n_q_heads][max, sum] */
	/* [2]: entries drawn beyond the first of each block, blocks that are done; 0 between
	 * launches */
	uint32_t *ticket;
	uint32_t n_units;
	uint32_t n_slots, n_dests, n_rows;
	uint32_t n_merges;
	uint32_t merge_warps_log2; /* that share a merge: 0 or 2 */
	uint32_t patched; /* units may have been, by the launch before */
	uint32_t n_blocks;
	/* each KV head has so many of its own, of n_units; 0: all have the same */
	uint32_t head_units;
	uint32_t first_head; /* of those that do */
	/* What device_attend itself makes of these: a block that begins should divide nothing. */
	uint32_t n_entries;
	uint32_t entry_divisor; /* head_units, or else n_kv_heads */
	uint32_t entry_inverse; /* 2^32 / entry_divisor, rounded down */
	uint32_t group_inverse; /* 2^16 / shape.group + 1: right for the rows of a block */
};

/* Rows of bytes from anywhere to anywhere. */
struct device_copy {
	uint64_t from, to;
};

/* A word of a program that changes as tokens come. */
struct device_patch {
	uint64_t to;
	uint32_t value;
	uint32_t pad;
};

/* What comes before attention: new tokens into pages, rows of Q that lie elsewhere or askew into
 * device memory, the rows' table itself. Tables may lie in pinned host memory. */
struct device_inbound {
	struct device_shape shape;
	const struct device_token *tokens;
	const struct device_copy *copies;
	char *pool; /* at the layer */
	const struct device_row *rows_from;
	struct device_row *rows_to;
	const struct device_patch *patches;
	uint32_t n_tokens, n_copies, n_rows, n_patches;
	uint32_t copy_bytes; /* a multiple of 16 */
	uint32_t aligned; /* K and V lie at multiples of 16 bytes */
	uint32_t pad;
	uint64_t *begin_ns; /* written as it begins; NULL: nowhere */
	/* Copy i is from copy_from + i x copy_stride to copy_to + i x copy_bytes, so that the table
	 * need not be read; stride 0: it must. */
	uint64_t copy_from, copy_to, copy_stride;
};

/*
 * A call: what a launch that stands on the device, before anybody knows what it is for, waits for
 * in pinned memory. A word of its device_inbound and the tag in one packet, which memory does not
 * tear: whoever has read the tag has read the word.
 */
#define DEVICE_CALL_WORDS 20u
#define DEVICE_CALL_GO(id) (2 * (uint64_t)(id))
#define DEVICE_CALL_LEAVE(id) (2 * (uint64_t)(id) + 1)

struct device_call {
	struct {
		uint64_t word, tag;
	} packets[DEVICE_CALL_WORDS];
};
static_assert(sizeof(struct device_inbound) <= DEVICE_CALL_WORDS * 8, "room for it in a call");

/* In the place of a device_inbound. Nobody calls in time, or says that it is to leave: what follows
 * finds rows of which nothing is wanted. */
struct device_stand {
	const struct device_call *call; /* pinned */
	struct device_call *heard; /* device memory: handed on */
	struct device_row *rows; /* of what follows */
	uint64_t *answer; /* pinned: the tag by which it went on */
	uint64_t id;
	uint64_t patience_ns;
	uint32_t n_rows;
	uint32_t pad;
};

/* Exchanges with other devices, since they met: how long they took, and what of O and LSE this
 * device gave them. */
struct device_exchanged {
	uint64_t ns, given_bytes;
};

/* Of a batch, in pinned host memory, by the device's clock; the id comes last, when all that the
 * batch writes is there. */
struct device_clock {
	uint64_t begin_ns;
	uint64_t answer; /* of the batch's launch that stood on the device: a call's tag */
	struct device_exchanged exchanged; /* by all batches up to this */
	uint64_t end_ns, id; /* written as one */
	uint64_t pad[2];
};

/* Words of other processes that wait for a batch, in pinned host memory; of that with this id. */
#define DEVICE_TELLS 32u

struct device_tells {
	uint64_t id, n;
	struct {
		uint64_t address, value;
	} words[DEVICE_TELLS];
};

struct device_finish {
	struct device_clock *clock;
	uint64_t id;
	const struct device_exchanged *exchanged; /* for the clock; NULL: 0 */
	const struct device_tells *tells;
	/* the batch's, if its launch stood on the device: it may have left; NULL: it did not */
	const struct device_call *heard;
};

/* Rows [from_row] of the group at from to [to_row] of that at to, of n_heads head blocks (all
 * layers and heads). */
struct device_move {
	char *pool;
	uint64_t head_bytes;
	uint32_t head_dim;
	uint32_t n_heads;
	uint32_t from, to; /* sources */
	uint32_t from_row, to_row;
};

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *device_stream;

/* Each returns a cudaError_t as int: 0 is success. They start work on the stream and do not
 * wait. */
int device_attend(const struct device_attend *attend, device_stream stream);
int device_merge(const struct device_attend *attend, device_stream stream);
int device_inbound(const struct device_inbound *inbound, device_stream stream);
int device_stand(const struct device_stand *stand, device_stream stream);
/* Copies of so many bytes each, a multiple of 2, as are their addresses. */
int device_outbound(const struct device_copy *copies, uint32_t n, uint32_t bytes,
		    device_stream stream);
/* When all before it is complete. */
int device_finish(const struct device_finish *finish, device_stream stream);
int device_move(const struct device_move *move, device_stream stream);

/* Readies the kernels of this shape. Blocks. */
int device_attend_init(uint32_t head_dim, bool bf16);
/* The driver has loaded the code for sm_90a, with stages, bulk copies and launches that overlap;
 * false: that for sm_80, or it cannot be told. */
bool device_is_hopper(void);

#ifdef __cplusplus
}
#endif

#endif
