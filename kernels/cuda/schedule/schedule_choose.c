/*
 * schedule_choose.c - how many rows a strip takes, and how finely strips are cut: what takes the
 * least modelled time of a few of each that are tried, or what the planner was told. See
 * schedule_impl.h.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <math.h>

#define N_ROWS_TRIED 4u
#define NEVER_NS 1e18
#define IDLE_LEAST 0.03
/* a work tile's fixed time, that a work tile takes at least if it is cut */
#define LEAST_WORK_TILES 0.5
/* a limit by so much more, and so often at most, for one work tile a block and for whole waves */
#define LIMIT_STEP 1.03
#define ONE_EACH_STEPS 12u
#define WHOLE_WAVES_STEPS 4u
#define SHARE_OF_WAVES 1.05
#define MANY_WAVES 3.5
#define ALIKE 0.997 /* what takes so much of another's modelled time is no better */
#define WAVES_AGAIN 3.0 /* times as much as KV that is read again: work tiles in several waves */
#define IN_STEP 1.2 /* times as long, at most: strips that go over KV together */
#define KEPT_PART 0.25 /* of the cache, that an item has whatever else is read */

const double schedule_shares[SCHEDULE_N_SHARES] = {0, 1.5, SHARE_OF_WAVES, 0.55, 0.36};

/* Of a strip cut at the limit: adds to the sums, spread over all blocks. Returns how many work
 * tiles, and what one takes. */
static uint32_t expect_strip(const struct make *m, struct strip *strip, double limit_ns,
			     struct schedule_expect *e, double *ret_work_tile_ns)
{
	double share = (double)m->want->shape->n_kv_heads / m->want->n_blocks;
	double fixed = strip_fixed_cost(m, strip), rows_ns = 0;
	struct parts parts = strip_parts(m, strip, limit_ns);

	if (parts.n > 1)
		rows_ns = (strip->row_end - strip->row_begin) * m->part_ns;
	e->n_cut += parts.n > 1;
	e->kv_blocks_ns += share * parts.all_ns;
	e->work_tiles_ns += share * fixed * parts.n;
	e->parts_ns += share * rows_ns * parts.n;
	*ret_work_tile_ns = parts.each_ns + fixed + rows_ns;
	return parts.n;
}

/* Blocks that wait for the last: few work tiles of like length come in waves, of many the last ends
 * somewhere in a work tile's time. */
static double idle_of(double time, double waves, double longest)
{
	double idle = waves > MANY_WAVES ? 0.4 * longest
		      : waves > 0	 ? time * ((double)(uint64_t)(waves + 0.999) / waves - 1)
					 : 0;

	return time + idle < longest ? longest - time : idle;
}

/* All that is read and written, once: KV, Q and O; and tokens that are read again. Where a bench
 * wrote other memory before, that goes back as this comes. */
static double memory_cost(const struct make *m, double again_tokens)
{
	const struct costs *costs = m->want->costs;
	const struct work_shape *s = m->want->shape;
	const struct work_list *list = m->list;
	double values = ((double)list->kv_tokens_read + again_tokens) * s->n_kv_heads +
			(double)list->n_rows * (s->n_kv_heads * m->map.heads);
	double kb = values * 4 * s->head_dim / 1024;
	double cache = kb < costs->cache_kb ? kb : costs->cache_kb;

	return kb * costs->memory_ns_per_kb +
	       (m->want->flushed ? cache * costs->flush_ns_per_kb : 0);
}

/* ---- KV that is read again ------------------------------------------------------------------- */

/* Rows of a prompt beside others' items: KV is read again by strips that are not in step. */
static bool find_again(const struct make *m)
{
	if (m->want->tails || m->list->n_items < 2)
		return false;
	for (uint32_t row = 0; row < m->list->n_rows; row++)
		if (m->list->rows[row].token > 0)
			return true;
	return false;
}

/* Do work tiles of two strips of an item go over the same KV at the same time? */
static bool in_step(const struct make *m, struct strip *a, struct strip *b, double limit_ns)
{
	double more = fmax(a->cost, b->cost), less = fmin(a->cost, b->cost);

	return strip_parts(m, a, limit_ns).n == strip_parts(m, b, limit_ns).n &&
	       more < IN_STEP * less;
}

