/*
 * schedule.c - see schedule.h: a schedule from begin to end. Strips are chosen, each becomes work
 * tiles, work tiles are put in order, and rows that several work tiles have something for get
 * partials and a merge.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one work tile alone go to the output; the others get partials side by side, in the order
 * of work tiles. */
static int place_rows(struct make *m)
{
	const struct work_list *list = m->list;
	uint32_t *counts = m->p->scratch[COUNTS].at, *dests = m->p->arrays[SCHEDULE_DESTS].at;
	uint32_t *bases = make_scratch(m, BASES, list->n_rows + 1, sizeof(*bases));
	const struct seen *seen = m->p->scratch[SEEN].at;

	if (!bases)
		return -ENOMEM;
	for (uint32_t row = 0; row < list->n_rows; row++) {
		struct device_merge *merge;

		bases[row] = m->p->n_parts;
		if (counts[row] == 1 || !make_wants(m, row, row + 1))
			continue;
		merge = make_append(m, SCHEDULE_MERGES, 1);
		if (!merge)
			return -ENOMEM;
		*merge = (struct device_merge){row, m->p->n_parts, counts[row], 0};
		m->p->n_parts += counts[row];
		m->p->most_parts = max_u32(m->p->most_parts, counts[row]);
	}
	for (uint32_t i = 0; i < m->n_seen; i++) {
		uint32_t row = seen[i].row;

		if (counts[row] == 1)
			dests[seen[i].dest] = DEVICE_NONE;
		else if (make_wants(m, row, row + 1))
			dests[seen[i].dest] = bases[row]++;
	}
	return 0;
}

/* Longest first; of equals those with the same KV tiles side by side. */
static int compare_work_tiles(const void *left, const void *right)
{
	const struct device_work_tile *a = left, *b = right;

	if (a->n_kv_tiles != b->n_kv_tiles)
		return a->n_kv_tiles < b->n_kv_tiles ? 1 : -1;
	if (a->kv_tile != b->kv_tile)
		return a->kv_tile < b->kv_tile ? -1 : 1;
	if (a->shared != b->shared)
		return a->shared < b->shared ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static int make_firsts(struct make *m)
{
	uint32_t n = m->p->n[SCHEDULE_WORK_TILES];
	struct device_source *firsts = make_append(m, SCHEDULE_FIRSTS, n);
	const struct device_work_tile *work_tiles = m->p->arrays[SCHEDULE_WORK_TILES].at;
	const struct device_source *sources = m->p->arrays[SCHEDULE_SOURCES].at;

	if (!firsts)
		return n ? -ENOMEM : 0;
	memset(firsts, 0xff, n * schedule_entry_bytes(SCHEDULE_FIRSTS));
	for (uint32_t i = 0; i < n; i++, firsts += DEVICE_FIRST_KV_TILES)
		memcpy(firsts, &sources[device_kv_tile_at(&work_tiles[i], 0)],
		       min_u32(work_tiles[i].n_kv_tiles, DEVICE_FIRST_KV_TILES) * sizeof(*firsts));
	return 0;
}

static int make_all(struct make *m, double limit_ns)
{
	uint32_t *counts = make_scratch(m, COUNTS, (size_t)m->list->n_rows + 1, sizeof(*counts));
	int r = 0;

	if (!counts)
		return -ENOMEM;
	memset(counts, 0, m->list->n_rows * sizeof(*counts));
	if (m->want->tails)
		r = tails_clear(m);
	for (uint32_t i = 0; i < m->n_strips && !r; i++)
		r = work_tiles_make(m, &make_strips_of(m)[i], limit_ns);
	if (!r)
		r = place_rows(m);
	if (!r && m->p->n[SCHEDULE_WORK_TILES] > 1)
		qsort(m->p->arrays[SCHEDULE_WORK_TILES].at, m->p->n[SCHEDULE_WORK_TILES],
		      sizeof(struct device_work_tile), compare_work_tiles);
	if (!r)
		r = make_firsts(m);
	return r || !m->want->tails ? r : tails_place(m);
}

static struct make make_begin(struct schedule *schedule, const struct schedule_want *want)
{
	const struct costs *costs = want->costs;
	double kv_block_kb = kv_block_bytes(want->shape->head_dim, want->shape->head_dim) / 1024.0;
	struct row_map map = row_map_of(want->shape);
	double row_kb = map.heads * want->shape->head_dim * 4.0 / 1024;
	double wide_ns = costs_fold_ns(costs, true, kv_block_kb);

	memset(schedule->n, 0, sizeof(schedule->n));
	schedule->n_parts = 0;
	schedule->most_parts = 0;
	schedule->tails = NULL;
	schedule->n_kv_blocks = 0;
	return (struct make){
		.p = schedule,
		.want = want,
		.list = want->list,
		.map = map,
		.wide = code_takes_wide(want->code, want->shape->head_dim),
		.block_tokens = DEVICE_BLOCK_ROWS / map.heads,
		.read_ns = costs->read_ns_per_kb * kv_block_kb,
		.kv_tile_ns = costs_fold_ns(costs, false, kv_block_kb),
		.wide_tile_ns = wide_ns,
		.turned_tile_ns = costs->turned_times * wide_ns,
		.row_ns = costs->row_ns_per_kb * row_kb,
		.part_ns = costs->part_ns_per_kb * row_kb * 2,
	};
}

int schedule_make(struct schedule *schedule, const struct schedule_want *want)
{
	struct make m = make_begin(schedule, want);
	double limit_ns = 0;
	int r = rows_spread(&m);

	if (!r)
		r = strips_choose(&m, &limit_ns);
	return r ? r : make_all(&m, limit_ns);
}

int schedule_estimate(struct schedule *schedule, const struct schedule_want *want)
{
	struct make m = make_begin(schedule, want);
	double limit_ns = 0;
	int r = rows_spread(&m);

	return r ? r : strips_choose(&m, &limit_ns);
}
