/*
 * schedule_impl.h - between the parts of a schedule's making.
 *
 * A *strip* is a run of an item's rows that work tiles take together; its KV blocks stand in the
 * list's order, so that a cut anywhere gives two work tiles whose rows are those that see something
 * on their side.
 *
 *      list --schedule_runs.c, schedule_strips.c, schedule_choose.c--> strips
 *      strips --schedule_work_tiles.c--> cuts, work tiles
 *      work tiles --schedule_kv_tiles.c--> KV tiles, wide tiles
 *                                              \--schedule_tails.c--> KV tiles for tokens to come
 *
 * Calls go down this list: schedule, work tiles, mix, tails, KV tiles, choose, strips, cost, load,
 * runs, arrays.
 */
#ifndef COPPICE_CUDA_SCHEDULE_IMPL_H
#define COPPICE_CUDA_SCHEDULE_IMPL_H

#include "kernels/cuda/device/row_map.h"
#include "proto/must_check.h"
#include "schedule.h"
#include "proto/arith.h"

/* Of work tiles: one more may be a wave of its own, and parts are made longer so that there is
 * none. Where they come in more waves longer parts are worse (NOTES.md). */
#define FEW_WAVES 2.0
#define WARP_GROUP 4u /* row blocks that wgmma takes at a time */
#define WIDE_TILE_BLOCKS (DEVICE_WIDE_KV_TILES * DEVICE_KV_TILE_BLOCKS)

enum scratch {
	KV_BLOCKS,
	STRIPS,
	SEEN,
	COUNTS,
	BASES,
	QUEUES,
	TAILS,
	WORK_TILE_OF_KV_TILE,
	RUNS,
	RUN_FIRSTS,
	RUN_HULLS,
	RUN_REACHES,
	ENDS,
	LAST_OWN,
	SPREAD_ROWS,
	SPREAD_ITEMS,
	SPREAD_TILES,
	SPREAD_PIECES,
	MIXED,
	N_SCRATCH
};
static_assert((int)N_SCRATCH == (int)SCHEDULE_N_SCRATCH, "a place for each");

/* A row that a work tile has something for, in the order of work tiles. */
struct seen {
	uint32_t row, dest;
};

/* A KV block of a strip; rows are tokens from the strip's first. */
struct piece_kv_block {
	struct device_kv_block kv_block;
	uint32_t source;
	bool causal; /* some of its rows see some of its tokens by position */
	/* ends with the last token here that its only row alone sees: behind it come the
	 * next ones */
	bool tail;
	bool grows; /* and that is the row's own: they begin in this KV block */
	/* What is asked of one KV block after the other is asked of many at once: those up to the
	 * first are whole and for the same rows, or it is this one alone; those up to the second
	 * lie side by side in the pool, and are for the same rows, as many as go into a KV tile. */
	uint32_t alike_end, beside_end;
};

/* Of a strip, each a work tile: their KV blocks' modelled time, as long as KV blocks go on being
 * added to one, and of all. */
struct parts {
	uint32_t n;
	double each_ns, all_ns;
};

struct strip {
	uint32_t item;
	uint32_t row_begin, row_end; /* of the list */
	uint32_t asked; /* how many parts were last asked for; 0: none yet */
	struct parts parts; /* and what came of it */
	double cost;
	uint32_t n_wide, n_others; /* KV blocks that go into wide tiles, and that do not */
};

/* What all of an item's pieces have in common. */
struct common {
	uint32_t row_begin, row_end; /* that see something of each */
	uint64_t pos_end; /* of the last */
	uint32_t pos; /* of the first */
	uint32_t item;
	bool known;
};

/* Work tiles of a strip whose rows all see the whole of its item: those of the next such strip have
 * the same KV tiles. */
struct alike {
	uint32_t item, n_rows; /* of the strip; n_rows 0: none yet */
	uint32_t work_tile, n_work_tiles;
	uint64_t n_kv_blocks;
};

