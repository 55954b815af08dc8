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

double strip_cost(const struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	double cost = m->want->costs->unit_ns;

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

/* Time of all units if none is to take longer than limit_ns, cuts' partials and the merge included. */
static struct program_expect expect_of(const struct make *m, double limit_ns)
{
	const struct strip *strips = make_strips_of(m);
	double share = (double)m->want->shape->n_kv_heads / m->want->n_blocks;
	double longest = 0, n_units = 0, time, waves;
	struct program_expect e = {0};

	for (uint32_t i = 0; i < m->n_strips; i++) {
		uint32_t n = strip_cuts(&strips[i], limit_ns);
		double rows = strips[i].row_end - strips[i].row_begin;
		double part_ns = n > 1 ? rows * m->part_ns : 0;
		double unit = strips[i].cost / n + (n > 1 ? m->want->costs->unit_ns : 0) + part_ns;

		e.n_cut += n > 1;
		e.groups_ns += share * (strips[i].cost - m->want->costs->unit_ns);
		e.units_ns += share * m->want->costs->unit_ns * (n > 1 ? n + 1 : 1);
		e.parts_ns += share * part_ns * n;
		n_units += n;
		longest = unit > longest ? unit : longest;
	}
	time = e.groups_ns + e.units_ns + e.parts_ns;
	waves = n_units * share;
	e.idle_ns = waves > 4	? 0.4 * longest
		    : waves > 0 ? time * ((double)(uint64_t)(waves + 0.999) / waves - 1)
				: 0;
	if (time + e.idle_ns < longest)
		e.idle_ns = longest - time;
	e.merge_ns = e.n_cut ? m->want->costs->merge_ns : 0;
	e.all_ns = time + e.idle_ns + e.merge_ns;
	return e;
}

static double total_of(const struct make *m)
{
	double total = 0;

	for (uint32_t i = 0; i < m->n_strips; i++)
		total += make_strips_of(m)[i].cost;
	return total * m->want->shape->n_kv_heads;
}

/* The best limit for strips of these rows, and what it takes. */
static struct program_expect best_limit(const struct make *m, double *ret_limit_ns)
{
	static const double shares[N_CUTS_TRIED] = {1e9, 1.05, 0.55, 0.36};
	struct program_expect best = {0};

	for (uint32_t i = 0; i < N_CUTS_TRIED; i++) {
		double limit = total_of(m) / m->want->n_blocks * shares[i];
		struct program_expect e;

		limit = limit > 2 * m->want->costs->unit_ns ? limit : 2 * m->want->costs->unit_ns;
		e = expect_of(m, limit);
		if (i == 0 || e.all_ns < best.all_ns) {
			best = e;
			*ret_limit_ns = limit;
		}
	}
	return best;
}

int strips_choose(struct make *m, double *ret_limit_ns)
{
	struct program_expect best = {0};
	double limit;
	int r;

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
