/*
 * program_cost.c - modelled time: how many rows a strip takes, and how finely strips are cut, is
 * what takes the least of it. See program_impl.h, and costs.h for what it is made of.
 */
#include "program_impl.h"

#include <errno.h>
#include <math.h>

#define N_ROWS_TRIED 4u
#define NEVER_NS 1e18
#define IDLE_LEAST 0.03
#define LEAST_CUT 1.15 /* of the limit, that a strip takes before it is cut */
#define LEAST_UNITS 0.5 /* a unit's fixed time, that a unit takes at least if it is cut */
#define LEAST_PART 0.3 /* of the limit, that is worth a unit of its own */
#define JUMP 0.25 /* of the limit, by which no run grows a part that has rows for it already */
#define FEW_TURNS 2u /* of all warps, a slot each, up to which a part has whole ones */
#define LIMIT_STEPS 12u
#define SHARE_OF_WAVES 1.05
#define MANY_WAVES 3.5

const double program_shares[PROGRAM_N_SHARES] = {0, 1.5, SHARE_OF_WAVES, 0.55, 0.36};

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
	return m->want->wide && n_blocks >= WARP_GROUP && most_of_warps(blocks);
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
static void load_add_some(const struct make *m, struct load *load, const struct run *run,
			  uint32_t begin, uint32_t end)
{
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

/* That all see, and that take so long to read. */
static inline void load_add_all(const struct make *m, struct load *load, uint32_t n_groups,
				double read_ns)
{
	load->staged = is_staged(m, load->n_blocks, (1u << load->n_blocks) - 1);
	load->first = 0;
	load->last = load->n_blocks - 1;
	load->all += n_groups;
	load->read_ns += read_ns;
}

/* As rows [begin, end) of the strip see the run. */
static void load_add(const struct make *m, struct load *load, const struct run *run, uint32_t begin,
		     uint32_t end)
{
	if (end - begin == load->n_rows)
		load_add_all(m, load, run->n_groups, run->read_ns);
	else
		load_add_some(m, load, run, begin, end);
}

/* Of a group that all row blocks see, for each of them. */
static double all_ns(const struct make *m, const struct load *load)
{
	return m->want->wide && load->n_blocks >= WARP_GROUP ? m->stage_ns : m->slot_ns;
}

uint32_t load_granule(const struct load *load, uint32_t n_groups)
{
	uint32_t turn = DEVICE_SLOT_GROUPS * (DEVICE_WARPS / load->n_blocks);

	if (load->staged)
		return STAGE_GROUPS;
	return n_groups < FEW_TURNS * turn ? turn : DEVICE_SLOT_GROUPS;
}

/* What all of it takes together. */
static double load_ns(const struct make *m, struct load *load)
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

bool load_takes(const struct make *m, struct load *load, const struct run *run, uint32_t begin,
		uint32_t end, double limit_ns, double *ns)
{
	double before = *ns, now;

	load_add(m, load, run, begin, end);
	now = load_ns(m, load);
	if (before > LEAST_PART * limit_ns && now - before > JUMP * limit_ns)
		return false;
	*ns = now;
	return true;
}

/* ---- strips --------------------------------------------------------------------------------- */

/* What each unit of the strip costs beyond its groups: its rows' Q and O among it. */
static double fixed_cost(const struct make *m, const struct strip *strip)
{
	return m->want->costs->unit_ns + (strip->row_end - strip->row_begin) * m->row_ns;
}

/* Do groups that come to n complete a granule that before of them did not? */
static bool completes(const struct load *load, uint32_t before, uint32_t n)
{
	uint32_t granule = load_granule(load, n);

	return before / granule != n / granule;
}

/* Which of the run's rows are the strip's, from its first. False: none that sees something of
 * it. */
static inline bool sees_run(const struct make *m, const struct strip *strip, const struct run *run,
			    uint32_t *ret_begin, uint32_t *ret_end)
{
	uint32_t begin = max_u32(run->row_begin, strip->row_begin);
	uint32_t end = min_u32(run->row_end, strip->row_end);

	*ret_begin = begin - strip->row_begin;
	*ret_end = end - strip->row_begin;
	return begin < end && m->want->list->rows[end - 1].pos >= run->pos;
}

/* Of parts of the strip, each as long as goes with limit_ns (of groups alone): how many, and the
 * sum of what they take. */
static uint32_t cut_runs(const struct make *m, const struct strip *strip, double limit_ns,
			 double *ret_sum_ns)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t n = 1, n_groups = 0, before = 0, begin, end, last = runs_end(m, strip);
	double sum = 0, now;
	struct load load;

	load_init(m, strip, &load);
	for (uint32_t i = runs_begin(m, strip); (i = runs_next(m, strip, i, last)) < last; i++) {
		if (!sees_run(m, strip, &runs[i], &begin, &end))
			continue;
		if (completes(&load, before, n_groups) && (now = load_ns(m, &load)) >= limit_ns) {
			sum += now;
			n++;
			before = n_groups = 0;
			load_init(m, strip, &load);
		}
		load_add(m, &load, &runs[i], begin, end);
		before = n_groups;
		n_groups += runs[i].n_groups;
	}
	*ret_sum_ns = sum + load_ns(m, &load);
	return n;
}

