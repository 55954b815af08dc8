/*
 * program_load.c - what warps have to do with runs of groups, as they are added one by one: bytes
 * to read, and what the busiest row block folds, its rows being neighbours or dealt in turn. What
 * has been added never makes it less. See program_impl.h.
 */
#include "program_impl.h"

#define LEAST_PART 0.3 /* of the limit, that is worth a unit of its own */
#define JUMP 0.25 /* of the limit, by which no run grows a part that has rows for it already */
#define FEW_TURNS 2u /* of all warps, a slot each, up to which a part has whole ones */

void load_init(const struct make *m, const struct strip *strip, struct load *ret)
{
	uint32_t n = strip->row_end - strip->row_begin;

	*ret = (struct load){.n_rows = n, .n_blocks = 1, .first = DEVICE_WARPS};
	while (ret->n_blocks * m->block_tokens < n)
		ret->n_blocks *= 2;
	ret->block_tokens = (n + ret->n_blocks - 1) / ret->n_blocks;
}

/* Whole slots of so many groups are folded by all blocks that see something of them: the first by
 * those of the open one. */
static void fill(struct open_slot *open, uint32_t *folded, uint32_t room, uint32_t groups,
		 uint32_t blocks)
{
	uint32_t whole = (open->groups + groups) / room;

	open->blocks |= blocks;
	for (uint32_t rest = whole ? open->blocks : 0; rest; rest &= rest - 1)
		folded[__builtin_ctz(rest)] += room;
	for (uint32_t rest = whole > 1 ? blocks : 0; rest; rest &= rest - 1)
		folded[__builtin_ctz(rest)] += room * (whole - 1);
	open->groups = (open->groups + groups) % room;
	if (whole)
		open->blocks = open->groups ? blocks : 0;
}

static bool is_staged(const struct make *m, uint32_t n_blocks, uint32_t blocks)
{
	return m->wide && n_blocks >= WARP_GROUP && most_of_warps(blocks);
}

/* What block b has to fold. */
static double block_ns(const struct make *m, const struct deal *deal, uint32_t b)
{
	uint32_t slots = (deal->narrow[b] + DEVICE_SLOT_GROUPS - 1) / DEVICE_SLOT_GROUPS +
			 (deal->common.blocks >> b & 1);
	double ns = slots * DEVICE_SLOT_GROUPS * m->slot_ns + deal->wide[b] * m->stage_ns;

	if (deal->stage.blocks >> b & 1)
		ns += deal->stage.groups * m->stage_ns;
	return ns;
}

/* Of the busiest block. */
static double most_ns(const struct make *m, struct deal *deal)
{
	for (; deal->touched; deal->touched &= deal->touched - 1) {
		double ns = block_ns(m, deal, (uint32_t)__builtin_ctz(deal->touched));

		deal->most_ns = ns > deal->most_ns ? ns : deal->most_ns;
	}
	return deal->most_ns;
}

/* As slots_make: for one block, in a stage, or for some. Returns how many copies bring them. */
static uint32_t deal_add(const struct make *m, struct deal *deal, uint32_t n_blocks,
			 const struct run *run, uint32_t blocks)
{
	uint32_t copies;

	if ((blocks & (blocks - 1)) == 0) {
		copies = run_copies(run, deal->narrow[__builtin_ctz(blocks)]);
		deal->narrow[__builtin_ctz(blocks)] += run->n_groups;
	} else if (is_staged(m, n_blocks, blocks)) {
		blocks = (blocks & 0x0f ? 0x0f : 0) | (blocks & 0xf0 ? 0xf0 : 0);
		deal->touched |= deal->stage.blocks;
		copies = run_copies(run, deal->stage.groups);
		fill(&deal->stage, deal->wide, STAGE_GROUPS, run->n_groups, blocks);
	} else {
		deal->touched |= deal->common.blocks;
		copies = run_copies(run, deal->common.groups);
		fill(&deal->common, deal->narrow, DEVICE_SLOT_GROUPS, run->n_groups, blocks);
	}
	deal->touched |= blocks;
	return copies;
}

/* Of rows that not all are: in row blocks of neighbours, and dealt in turn. */
static void load_add_some(const struct make *m, struct load *load, const struct seen_run *seen)
{
	const struct run *run = seen->run;
	uint32_t begin = seen->begin, end = seen->end;
	uint32_t first = begin / load->block_tokens, last = (end - 1) / load->block_tokens;
	uint32_t all = (1u << load->n_blocks) - 1, turns = all, near = (2u << last) - (1u << first);

	if (end - begin < load->n_blocks) {
		turns = ((1u << (end - begin)) - 1) << begin % load->n_blocks;
		turns = (turns | turns >> load->n_blocks) & all;
	}
	load->staged = is_staged(m, load->n_blocks, near);
	load->first = min_u32(load->first, first);
	load->last = max_u32(load->last, last);
	load->read_ns +=
		run->n_groups * m->read_ns +
		deal_add(m, &load->near, load->n_blocks, run, near) * m->want->costs->copy_ns;
	deal_add(m, &load->turns, load->n_blocks, run, turns);
}

void load_add_all(const struct make *m, struct load *load, uint32_t n_groups, double read_ns)
{
	load->staged = is_staged(m, load->n_blocks, (1u << load->n_blocks) - 1);
	load->first = 0;
	load->last = load->n_blocks - 1;
	load->all += n_groups;
	load->read_ns += read_ns;
}

void load_add(const struct make *m, struct load *load, const struct seen_run *seen)
{
	if (seen->end - seen->begin == load->n_rows)
		load_add_all(m, load, seen->run->n_groups, seen->run->read_ns);
	else
		load_add_some(m, load, seen);
}

/* Of a group that all row blocks see, for each of them. */
static double all_ns(const struct make *m, const struct load *load)
{
	return m->wide && load->n_blocks >= WARP_GROUP ? m->stage_ns : m->slot_ns;
}

uint32_t load_granule(const struct load *load, uint32_t n_groups)
{
	uint32_t turn = DEVICE_SLOT_GROUPS * (DEVICE_WARPS / load->n_blocks);

	if (load->staged)
		return STAGE_GROUPS;
	return n_groups < FEW_TURNS * turn ? turn : DEVICE_SLOT_GROUPS;
}

double load_ns(const struct make *m, struct load *load)
{
	double near = most_ns(m, &load->near), turns = most_ns(m, &load->turns), fold;
	uint32_t sharing = 1;

	if (load->first > load->last)
		return 0;
	/* warps that have no block share those of others */
	while (sharing < load->last - load->first + 1)
		sharing *= 2;
	near *= sharing;
	turns *= load->n_blocks;
	fold = (turns < near ? turns : near) + load->all * load->n_blocks * all_ns(m, load);
	return load->read_ns > fold ? load->read_ns : fold;
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
