/*
 * schedule_load.c - what warps have to do with runs of KV blocks, as they are added one by one:
 * bytes to read, and what the busiest row block folds, its rows being neighbours or dealt in turn.
 * What has been added never makes it less. See schedule_impl.h.
 */
#include "schedule_load.h"
#include "proto/arith.h"

#define LEAST_PART 0.3 /* of the limit, that is worth a work tile of its own */
#define JUMP 0.25 /* of the limit, by which no run grows a part that has rows for it already */

static bool is_wide(const struct make *m, uint32_t n_blocks, uint32_t blocks)
{
	return m->wide && n_blocks >= WARP_GROUP && most_of_warps(blocks);
}

void load_init(const struct make *m, const struct strip *strip, struct load *ret)
{
	uint32_t n = strip->row_end - strip->row_begin;

	*ret = (struct load){.n_rows = n, .n_blocks = 1, .first = DEVICE_WARPS};
	while (ret->n_blocks * m->block_tokens < n)
		ret->n_blocks *= 2;
	ret->block_tokens = ceil_div(n, ret->n_blocks);
	ret->all_wide = is_wide(m, ret->n_blocks, (1u << ret->n_blocks) - 1);
}

/* Whole KV tiles of so many KV blocks are folded by all blocks that see something of them: the
 * first by those of the open one. */
static void fill(struct open_tile *open, uint32_t *folded, uint32_t room, uint32_t kv_blocks,
		 uint32_t blocks)
{
	uint32_t whole = (open->kv_blocks + kv_blocks) / room;

	open->blocks |= blocks;
	for (uint32_t rest = whole ? open->blocks : 0; rest; rest &= rest - 1)
		folded[__builtin_ctz(rest)] += room;
	for (uint32_t rest = whole > 1 ? blocks : 0; rest; rest &= rest - 1)
		folded[__builtin_ctz(rest)] += room * (whole - 1);
	open->kv_blocks = (open->kv_blocks + kv_blocks) % room;
	if (whole)
		open->blocks = open->kv_blocks ? blocks : 0;
}

/* Of a KV block in a wide tile, for each of so many row blocks. */
static double wide_ns(const struct make *m, uint32_t n_blocks)
{
	return n_blocks > WARP_GROUP ? m->wide_tile_ns : m->turned_tile_ns;
}

/* What block b of so many has to fold. */
static double block_ns(const struct make *m, const struct deal *deal, uint32_t n_blocks, uint32_t b)
{
	double each_ns = wide_ns(m, n_blocks);
	uint32_t kv_tiles =
		ceil_div(deal->narrow[b], DEVICE_KV_TILE_BLOCKS) + (deal->common.blocks >> b & 1);
	double ns = kv_tiles * DEVICE_KV_TILE_BLOCKS * m->kv_tile_ns + deal->wide[b] * each_ns;

	if (deal->wide_tile.blocks >> b & 1)
		ns += deal->wide_tile.kv_blocks * each_ns;
	return ns;
}

/* Of the busiest block. */
static double most_ns(const struct make *m, struct deal *deal, uint32_t n_blocks)
{
	for (; deal->touched; deal->touched &= deal->touched - 1) {
		double ns = block_ns(m, deal, n_blocks, (uint32_t)__builtin_ctz(deal->touched));

		deal->most_ns = ns > deal->most_ns ? ns : deal->most_ns;
	}
	return deal->most_ns;
}

/* As kv_tiles_make: for one block, in a wide tile, or for some. Returns how many copies bring
 * them. */
