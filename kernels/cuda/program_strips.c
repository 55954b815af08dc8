/*
 * program_strips.c - which groups the rows of a strip see, how many rows a strip takes, and how finely strips are cut: what
 * takes the least modelled time. See program_impl.h.
 */
#include "program_impl.h"

#include <errno.h>

/* As those of program.c: what a unit costs beyond its groups, and a launch that merges partials. */
#define UNIT_NS 700.0
#define MERGE_NS 4000.0
#define N_ROWS_TRIED 4u
#define N_CUTS_TRIED 4u

static uint32_t page_source(const struct program_want *want, uint32_t page)
{
	const struct program_pages *pages = &want->pages;

	return (uint32_t)(page / pages->per_extent * pages->extent_sources +
			  page % pages->per_extent * pages->page_sources);
}

/* ---- groups of a strip ------------------------------------------------------------------------------------------- */

/* Does some row of [begin, end) see only some of the tokens up to last? */
static bool is_causal(const struct make *m, uint32_t begin, uint32_t end, uint32_t last)
{
	for (uint32_t row = begin; row < end; row++) {
		if (m->want->list->rows[row].pos < last)
			return true;
	}
	return false;
}

static bool some_row_sees(const struct make *m, const struct strip *strip,
			  const struct device_group *g)
{
	for (uint32_t t = g->row_begin; t < g->row_end; t++) {
		if ((int64_t)m->want->list->rows[strip->row_begin + t].pos >=
		    (int64_t)g->pos + g->first)
			return true;
	}
	return false;
}

/* The group's last token is that of its only row: what follows in the group will be its next ones. */
static bool is_tail(const struct make *m, const struct strip *strip, const struct device_group *g)
{
	return m->want->tails && g->row_end - g->row_begin == 1 &&
	       m->want->list->rows[strip->row_begin + g->row_begin].pos ==
		       (uint32_t)(g->pos + g->end - 1);
}

/* Those tokens of a piece that lie in one group. */
static int add_group(struct make *m, const struct strip *strip, const struct device_group *group,
		     uint32_t source, bool causal)
{
	struct piece_group *at;

	if (causal && !some_row_sees(m, strip, group))
		return 0;
	at = make_scratch(m, GROUPS, (size_t)m->n_groups + 1, sizeof(*at));
	if (!at)
		return -ENOMEM;
	if (causal)
		causal = is_causal(m, strip->row_begin + group->row_begin,
				   strip->row_begin + group->row_end,
				   (uint32_t)(group->pos + group->end - 1));
	at += m->n_groups++;
	*at = (struct piece_group){*group, source, causal, is_tail(m, strip, group)};
	if (at->tail) {
		at->group.end = DEVICE_GROUP_TOKENS;
		at->causal = true;
	}
	return 0;
}

static int add_piece(struct make *m, const struct strip *strip, const struct work_piece *piece)
{
	uint32_t begin = max_u32(piece->row_begin, strip->row_begin);
	uint32_t end = min_u32(piece->row_end, strip->row_end);
	uint32_t step = DEVICE_GROUP_TOKENS * 4 * m->want->shape->head_dim / DEVICE_SOURCE_BYTES;
	uint32_t row = piece->first, last = (uint32_t)piece->first + piece->count, page;
	bool causal;
	int r = 0;

	if (begin >= end)
		return 0;
	causal = is_causal(m, begin, end, piece->pos + piece->count - 1);
	page = page_source(m->want, piece->page);
	while (row < last && !r) {
		uint32_t index = row / DEVICE_GROUP_TOKENS, base = index * DEVICE_GROUP_TOKENS;
		uint32_t stop = min_u32(last, base + DEVICE_GROUP_TOKENS);
		struct device_group group = {
			.pos = (int32_t)((int64_t)piece->pos + base - piece->first),
			.row_begin = (uint16_t)(begin - strip->row_begin),
			.row_end = (uint16_t)(end - strip->row_begin),
			.first = (uint16_t)(row - base),
			.end = (uint16_t)(stop - base),
		};

		r = add_group(m, strip, &group, page + index * step, causal);
		row = stop;
	}
	return r;
}

int strip_read(struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	int r = 0;

	m->n_groups = 0;
	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		if (tile->row_begin >= strip->row_end || tile->row_end <= strip->row_begin)
			continue;
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces && !r; i++)
			r = add_piece(m, strip, &list->pieces[i]);
	}
	return r;
}

/* ---- rows of a strip, and cuts ----------------------------------------------------------------------------------- */

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

static double strip_cost(const struct make *m, const struct strip *strip)
{
	const struct work_list *list = m->want->list;
	const struct work_item *item = &list->items[strip->item];
	double cost = UNIT_NS;

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		if (tile->row_begin >= strip->row_end || tile->row_end <= strip->row_begin)
			continue;
		for (uint32_t i = tile->piece; i < tile->piece + tile->n_pieces; i++)
			cost += piece_cost(m, strip, &list->pieces[i]);
	}
	return cost;
}

/* All items' rows in strips of so many tokens. */
static int make_strips(struct make *m, uint32_t tokens)
{
	const struct work_list *list = m->want->list;

	m->n_strips = 0;
	for (uint32_t i = 0; i < list->n_items; i++) {
		const struct work_item *item = &list->items[i];

		for (uint32_t row = item->row_begin; row < item->row_end; row += tokens) {
			struct strip *strips =
				make_scratch(m, STRIPS, (size_t)m->n_strips + 1, sizeof(*strips));
			struct strip *strip;

			if (!strips)
				return -ENOMEM;
			strip = &strips[m->n_strips];
			*strip = (struct strip){i, row, min_u32(item->row_end, row + tokens), 0};
			if (!make_wants(m, strip->row_begin, strip->row_end))
				continue;
			strip->cost = strip_cost(m, strip);
			m->n_strips++;
		}
	}
	return 0;
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
		double unit = strips[i].cost / n + (n > 1 ? UNIT_NS : 0) + part_ns;

		e.n_cut += n > 1;
		e.groups_ns += share * (strips[i].cost - UNIT_NS);
		e.units_ns += share * UNIT_NS * (n > 1 ? n + 1 : 1);
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
	e.merge_ns = e.n_cut ? MERGE_NS : 0;
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

		limit = limit > 2 * UNIT_NS ? limit : 2 * UNIT_NS;
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
		r = make_strips(m, tokens);
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
	return make_strips(m, best.unit_tokens);
}