/* How often the strip's KV comes from memory although the item's strip before reads it, too, beside
 * other items that take the cache. In several waves it takes as much longer as was measured
 * (NOTES.md). */
static double times_again(const struct make *m, struct strip *strip, double limit_ns, double waves)
{
	if (waves > 1)
		return WAVES_AGAIN;
	return in_step(m, strip - 1, strip, limit_ns) ? 0 : 1;
}

/* Tokens of KV that the cache does not keep, of what all of the strip's rows see. */
static double tokens_of(const struct make *m, const struct strip *strip)
{
	const struct work_shape *s = m->want->shape;
	double kb = m->want->costs->cache_kb * KEPT_PART, n_tokens;
	uint32_t n_kv_blocks;

	(void)runs_sum(m, strip, runs_begin(m, strip), runs_seen_by_all(m, strip), &n_kv_blocks);
	n_tokens = (double)n_kv_blocks * KV_BLOCK_TOKENS;
	return n_tokens * s->n_kv_heads * s->head_dim * 4 / 1024 > kb ? n_tokens : 0;
}

static double tokens_read_again(const struct make *m, double limit_ns, double waves)
{
	struct strip *strips = make_strips_of(m);
	double sum = 0;

	for (uint32_t i = 1; m->again && i < m->n_strips; i++)
		if (strips[i].item == strips[i - 1].item)
			sum += tokens_of(m, &strips[i]) *
			       times_again(m, &strips[i], limit_ns, waves);
	return sum;
}

/* Of two things that go on side by side and are in each other's way where they take about the
 * same. */
static double side_by_side(double a, double b)
{
	return sqrt(sqrt(a * a * a * a + b * b * b * b));
}

/* Time of all work tiles if none is to take longer than limit_ns, cuts' partials and the merge
 * included. */
static struct schedule_expect expect_of(const struct make *m, double limit_ns)
{
	struct strip *strips = make_strips_of(m);
	double longest = 0, time, waves;
	struct schedule_expect e = {.launch_ns = m->want->costs->launch_ns};

	for (uint32_t i = 0; i < m->n_strips; i++) {
		double work_tile;

		e.n_work_tiles += expect_strip(m, &strips[i], limit_ns, &e, &work_tile);
		longest = work_tile > longest ? work_tile : longest;
	}
	time = e.kv_blocks_ns + e.work_tiles_ns + e.parts_ns;
	waves = (double)e.n_work_tiles * m->want->shape->n_kv_heads / m->want->n_blocks;
	e.idle_ns = idle_of(time, waves, longest);
	time += e.idle_ns;
	e.memory_ns =
		side_by_side(time, memory_cost(m, tokens_read_again(m, limit_ns, waves))) - time;
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

/* Work tiles of all heads if strips are cut at the limit. */
static double count_entries(const struct make *m, double limit_ns)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < m->n_strips; i++)
		n += strip_parts(m, &make_strips_of(m)[i], limit_ns).n;
	return (double)n * m->want->shape->n_kv_heads;
}

/* The least of a few limits, each a little more, by which there are as many work tiles for every
 * block at most; 0: of none. */
static double limit_for(const struct make *m, double limit_ns, double waves, uint32_t n_steps)
{
	for (uint32_t i = 0; i < n_steps; i++) {
		if (count_entries(m, limit_ns) <= waves * m->want->n_blocks)
			return limit_ns;
		limit_ns *= LIMIT_STEP;
	}
	return 0;
}

/* How long a work tile is to take at most, if that is to be about this share of what a block has to
 * do; 0: no cuts. Where a little more leaves every block as many work tiles, it is that: all would
 * wait for the few that have one more. */
static double limit_of(const struct make *m, double share)
{
	double limit =
		fmax(share * block_share(m), LEAST_WORK_TILES * m->want->costs->work_tile_ns);
	double waves, more = 0;

	if (share == 0)
		return NEVER_NS;
	waves = floor(count_entries(m, limit) / m->want->n_blocks);
	if (share < 1 && waves <= FEW_WAVES)
		more = limit_for(m, limit, waves, WHOLE_WAVES_STEPS);
	else if (share >= 1 && m->n_strips * m->want->shape->n_kv_heads <= m->want->n_blocks)
		more = limit_for(m, limit, 1, ONE_EACH_STEPS);
	if (more > 0)
		return more;
	return share > SHARE_OF_WAVES ? limit_of(m, SHARE_OF_WAVES) : limit;
}