static uint32_t deal_add(const struct make *m, struct deal *deal, uint32_t n_blocks,
			 const struct run *run, uint32_t blocks)
{
	uint32_t copies;

	if ((blocks & (blocks - 1)) == 0) {
		copies = run_copies(run, deal->narrow[__builtin_ctz(blocks)]);
		deal->narrow[__builtin_ctz(blocks)] += run->n_kv_blocks;
	} else if (is_wide(m, n_blocks, blocks)) {
		blocks = (blocks & 0x0f ? 0x0f : 0) | (blocks & 0xf0 ? 0xf0 : 0);
		deal->touched |= deal->wide_tile.blocks;
		copies = run_copies(run, deal->wide_tile.kv_blocks);
		fill(&deal->wide_tile, deal->wide, WIDE_TILE_BLOCKS, run->n_kv_blocks, blocks);
	} else {
		deal->touched |= deal->common.blocks;
		copies = run_copies(run, deal->common.kv_blocks);
		fill(&deal->common, deal->narrow, DEVICE_KV_TILE_BLOCKS, run->n_kv_blocks, blocks);
	}
	deal->touched |= blocks;
	return copies;
}

void load_add_some(const struct make *m, struct load *load, const struct seen_run *seen)
{
	const struct run *run = seen->run;
	uint32_t begin = seen->begin, end = seen->end;
	uint32_t first = begin / load->block_tokens, last = (end - 1) / load->block_tokens;
	uint32_t all = (1u << load->n_blocks) - 1, turns = all, near = (2u << last) - (1u << first);

	if (end - begin < load->n_blocks) {
		turns = ((1u << (end - begin)) - 1) << begin % load->n_blocks;
		turns = (turns | turns >> load->n_blocks) & all;
	}
	load->wide = is_wide(m, load->n_blocks, near);
	load->n_wide += load->wide ? run->n_kv_blocks : 0;
	load->first = min_u32(load->first, first);
	load->last = max_u32(load->last, last);
	load->read_ns +=
		run->n_kv_blocks * m->read_ns +
		deal_add(m, &load->near, load->n_blocks, run, near) * m->want->costs->copy_ns;
	deal_add(m, &load->turns, load->n_blocks, run, turns);
}

/* Of a KV block that all row blocks see, for each of them. */
static double all_ns(const struct make *m, const struct load *load)
{
	return m->wide && load->n_blocks >= WARP_GROUP ? wide_ns(m, load->n_blocks) : m->kv_tile_ns;
}

/* What is taken too much for wide tiles of four row blocks if each of them takes as long as by
 * turns: the first of either warp group takes as long as any first one. Of tokens dealt in turn
 * there may be more such than are counted, and so too much is taken. */
static double firsts_ns(const struct make *m, uint32_t n_blocks, uint32_t n_wide)
{
	uint32_t firsts = min_u32(n_wide, 2 * WIDE_TILE_BLOCKS);

	return n_blocks == WARP_GROUP ? firsts * n_blocks * (m->turned_tile_ns - m->wide_tile_ns)
				      : 0;
}

double load_ns(const struct make *m, struct load *load)
{
	double near = most_ns(m, &load->near, load->n_blocks);
	double turns = most_ns(m, &load->turns, load->n_blocks), fold;
	uint32_t sharing = 1;

	if (load->first > load->last)
		return 0;
	/* warps that have no block share those of others */
	while (sharing < load->last - load->first + 1)
		sharing *= 2;
	near *= sharing;
	turns *= load->n_blocks;
	fold = (turns < near ? turns : near) + load->all * load->n_blocks * all_ns(m, load) -
	       firsts_ns(m, load->n_blocks, load->n_wide);
	return load->read_ns > fold ? load->read_ns : fold;
}

double load_ns_all(const struct make *m, const struct load *like, uint32_t n_kv_blocks,
		   double read_ns)
{
	double fold = n_kv_blocks * like->n_blocks * all_ns(m, like) -
		      firsts_ns(m, like->n_blocks, like->all_wide ? n_kv_blocks : 0);

	return read_ns > fold ? read_ns : fold;
}

bool load_takes(const struct make *m, struct load *load, const struct seen_run *seen,
		double limit_ns, double *ns)
{
	double before = *ns, now;

	load_add(m, load, seen);
	now = load_ns(m, load);
	if (before > LEAST_PART * limit_ns && now - before > JUMP * limit_ns)
		return false;
	*ns = now;
	return true;
}
