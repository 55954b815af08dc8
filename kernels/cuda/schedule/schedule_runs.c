/*
 * schedule_runs.c - pieces one after the other that the same rows see, so that costs are modelled
 * run by run; and what lets a strip pass those that it has nothing of, and take together those that
 * all of its rows see. See schedule_impl.h.
 */
#include "schedule_impl.h"
#include "proto/arith.h"

#include <errno.h>

#define RUN_KV_BLOCKS 8u /* and a page's more: a run is not cut */

/* An item's runs up to one, that among them: rows that see all of them, if they are at pos or
 * behind, and what they come to. */
struct reach {
	uint32_t row_begin, row_end; /* of the list */
	uint32_t pos;
	uint32_t n_kv_blocks, n_copies;
};

/* ---- making --------------------------------------------------------------------------------- */

static double read_ns(const struct make *m, uint32_t n_kv_blocks, uint32_t n_copies)
{
	return n_kv_blocks * m->read_ns + n_copies * m->want->costs->copy_ns;
}

void run_weigh(const struct make *m, struct run *run)
{
	run->piece_kv_blocks = ceil_div(run->n_kv_blocks, run->n_pieces);
	run->read_ns = read_ns(m, run->n_kv_blocks, run_copies(run, 0));
}

static uint32_t kv_blocks_of(const struct work_piece *piece)
{
	return ceil_div(piece->first + piece->count, KV_BLOCK_TOKENS) -
	       piece->first / KV_BLOCK_TOKENS;
}

/* The piece goes on where the last of the item's runs ends, or begins another. */
static int add_piece(struct make *m, uint32_t first, uint32_t index)
{
	const struct work_piece *piece = &m->list->pieces[index];
	struct run *runs = make_scratch(m, RUNS, (size_t)m->n_runs + 1, sizeof(*runs));
	struct run *last = m->n_runs > first ? &runs[m->n_runs - 1] : NULL;

	if (!runs)
		return -ENOMEM;
	if (!last || last->n_kv_blocks >= RUN_KV_BLOCKS || last->piece + last->n_pieces != index ||
	    last->row_begin != piece->row_begin || last->row_end != piece->row_end) {
		last = &runs[m->n_runs++];
		*last = (struct run){.row_begin = piece->row_begin,
				     .row_end = piece->row_end,
				     .pos = piece->pos,
				     .piece = index};
	}
	last->n_pieces++;
	last->n_kv_blocks += kv_blocks_of(piece);
	run_weigh(m, last);
	return 0;
}

static int make_hulls(struct make *m)
{
	const struct run *runs = m->p->scratch[RUNS].at;
	struct hull *hulls =
		make_scratch(m, RUN_HULLS, (size_t)m->n_runs / HULL_RUNS + 1, sizeof(*hulls));

	if (!hulls)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->n_runs; i++) {
		struct hull *hull = &hulls[i / HULL_RUNS];

		if (i % HULL_RUNS == 0)
			*hull = (struct hull){.row_begin = UINT32_MAX};
		hull->row_begin = min_u32(hull->row_begin, runs[i].row_begin);
		hull->row_end = max_u32(hull->row_end, runs[i].row_end);
	}
	return 0;
}

static int make_reaches(struct make *m)
{
	const uint32_t *firsts = m->p->scratch[RUN_FIRSTS].at;
	const struct run *runs = m->p->scratch[RUNS].at;
	struct reach *reaches =
		make_scratch(m, RUN_REACHES, (size_t)m->n_runs + 1, sizeof(*reaches));

	if (!reaches)
		return -ENOMEM;
	for (uint32_t item = 0; item < m->list->n_items; item++) {
		struct reach reach = {.row_end = UINT32_MAX};

		for (uint32_t i = firsts[item]; i < firsts[item + 1]; i++) {
			reach.row_begin = max_u32(reach.row_begin, runs[i].row_begin);
			reach.row_end = min_u32(reach.row_end, runs[i].row_end);
			reach.pos = max_u32(reach.pos, runs[i].pos);
			reach.n_kv_blocks += runs[i].n_kv_blocks;
			reach.n_copies += run_copies(&runs[i], 0);
			reaches[i] = reach;
		}
	}
	return 0;
}

int runs_make(struct make *m)
{
	const struct work_list *list = m->list;
	uint32_t *firsts = make_scratch(m, RUN_FIRSTS, (size_t)list->n_items + 1, sizeof(*firsts));
	int r = firsts ? 0 : -ENOMEM;

	m->n_runs = 0;
	for (uint32_t i = 0; i < list->n_items && !r; i++) {
		const struct work_item *item = &list->items[i];

		firsts[i] = m->n_runs;
		for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
			const struct work_tile *tile = &list->tiles[t];

			for (uint32_t p = tile->piece; p < tile->piece + tile->n_pieces && !r; p++)
				r = add_piece(m, firsts[i], p);
		}
	}
	if (r)
		return r;
	firsts[list->n_items] = m->n_runs;
	r = make_hulls(m);
	return r ? r : make_reaches(m);
}

/* ---- those of a strip ----------------------------------------------------------------------- */

uint32_t runs_begin(const struct make *m, const struct strip *strip)
{
	return ((const uint32_t *)m->p->scratch[RUN_FIRSTS].at)[strip->item];
}

uint32_t runs_end(const struct make *m, const struct strip *strip)
{
	return ((const uint32_t *)m->p->scratch[RUN_FIRSTS].at)[strip->item + 1];
}

static bool reaches_all(const struct make *m, const struct strip *strip, const struct reach *reach)
{
	return reach->row_begin <= strip->row_begin && reach->row_end >= strip->row_end &&
	       reach->pos <= m->list->rows[strip->row_end - 1].pos;
}

uint32_t runs_seen_by_all(const struct make *m, const struct strip *strip)
{
	const struct reach *reaches = m->p->scratch[RUN_REACHES].at;
	uint32_t low = runs_begin(m, strip), high = runs_end(m, strip);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (reaches_all(m, strip, &reaches[middle]))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

double runs_sum(const struct make *m, const struct strip *strip, uint32_t begin, uint32_t end,
		uint32_t *ret_n_kv_blocks)
{
	const struct reach *reaches = m->p->scratch[RUN_REACHES].at, nothing = {0};
	const struct reach *from = begin > runs_begin(m, strip) ? &reaches[begin - 1] : &nothing;
	const struct reach *to = end > begin ? &reaches[end - 1] : from;

	*ret_n_kv_blocks = to->n_kv_blocks - from->n_kv_blocks;
	return read_ns(m, *ret_n_kv_blocks, to->n_copies - from->n_copies);
}