/* KV tiles of a work tile that are wide tiles of KV blocks which all rows see: work tiles of the
 * next strips may have them, too. */
struct lead {
	uint32_t kv_tile, n_kv_tiles;
};

#define LEADS 16u /* parts of a strip; of more the first ones' */

/* What of the strip that was read last is there for the next one: KV blocks of its item's first
 * runs, of which all rows of either see all. */
struct kept {
	uint32_t item, n_rows; /* of the strip; n_rows 0: nothing is */
	uint32_t end; /* of the runs */
	uint32_t n_kv_blocks;
	uint32_t row_end; /* of the list: each run has rows up to here */
	uint32_t pos; /* of the last token */
	struct lead leads[LEADS];
	uint32_t n_leads;
};

struct make {
	struct schedule *p;
	const struct schedule_want *want;
	const struct work_list *list; /* the wanted one, or spread */
	struct work_list spread;
	struct row_map map;
	bool wide; /* wide tiles can be computed */
	bool again; /* KV is read again by strips that are not in step */
	bool even; /* strips of an item have as many rows each; else the last has the rest */
	bool no_rests; /* a strip's parts are alike, where else the last would be a rest */
	uint32_t block_tokens; /* rows of the schedule in a row block, at most */
	double read_ns; /* of a KV block; those that follow of a KV block and block */
	double kv_tile_ns, wide_tile_ns, turned_tile_ns;
	double row_ns, part_ns; /* of a row */
	uint32_t n_kv_blocks; /* of the strip at hand */
	uint32_t least_pos, most_low; /* of its rows */
	uint32_t n_strips, n_runs;
	uint32_t n_seen;
	struct common common;
	struct alike alike;
	struct kept kept;
};

/* KV blocks that go into KV tiles of one kind, in the order in which they came. */
struct queue {
	uint32_t *kv_blocks; /* indices of the strip's */
	uint32_t *blocks; /* of the work tile, of each */
	uint32_t n, used;
	uint32_t same; /* the blocks of all; 0: they are not known to be the same */
};

enum queue_kind { QUEUE_COMMON = DEVICE_WARPS, QUEUE_WIDE, N_QUEUES };

/* A work tile under way: KV blocks [begin, end) of the strip, rows (tokens) [row_begin, row_end) of
 * it. */
struct cut {
	const struct strip *strip;
	uint32_t begin, end;
	uint32_t row_begin, row_end;
	uint32_t blocks_log2;
	uint32_t block_tokens;
	bool dealt; /* tokens to blocks in turn */
	bool old; /* without tails, where others have some */
	uint32_t kv_tile; /* the work tile's own first */
	uint32_t shared, n_shared, shared_run; /* and what comes before it (format.h) */
	uint32_t turns[N_QUEUES]; /* KV tiles or wide tiles dealt so far */
	struct queue queues[N_QUEUES];
};

/* A KV tile as it is made: what warps are told of it, and where its KV blocks lie. */
struct kv_tile {
	struct device_kv_tile *meta;
	struct device_source *source;
};

/* Pieces of an item one after the other that the same rows see; in pages of their own, so that no
 * copy brings two. */
struct run {
	uint32_t row_begin, row_end; /* of the list */
	uint32_t pos; /* of the first token */
	uint32_t piece; /* the first of n_pieces of the list */
	uint32_t n_pieces, n_kv_blocks;
	uint32_t piece_kv_blocks; /* of a piece, rounded up */
	double read_ns; /* where it begins a KV tile */
};

/* Rows of a few runs one after the other, and whatever lies between these rows. */
#define HULL_RUNS 16u

struct hull {
	uint32_t row_begin, row_end; /* of the list */
};

/* Do at least three of a warp group's four row blocks see it? */
static inline bool most_of_warps(uint32_t blocks)
{
	const uint32_t threes = 1u << 7 | 1u << 11 | 1u << 13 | 1u << 14 | 1u << 15;

	return (threes >> (blocks & 0x0f) & 1) || (threes >> (blocks >> 4) & 1);
}