/* What all rows of the strip see from the item's first run on is summed up before. */
double strip_cost(const struct make *m, const struct strip *strip)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	uint32_t last = runs_end(m, strip), begin, end, n_groups;
	struct load load;
	double read_ns;
	uint32_t i = runs_seen_by_all(m, strip, &n_groups, &read_ns);

	load_init(m, strip, &load);
	if (n_groups)
		load_add_all(m, &load, n_groups, read_ns);
	for (; (i = runs_next(m, strip, i, last)) < last; i++) {
		if (sees_run(m, strip, &runs[i], &begin, &end))
			load_add(m, &load, &runs[i], begin, end);
	}
	return fixed_cost(m, strip) + load_ns(m, &load);
}

struct parts strip_parts(const struct make *m, struct strip *strip, double limit_ns)
{
	double fixed = fixed_cost(m, strip), n = strip->cost / limit_ns;
	uint32_t asked = n > LEAST_CUT ? (uint32_t)(n + 2 - LEAST_CUT) : 1;
	struct parts parts = {1, strip->cost - fixed, strip->cost - fixed};

	if (asked == 1)
		return parts;
	if (asked != strip->asked) {
		parts.each_ns /= asked;
		parts.n = cut_runs(m, strip, parts.each_ns, &parts.all_ns);
		strip->parts = parts;
		strip->asked = asked;
	}
	return strip->parts;
}

/* Of a strip cut at the limit: adds to the sums, spread over all blocks. Returns how many units,
 * and what one takes. */
static uint32_t expect_strip(const struct make *m, struct strip *strip, double limit_ns,
			     struct program_expect *e, double *ret_unit_ns)
{
	double share = (double)m->want->shape->n_kv_heads / m->want->n_blocks;
	double fixed = fixed_cost(m, strip), rows_ns = 0;
	struct parts parts = strip_parts(m, strip, limit_ns);

	if (parts.n > 1)
		rows_ns = (strip->row_end - strip->row_begin) * m->part_ns;
	e->n_cut += parts.n > 1;
	e->groups_ns += share * parts.all_ns;
	e->units_ns += share * fixed * parts.n;
	e->parts_ns += share * rows_ns * parts.n;
	*ret_unit_ns = parts.each_ns + fixed + rows_ns;
	return parts.n;
}

/* Blocks that wait for the last: few units of like length come in waves, of many the last ends
 * somewhere in a unit's time. */
static double idle_of(double time, double waves, double longest)
{
	double idle = waves > MANY_WAVES ? 0.4 * longest
		      : waves > 0	 ? time * ((double)(uint64_t)(waves + 0.999) / waves - 1)
					 : 0;

	return time + idle < longest ? longest - time : idle;
}

/* All that is read and written, once: KV, Q and O; where a bench wrote other memory before, that
 * goes back as this comes. */
static double memory_cost(const struct make *m)
{
	const struct costs *costs = m->want->costs;
	const struct work_shape *s = m->want->shape;
	const struct work_list *list = m->want->list;
	double values =
		(double)list->kv_tokens_read * s->n_kv_heads + (double)list->n_rows * s->n_q_heads;
	double kb = values * 4 * s->head_dim / 1024;
	double cache = kb < costs->cache_kb ? kb : costs->cache_kb;

	return kb * costs->memory_ns_per_kb +
	       (m->want->flushed ? cache * costs->flush_ns_per_kb : 0);
}

/* Of two things that go on side by side and are in each other's way where they take about the
 * same. */
static double side_by_side(double a, double b)
{
	return sqrt(sqrt(a * a * a * a + b * b * b * b));
}

/* Time of all units if none is to take longer than limit_ns, cuts' partials and the merge
 * included. */
static struct program_expect expect_of(const struct make *m, double limit_ns)
{
	struct strip *strips = make_strips_of(m);
	double longest = 0, time;
	struct program_expect e = {.launch_ns = m->want->costs->launch_ns};

