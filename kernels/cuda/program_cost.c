/*
 * program_cost.c - modelled time: how many rows a strip takes, and how finely strips are cut, is what takes the least of it. See
 * program_impl.h, and costs.h for what it is made of.
 */
#include "program_impl.h"

#define N_ROWS_TRIED 4u
#define N_CUTS_TRIED 4u

/* Modelled time of a group that so many row blocks see. */
double strip_fold_cost(const struct make *m, uint32_t blocks)
{
	double ns = blocks * (m->want->wide && blocks >= WARP_GROUP - 1 ? m->stage_ns : m->slot_ns);

	return ns > m->read_ns ? ns : m->read_ns;
}

/* Modelled time of a piece's groups for some of its rows, without making them. */
static double piece_cost(const struct make *m, const struct strip *strip,
			 const struct work_piece *piece)
{
	uint32_t begin = max_u32(piece->row_begin, strip->row_begin);
	uint32_t end = min_u32(piece->row_end, strip->row_end), blocks;
	double groups =
		(piece->first + piece->count + DEVICE_GROUP_TOKENS - 1) / DEVICE_GROUP_TOKENS -
		piece->first / DEVICE_GROUP_TOKENS;

	if (begin >= end || m->want->list->rows[end - 1].pos < piece->pos)
		return 0;
	blocks = (end - begin + m->block_tokens - 1) / m->block_tokens;
	return groups * strip_fold_cost(m, blocks);
}

/* What each unit of the strip costs beyond its groups: its rows' Q and O among it. */
static double fixed_cost(const struct make *m, const struct strip *strip)
{
	return m->want->costs->unit_ns + (strip->row_end - strip->row_begin) * m->row_ns;
}

double strip_cost(const struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	double cost = fixed_cost(m, strip);

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		if (tile->row_begin >= strip->row_end || tile->row_end <= strip->row_begin)
			continue;
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++)
			cost += piece_cost(m, strip, &list->pieces[i]);
	}
	return cost;
}

uint32_t strip_cuts(const struct strip *strip, double limit_ns)
{
	double n = strip->cost / limit_ns;

	return n <= 1.15 ? 1 : (uint32_t)(n + 0.85);
}

/* Of a strip in n units: adds to the sums, spread over all blocks. Returns what one of the units takes. */
static double expect_strip(const struct make *m, const struct strip *strip, uint32_t n,
			   struct program_expect *e)
{
	double share = (double)m->want->shape->n_kv_heads / m->want->n_blocks;
	double fixed = fixed_cost(m, strip), groups = strip->cost - fixed;
	double parts = n > 1 ? (strip->row_end - strip->row_begin) * m->part_ns : 0;

	e->n_cut += n > 1;
	e->groups_ns += share * groups;
	e->units_ns += share * fixed * n;
	e->parts_ns += share * parts * n;
	return groups / n + fixed + parts;
}

/* Blocks that wait for the last: few units of like length come in waves, of many the last ends somewhere in a unit's time. */
static double idle_of(double time, double waves, double longest)
{
	double idle = waves > 4	  ? 0.4 * longest
		      : waves > 0 ? time * ((double)(uint64_t)(waves + 0.999) / waves - 1)
				  : 0;

	return time + idle < longest ? longest - time : idle;
}

/* What other memory that was written before has left in the cache goes back as this is read. */
static double flush_cost(const struct make *m)
{
	const struct work_shape *s = m->want->shape;
	const struct work_list *list = m->want->list;
	double values =
		(double)list->kv_tokens_read * s->n_kv_heads + (double)list->n_rows * s->n_q_heads;
	double kb = values * 4 * s->head_dim / 1024;

	kb = kb < m->want->costs->cache_kb ? kb : m->want->costs->cache_kb;
	return m->want->flushed ? kb * m->want->costs->flush_ns_per_kb : 0;
}

/* Time of all units if none is to take longer than limit_ns, cuts' partials and the merge included. */
static struct program_expect expect_of(const struct make *m, double limit_ns)
{
	const struct strip *strips = make_strips_of(m);
	double longest = 0, n_units = 0, time;
	struct program_expect e = {.launch_ns = m->want->costs->launch_ns,
				   .flush_ns = flush_cost(m)};

	for (uint32_t i = 0; i < m->n_strips; i++) {
		uint32_t n = strip_cuts(&strips[i], limit_ns);
		double unit = expect_strip(m, &strips[i], n, &e);

		n_units += n;
		longest = unit > longest ? unit : longest;
	}
	time = e.groups_ns + e.units_ns + e.parts_ns;
	e.idle_ns =
		idle_of(time, n_units * m->want->shape->n_kv_heads / m->want->n_blocks, longest);
	e.merge_ns = e.n_cut ? m->want->costs->merge_ns : 0;
	e.all_ns = e.launch_ns + e.flush_ns + time + e.idle_ns + e.merge_ns;
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

/* The best limit for strips of these rows, and what it takes. */
static struct program_expect best_limit(const struct make *m, double *ret_limit_ns)
{
	static const double shares[N_CUTS_TRIED] = {1e9, 1.05, 0.55, 0.36};
	double least = 2 * m->want->costs->unit_ns, share_ns = block_share(m);
	struct program_expect best = {0};

	for (uint32_t i = 0; i < N_CUTS_TRIED; i++) {
		double limit = share_ns * shares[i] > least ? share_ns * shares[i] : least;
		struct program_expect e = expect_of(m, limit);

		if (i == 0 || e.all_ns < best.all_ns) {
			best = e;
			*ret_limit_ns = limit;
		}
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
	*ret_limit_ns = choice->share > 0 ? choice->share * block_share(m) : 1e18;
	m->p->expect = expect_of(m, *ret_limit_ns);
	m->p->expect.unit_tokens = choice->unit_tokens;
	return 0;
}

int strips_choose(struct make *m, double *ret_limit_ns)
{
	struct program_expect best = {0};
	double limit;
	int r;

	if (m->want->choice.unit_tokens)
		return choose_as_told(m, ret_limit_ns);
	for (uint32_t i = 0; i < N_ROWS_TRIED; i++) {
		uint32_t tokens = (DEVICE_WARPS >> i) * m->block_tokens;
		struct program_expect e;

		if (tokens == 0)
			break;
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
	return strips_make(m, best.unit_tokens);
}