/* The best limit for strips of these rows, and what it takes. */
static struct schedule_expect best_limit(const struct make *m, double *ret_limit_ns)
{
	struct schedule_expect best = {0};
	double before = 0;

	for (uint32_t i = 0; i < SCHEDULE_N_SHARES; i++) {
		double limit = limit_of(m, schedule_shares[i]);
		struct schedule_expect e = limit == before ? best : expect_of(m, limit);

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
	const struct schedule_choice *choice = &m->want->choice;
	int r = strips_make(m, choice->work_tile_tokens);

	if (r)
		return r;
	*ret_limit_ns = limit_of(m, choice->share);
	m->p->expect = expect_of(m, *ret_limit_ns);
	m->p->expect.work_tile_tokens = choice->work_tile_tokens;
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

/* Strips of so many tokens, if that is better than the best so far. Of such as take the same, wider
 * ones read KV again less often, which the model takes to be for nothing. 0 or -ENOMEM. */
static int try_strips(struct make *m, uint32_t tokens, struct schedule_expect *inout,
		      double *inout_limit_ns)
{
	struct schedule_expect e;
	double limit_ns;
	int r = strips_make(m, tokens);

	if (r)
		return r;
	e = best_limit(m, &limit_ns);
	if (inout->all_ns > 0 && e.all_ns >= ALIKE * inout->all_ns)
		return 0;
	*inout = e;
	inout->work_tile_tokens = tokens;
	inout->even = m->even;
	*inout_limit_ns = limit_ns;
	return 0;
}

/* Has an item several strips of so many tokens, and less for the last? */
static bool has_a_rest(const struct make *m, uint32_t tokens)
{
	for (uint32_t i = 0; i < m->list->n_items; i++) {
		uint32_t n = m->list->items[i].row_end - m->list->items[i].row_begin;

		if (n > tokens && n % tokens)
			return true;
	}
	return false;
}

/* The same, and with as many rows in each strip of an item, which are in step then. */
static int try_both(struct make *m, uint32_t tokens, struct schedule_expect *inout,
		    double *inout_limit_ns)
{
	int r = try_strips(m, tokens, inout, inout_limit_ns);

	if (r || !m->again || !has_a_rest(m, tokens))
		return r;
	m->even = true;
	r = try_strips(m, tokens, inout, inout_limit_ns);
	m->even = false;
	return r;
}

/* Beside a prompt a rest is a multiprocessor's only work, and all wait for the parts before it.
 * Nothing is chosen by this: strips of fewer rows would seem better, and are slower (NOTES.md). */
static void spread_rests(struct make *m, double limit_ns)
{
	struct schedule_expect *e = &m->p->expect;
	uint32_t tokens = e->work_tile_tokens;

	m->no_rests = true;
	*e = expect_of(m, limit_ns);
	e->work_tile_tokens = tokens;
	e->even = m->even;
}

int strips_choose(struct make *m, double *ret_limit_ns)
{
	struct schedule_expect best = {0};
	uint32_t most_rows;
	int r = runs_make(m);

	if (r)
		return r;
	most_rows = most_rows_of(m->list);
	m->again = find_again(m);
	if (m->want->choice.work_tile_tokens)
		return choose_as_told(m, ret_limit_ns);
	for (uint32_t i = 0; i < N_ROWS_TRIED && !r; i++) {
		uint32_t tokens = (DEVICE_WARPS >> i) * m->block_tokens;

		if (tokens == 0)
			break;
		/* the strips are those at hand */
		if (i == 0 || tokens < most_rows)
			r = try_both(m, tokens, &best, ret_limit_ns);
	}
	m->even = best.even;
	m->p->expect = best;
	r = r ? r : strips_make(m, best.work_tile_tokens);
	if (!r && m->again)
		spread_rests(m, *ret_limit_ns);
	return r;
}