	for (uint32_t i = 0; i < m->n_strips; i++) {
		double unit;

		e.n_units += expect_strip(m, &strips[i], limit_ns, &e, &unit);
		longest = unit > longest ? unit : longest;
	}
	time = e.groups_ns + e.units_ns + e.parts_ns;
	e.idle_ns =
		idle_of(time, (double)e.n_units * m->want->shape->n_kv_heads / m->want->n_blocks,
			longest);
	time += e.idle_ns;
	e.memory_ns = side_by_side(time, memory_cost(m)) - time;
	e.merge_ns = e.n_cut ? m->want->costs->merge_ns : 0;
	e.all_ns = e.launch_ns + time + e.memory_ns + e.merge_ns;
	return e;
}

/* What one block has to do if all have the same. */
static double block_share(const struct make *m)
{
	double total = 0;

	for (uint32_t i = 0; i < m->n_strips; i++)
		total += make_strips_of(m)[i].cost;
	return total * m->want->shape->n_kv_heads / m->want->n_blocks;
}

/* Units of all heads if strips are cut at the limit. */
static double count_entries(const struct make *m, double limit_ns)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < m->n_strips; i++)
		n += strip_parts(m, &make_strips_of(m)[i], limit_ns).n;
	return (double)n * m->want->shape->n_kv_heads;
}

/* How long a unit is to take at most, if that is to be about this share of what a block has to do;
 * 0: no cuts. Where a little more leaves every block a single unit, it is that: all would wait for
 * the few that have two. */
static double limit_of(const struct make *m, double share)
{
	double limit = fmax(share * block_share(m), LEAST_UNITS * m->want->costs->unit_ns);
	bool one_each = share >= 1 && m->n_strips * m->want->shape->n_kv_heads <= m->want->n_blocks;
	double more = limit;

	if (share == 0)
		return NEVER_NS;
	for (uint32_t i = 0; one_each && i < LIMIT_STEPS; i++) {
		if (count_entries(m, more) <= m->want->n_blocks)
			return more;
		more *= 1.03;
	}
	return share > SHARE_OF_WAVES ? limit_of(m, SHARE_OF_WAVES) : limit;
}

/* The best limit for strips of these rows, and what it takes. */
static struct program_expect best_limit(const struct make *m, double *ret_limit_ns)
{
	struct program_expect best = {0};
	double before = 0;

	for (uint32_t i = 0; i < PROGRAM_N_SHARES; i++) {
		double limit = limit_of(m, program_shares[i]);
		struct program_expect e = limit == before ? best : expect_of(m, limit);

		before = limit;
		if (i == 0 || e.all_ns < best.all_ns) {
			best = e;
			*ret_limit_ns = limit;
		}
		/* which is what cuts are for */
		if (best.idle_ns < IDLE_LEAST * best.all_ns)
			break;
	}
	return best;
}

/* As the planner was told to. */
static int choose_as_told(struct make *m, double *ret_limit_ns)
{
	const struct program_choice *choice = &m->want->choice;
	int r = strips_make(m, choice->unit_tokens);

	if (r)
		return r;
	*ret_limit_ns = limit_of(m, choice->share);
	m->p->expect = expect_of(m, *ret_limit_ns);
	m->p->expect.unit_tokens = choice->unit_tokens;
	return 0;
}

/* Of an item. */
static uint32_t most_rows_of(const struct work_list *list)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < list->n_items; i++)
		most = max_u32(most, list->items[i].row_end - list->items[i].row_begin);
	return most;
}

int strips_choose(struct make *m, double *ret_limit_ns)
{
	struct program_expect best = {0};
	uint32_t most_rows, made = 0;
	double limit;
	int r = runs_make(m);

	if (r)
		return r;
	most_rows = most_rows_of(m->want->list);
	if (m->want->choice.unit_tokens)
		return choose_as_told(m, ret_limit_ns);
	for (uint32_t i = 0; i < N_ROWS_TRIED; i++) {
		uint32_t tokens = (DEVICE_WARPS >> i) * m->block_tokens;
		struct program_expect e;

		if (tokens == 0)
			break;
		/* the strips are those at hand */
		if (i > 0 && tokens >= most_rows)
			continue;
		made = tokens;
		r = strips_make(m, tokens);
		if (r)
			return r;
		e = best_limit(m, &limit);
		if (i == 0 || e.all_ns < best.all_ns) {
			best = e;
			best.unit_tokens = tokens;
			*ret_limit_ns = limit;
		}
	}
	m->p->expect = best;
	return made == best.unit_tokens ? 0 : strips_make(m, best.unit_tokens);
}