/* All of its rows see all 8 tokens. */
static inline bool kv_block_is_whole(const struct piece_kv_block *at)
{
	return !at->causal && at->kv_block.first == 0 && at->kv_block.end == KV_BLOCK_TOKENS;
}

/* From a KV block to the next in its page, in sources. */
static inline uint32_t make_kv_block_step(const struct make *m)
{
	return kv_block_sources(m->want->shape);
}

/* Are rows [begin, end) of the schedule those of one token, or some of them? */
static inline bool make_one_token(const struct make *m, uint32_t begin, uint32_t end)
{
	return begin / m->map.n == (end - 1) / m->map.n;
}

static inline struct strip *make_strips_of(const struct make *m)
{
	return m->p->scratch[STRIPS].at;
}

/* ---- schedule_arrays.c: the ground, which knows none of the others -------------------------- */

/* Room for n elements in scratch memory, what is there stays. NULL: none. */
void *make_scratch(struct make *m, enum scratch which, size_t n, size_t size);
/* The next n entries of an array; NULL: no memory. Ends pointers into the array. */
void *make_append(struct make *m, enum schedule_array array, uint32_t n);
/* The next n KV tiles, of no KV blocks yet; *ret: the first. Ends the pointers of those before. 0
 * or -ENOMEM. */
MUST_CHECK int make_kv_tiles(struct make *m, uint32_t n, struct kv_tile *ret);
/* Is some row's output of [begin, end) of the list wanted? */
bool make_wants(const struct make *m, uint32_t begin, uint32_t end);

/* ---- schedule_rows.c ------------------------------------------------------------------------ */

/* make->list is the list with as many rows as the schedule has. 0 or -ENOMEM. */
MUST_CHECK int rows_spread(struct make *m);

/* ---- schedule_strips.c ---------------------------------------------------------------------- */

/* All items' rows in strips of so many tokens. 0 or -ENOMEM. */
MUST_CHECK int strips_make(struct make *m, uint32_t tokens);
/* Do all rows of the strip see all tokens of its item? */
bool strip_sees_all(struct make *m, const struct strip *strip);
/* Fills scratch KV_BLOCKS with the strip's KV blocks, make->n_kv_blocks. 0 or -ENOMEM. */
MUST_CHECK int strip_read(struct make *m, const struct strip *strip);
/* Sets alike_end and beside_end of the strip's KV blocks. */
void strip_find_stretches(struct make *m);

/* ---- schedule_runs.c ------------------------------------------------------------------------ */

/* Of all items. 0 or -ENOMEM. */
MUST_CHECK int runs_make(struct make *m);
/* Sets what follows from the run's pieces and KV blocks. */
void run_weigh(const struct make *m, struct run *run);
/* How many copies bring it to KV tiles of which the first has some KV blocks already: each KV tile
 * takes one for each piece. */
static inline uint32_t run_copies(const struct run *run, uint32_t filled)
{
	uint32_t end = filled % DEVICE_KV_TILE_BLOCKS + run->piece_kv_blocks;

	return run->n_pieces * ceil_div(end, DEVICE_KV_TILE_BLOCKS);
}

/* Those of the strip's item, [begin, end). */
uint32_t runs_begin(const struct make *m, const struct strip *strip);
uint32_t runs_end(const struct make *m, const struct strip *strip);
/* The first of [i, end) that may have rows of the strip; end or behind it: none. */
static inline uint32_t runs_next(const struct make *m, const struct strip *strip, uint32_t i,
				 uint32_t end)
{
	const struct hull *hulls = m->p->scratch[RUN_HULLS].at;

	while (i % HULL_RUNS == 0 && i < end &&
	       (hulls[i / HULL_RUNS].row_begin >= strip->row_end ||
		hulls[i / HULL_RUNS].row_end <= strip->row_begin))
		i += HULL_RUNS;
	return i;
}

