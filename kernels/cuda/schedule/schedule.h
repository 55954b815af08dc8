/*
 * schedule.h - from a work list to what the kernels run (format.h): KV blocks of 8 tokens in KV
 * tiles of 4 and wide tiles of 16, rows in work tiles of at most 128, long work tiles cut so that
 * every multiprocessor has about the same to do.
 *
 * Depends on nothing but the list and the shape: made once per plan, used by every layer, and,
 * where every query is a single token at the end of a path of its own, by the next tokens too:
 * schedule_advance says what changes. How many rows a work tile takes and how finely work tiles are
 * cut is chosen by modelled time: bytes from memory, arithmetic, partials that cuts cost.
 */
#ifndef COPPICE_CUDA_SCHEDULE_H
#define COPPICE_CUDA_SCHEDULE_H

#include "proto/must_check.h"
#include "kernels/work.h"
#include "costs.h"
#include "kernels/cuda/device/code.h"
#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/shape.h"

#include <stddef.h>

/* How rows and KV blocks are parted, where it is not the planner's to choose. */
struct schedule_choice {
	/* of the schedule's rows (row_map.h), at most 128 with their heads; 0: the planner
	 * chooses */
	uint32_t work_tile_tokens;
	/* of what a block has to do if all have the same, that a work tile takes at most; 0: no
	 * cuts */
	double share;
};

/* Those that the planner tries. */
#define SCHEDULE_N_SHARES 5u
extern const double schedule_shares[SCHEDULE_N_SHARES];

struct schedule_want {
	const struct work_shape *shape;
	const struct work_list *list;
	const bool *wanted; /* [queries]: whose output is wanted; NULL: all */
	struct pool_pages pages;
	const struct costs *costs;
	uint32_t n_blocks; /* that compute at the same time */
	enum code code; /* that computes it */
	bool flushed; /* the time is that of a bench that writes other memory before */
	struct schedule_choice choice;
	bool tails; /* every query is one token, and may be followed by the next */
};

/* Memory that grows and never shrinks. */
struct schedule_memory {
	void *at; /* owned */
	size_t bytes;
};

#define SCHEDULE_TAIL_KV_BLOCKS 4u /* of 8 tokens, that a row may grow by */

/* Where the next tokens of a row's own go: KV blocks set aside in KV tiles behind those of the work
 * tile. */
struct schedule_tail {
	uint32_t kv_tiles[SCHEDULE_TAIL_KV_BLOCKS];
	uint8_t kv_blocks[SCHEDULE_TAIL_KV_BLOCKS]; /* of the KV tile */
	uint8_t warps[SCHEDULE_TAIL_KV_BLOCKS]; /* that fold the KV tile once it has something */
	uint32_t work_tile; /* SCHEDULE_NO_TAIL: none */
	uint32_t first_kv_tile; /* its first */
	uint32_t token; /* of the work tile */
	/* newest: its tokens are at 8 x KV block and on; SCHEDULE_NO_KV_BLOCK: the row's last token
	 * is on another device */
	uint32_t kv_block;
	uint32_t source; /* where that lies */
	uint32_t pos; /* of the row's last token in it */
	uint32_t used; /* of the KV blocks set aside */
};

#define SCHEDULE_NO_TAIL UINT32_MAX
#define SCHEDULE_NO_KV_BLOCK UINT32_MAX

/* A word at an offset of an array. */
struct schedule_patch {
	uint32_t array; /* enum schedule_array */
	uint32_t offset; /* bytes */
	uint32_t value;
};

/* What was chosen, and the modelled time of one launch by its parts, spread over all blocks. */
struct schedule_expect {
	uint32_t work_tile_tokens; /* of the list's rows, at most */
	bool even; /* an item's strips have as many each */
	uint32_t n_cut; /* strips of rows whose KV blocks several work tiles share */
	uint32_t n_work_tiles;
	double launch_ns; /* whatever there is to do */
	double kv_blocks_ns; /* reading and folding */
	/* what each work tile costs beyond that, its rows' Q and O among it */
	double work_tiles_ns;
	double parts_ns; /* partials written and read */
	double idle_ns; /* blocks that wait for the last */
	double memory_ns; /* blocks that wait for memory, which all share */
	double merge_ns;
	double all_ns;
};

enum schedule_array {
	SCHEDULE_WORK_TILES,
	SCHEDULE_FIRSTS,
	SCHEDULE_KV_TILES,
	SCHEDULE_SOURCES,
	SCHEDULE_DESTS,
	SCHEDULE_MERGES,
	SCHEDULE_N_ARRAYS,
	SCHEDULE_N_SCRATCH = 19
};

struct schedule {
	struct schedule_memory arrays[SCHEDULE_N_ARRAYS]; /* owned */
	uint32_t n[SCHEDULE_N_ARRAYS]; /* entries */
	uint32_t n_parts; /* of one query head */
	uint32_t most_parts; /* of one row */
	uint64_t n_kv_blocks; /* fetched for one KV head */
	struct schedule_expect expect;
	/* [rows of the schedule] with want.tails, else NULL; until the next schedule_make */
	struct schedule_tail *tails;
	struct schedule_memory scratch[SCHEDULE_N_SCRATCH]; /* owned */
};

/* What a schedule has become since it was made. */
struct schedule_growth {
	uint32_t *n_kv_tiles; /* owned, [n_work_tiles]: how many KV tiles each has by now */
	/* owned, [n_work_tiles]: 1 + index of the patch that says so; 0: none */
	uint32_t *work_tile_patches;
	/* owned: not written yet. No two are of the same word with another value */
	struct schedule_patch *patches;
	uint32_t n_work_tiles, n_patches, patches_room;
};

/* Bytes of an entry. */
size_t schedule_entry_bytes(enum schedule_array array);

/* Fills *schedule, which the caller zeroed once and may use again. 0 or -ENOMEM. */
MUST_CHECK int schedule_make(struct schedule *schedule, const struct schedule_want *want);
/* As schedule_make, schedule->expect alone. */
MUST_CHECK int schedule_estimate(struct schedule *schedule, const struct schedule_want *want);

/* Of a schedule as it was made. 0 or -ENOMEM. */
MUST_CHECK int schedule_growth_init(struct schedule_growth *growth,
				    const struct schedule *schedule);
/* The patches are written, or will be before anything else is. */
void schedule_growth_written(struct schedule_growth *growth);
void schedule_growth_done(struct schedule_growth *growth);

/* The row's next token is at pos, in the KV block at source: adds what is to be patched. Tokens
 * between, if any, are on other devices. 0, -ENOMEM, or -ESTALE where there is no room, or where it
 * lies in another page than those before it in its KV block: somebody else's token is there. After
 * either: make a new schedule. */
MUST_CHECK int schedule_advance(struct schedule_tail *tail, uint32_t pos, uint32_t source,
				struct schedule_growth *growth);
/* The row's last token is at pos, as before or on another device. 0, or -ESTALE where it would be
 * in the KV block that the row's last one here is in: somebody else's token may be there. */
MUST_CHECK int schedule_pass(const struct schedule_tail *tail, uint32_t pos);
void schedule_done(struct schedule *schedule);

#endif