/* All rows of the strip see the runs from begin up to the one returned. */
uint32_t runs_seen_by_all(const struct make *m, const struct strip *strip);
/* What runs [begin, end) of the strip's item come to: time to read them, and KV blocks. */
double runs_sum(const struct make *m, const struct strip *strip, uint32_t begin, uint32_t end,
		uint32_t *ret_n_kv_blocks);

/* ---- schedule_cost.c ------------------------------------------------------------------------ */

/* What each work tile of the strip costs beyond its KV blocks: its rows' Q and O among it. */
double strip_fixed_cost(const struct make *m, const struct strip *strip);
/* Sets the strip's cost, modelled time as one work tile, and how many KV blocks it has of either
 * kind. */
void strip_weigh(const struct make *m, struct strip *strip);
/* What it is cut into. */
struct parts strip_parts(const struct make *m, struct strip *strip, double limit_ns);

/* ---- schedule_choose.c ---------------------------------------------------------------------- */

/* Strips of as many rows as suits, and how long a work tile is to take at most. 0 or -ENOMEM. */
MUST_CHECK int strips_choose(struct make *m, double *ret_limit_ns);

/* ---- schedule_kv_tiles.c -------------------------------------------------------------------- */

/* Deals tokens to row blocks in turn where neighbours have so unlike amounts to read that some
 * warps would have little to do. */
void kv_tiles_deal(const struct make *m, struct cut *cut);
/* KV tiles and wide tiles of the cut, in the order in which they are folded. 0 or -ENOMEM. */
MUST_CHECK int kv_tiles_make(struct make *m, struct cut *cut);
/* Does the token of the strip see something of the KV block? */
bool cut_row_sees(const struct make *m, const struct strip *strip, const struct piece_kv_block *at,
		  uint32_t token);
/* The queue that a KV block of the strip goes to. */
uint32_t cut_queue_of(const struct make *m, const struct cut *cut, const struct piece_kv_block *at);
/* Row block of a token of the work tile. */
uint32_t cut_block_of(const struct cut *cut, uint32_t token);
/* A mask of row blocks as one of the warps that take them in this turn. */
uint32_t cut_warps_in_turn(struct cut *cut, enum queue_kind kind, uint32_t blocks);

/* ---- schedule_tails.c ----------------------------------------------------------------------- */

/* Before the first work tile, behind the KV tiles of each, and once work tiles are sorted. The
 * first finds where rows end here, too: scratch LAST_OWN, of each row of the list 1 + the position
 * of the last token that it alone sees; 0: there is none. 0 or -ENOMEM. */
MUST_CHECK int tails_clear(struct make *m);
MUST_CHECK int tails_reserve(struct make *m, struct cut *cut);
MUST_CHECK int tails_place(struct make *m);

/* ---- schedule_mix.c ------------------------------------------------------------------------- */

/* Is a strip mixed whose KV blocks are so many? Where each part has many wide tiles, more than
 * others, and a KV tile of these. */
static inline bool mix_pays(uint32_t n_wide, uint32_t n_others, uint32_t n_parts)
{
	const uint32_t least_wide_tiles = 16; /* of a part; with 8 it was 2 % slower */

	return n_others <= n_wide && n_others >= n_parts * DEVICE_KV_TILE_BLOCKS &&
	       n_wide >= n_parts * least_wide_tiles * WIDE_TILE_BLOCKS;
}

/* Puts the strip's KV blocks, which have been read, into an order for n_parts parts, whose ends it
 * sets. 1: done; 0: they are better cut as they are; or -ENOMEM. */
MUST_CHECK int strip_mix(struct make *m, const struct strip *strip, uint32_t n_parts,
			 uint32_t *ends);

/* ---- schedule_work_tiles.c ------------------------------------------------------------------ */

/* A strip's work tiles; where all rows see all, only the first strip needs KV tiles. 0 or
 * -ENOMEM. */
MUST_CHECK int work_tiles_make(struct make *m, struct strip *strip, double limit_ns);

#endif
