/*
 * program_units.c - strips cut into units: where a unit's groups end, which rows see something of
 * them, and where these have their place. Units of strips that are alike share their slots. See
 * program_impl.h.
 */
#include "program_impl.h"

#include <errno.h>
#include <string.h>

#define PART_STEPS 12u

/* Rows that see something of the cut's groups: marks them, and narrows the cut to them. */
static void find_rows(const struct make *m, struct cut *cut, bool *sees)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	uint32_t n_rows = cut->strip->row_end - cut->strip->row_begin;

	memset(sees, 0, n_rows * sizeof(*sees));
	for (uint32_t i = cut->begin; i < cut->end; i = groups[i].alike_end) {
		const struct device_group *g = &groups[i].group;

		for (uint32_t t = g->row_begin; t < g->row_end; t++)
			sees[t] = sees[t] || cut_row_sees(m, cut->strip, &groups[i], t);
	}
	cut->row_begin = 0;
	cut->row_end = n_rows;
	while (cut->row_begin < n_rows && !sees[cut->row_begin])
		cut->row_begin++;
	while (cut->row_end > cut->row_begin && !sees[cut->row_end - 1])
		cut->row_end--;
}

/* Each row's place in the unit; which of them are partials is known only when all units are
 * made. */
static int make_dests(struct make *m, const struct cut *cut, const bool *sees)
{
	uint32_t n = cut->row_end - cut->row_begin, at = m->p->n[PROGRAM_DESTS];
	uint32_t *dests = make_append(m, PROGRAM_DESTS, n);
	uint32_t *counts = m->p->scratch[COUNTS].at;
	struct seen *seen = make_scratch(m, SEEN, (size_t)m->n_seen + n, sizeof(*seen));

	if (!dests || !seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = cut->strip->row_begin + cut->row_begin + i;

		dests[i] = DEVICE_DEST_NOTHING;
		if (!sees[cut->row_begin + i])
			continue;
		counts[row]++;
		seen[m->n_seen++] = (struct seen){row, at + i};
	}
	return 0;
}

static int make_unit(struct make *m, struct cut *cut)
{
	bool sees[DEVICE_UNIT_ROWS];
	struct device_unit *unit;
	uint32_t n_rows, n_slots = 0, dest = m->p->n[PROGRAM_DESTS];
	int r;

	find_rows(m, cut, sees);
	if (cut->row_begin == cut->row_end)
		return 0;
	n_rows = cut->row_end - cut->row_begin;
	while (m->block_tokens << cut->blocks_log2 < n_rows)
		cut->blocks_log2++;
	cut->block_tokens = (n_rows + (1u << cut->blocks_log2) - 1) >> cut->blocks_log2;
	slots_deal(m, cut);
	cut->slot = m->p->n[PROGRAM_SLOTS];
	r = make_dests(m, cut, sees);
	if (!r)
		r = slots_make(m, cut);
	n_slots = m->p->n[PROGRAM_SLOTS] - cut->slot;
	if (!r && m->want->tails)
		r = tails_reserve(m, cut);
	unit = r ? NULL : make_append(m, PROGRAM_UNITS, 1);
	if (!unit)
		return -ENOMEM;
	*unit = (struct device_unit){
		.row = cut->strip->row_begin + cut->row_begin,
		.n_rows = cut->row_end - cut->row_begin,
		.slot = cut->slot,
		.n_slots = n_slots,
		.dest = dest,
		.blocks_log2 = cut->blocks_log2,
		.flags = (cut->queues[QUEUE_STAGES].n > 0 ? DEVICE_UNIT_WIDE : 0) |
			 (cut->dealt ? DEVICE_UNIT_DEALT : 0) | (cut->old ? DEVICE_UNIT_OLD : 0),
		.block_tokens = cut->block_tokens,
	};
	return 0;
}

/* The end of groups from i on that lie side by side for the same rows, of a slot that begins at a
 * multiple from begin. */
static uint32_t run_end(const struct piece_group *groups, uint32_t begin, uint32_t i)
{
	uint32_t in_slot = (i - begin) % DEVICE_SLOT_GROUPS;

	return min_u32(groups[i].beside_end, i + DEVICE_SLOT_GROUPS - in_slot);
}

/* From begin on, whole granules that together take so long; the end of them. */
static uint32_t part_end(const struct make *m, const struct strip *strip, uint32_t begin,
			 double part_ns)
{
	const struct piece_group *groups = m->p->scratch[GROUPS].at;
	struct run run = {.n_pieces = 1};
	struct load load;
	uint32_t i = begin;
	double ns = 0;

	load_init(m, strip, &load);
	while (i < m->n_groups) {
		const struct device_group *g = &groups[i].group;
		uint32_t end = run_end(groups, begin, i);
		struct seen_run seen = {&run, g->row_begin, g->row_end};

		run.n_groups = end - i;
		run_weigh(m, &run);
		if (!load_takes(m, &load, &seen, part_ns, &ns))
			break;
		i = end;
		if ((i - begin) % load_granule(&load, i - begin) == 0 && ns >= part_ns)
			break;
	}
	return i;
}

/* The strip's parts, at most so many; their ends, if there is room. Returns how many, most + 1:
 * more than that. */
static uint32_t count_parts(const struct make *m, const struct strip *strip, double part_ns,
			    uint32_t most, uint32_t *ends)
{
	uint32_t n = 0;

	for (uint32_t end = 0; end < m->n_groups && n <= most; n++) {
		end = part_end(m, strip, end, part_ns);
		if (n < most)
			ends[n] = end;
	}
	return n;
}

/* A strip whole, or cut into parts that take about the same. */
static int make_units(struct make *m, struct strip *strip, double limit_ns)
{
	bool one_each = m->p->expect.n_units * m->want->shape->n_kv_heads <= m->want->n_blocks;
	struct parts parts = strip_parts(m, strip, limit_ns);
	uint32_t *ends = make_scratch(m, ENDS, parts.n, sizeof(*ends));
	uint32_t end = 0, n_ends = 0;
	int r = ends ? strip_read(m, strip) : -ENOMEM;

	/* groups one by one take longer than in runs, and a unit more than there are blocks is
	 * waited for by all */
	for (uint32_t i = 0; !r && one_each && parts.n > 1 && i < PART_STEPS; i++) {
		n_ends = count_parts(m, strip, parts.each_ns, parts.n, ends);
		if (n_ends <= parts.n)
			break;
		parts.each_ns *= 1.05;
	}
	for (uint32_t i = 0; end < m->n_groups && !r; i++) {
		struct cut cut = {.strip = strip, .begin = end, .end = m->n_groups};

		if (parts.n > 1)
			cut.end = n_ends && n_ends <= parts.n
					  ? ends[i]
					  : part_end(m, strip, end, parts.each_ns);
		end = cut.end;
		r = make_unit(m, &cut);
	}
	return r;
}

/* ---- units that are alike ------------------------------------------------------------------- */

/* Units of the strip that are those before, with rows of its own. */
static int copy_units(struct make *m, const struct strip *strip)
{
	bool sees[DEVICE_UNIT_ROWS];
	int r = 0;

	memset(sees, true, sizeof(sees));
	for (uint32_t i = 0; i < m->alike.n_units && !r; i++) {
		struct cut cut = {.strip = strip, .row_end = m->alike.n_rows};
		uint32_t dest = m->p->n[PROGRAM_DESTS];
		struct device_unit *unit;

		r = make_dests(m, &cut, sees);
		unit = r ? NULL : make_append(m, PROGRAM_UNITS, 1);
		if (!unit)
			return -ENOMEM;
		*unit = ((struct device_unit *)m->p->arrays[PROGRAM_UNITS].at)[m->alike.unit + i];
		unit->row = strip->row_begin;
		unit->dest = dest;
	}
	m->p->n_groups += m->alike.n_groups;
	return r;
}

int units_make(struct make *m, struct strip *strip, double limit_ns)
{
	uint32_t n_rows = strip->row_end - strip->row_begin, unit = m->p->n[PROGRAM_UNITS];
	bool all = !m->want->tails && strip_sees_all(m, strip);
	uint64_t n_groups = m->p->n_groups;

	if (all && m->alike.item == strip->item && m->alike.n_rows == n_rows)
		return copy_units(m, strip);
	int r = make_units(m, strip, limit_ns);
	if (all)
		m->alike = (struct alike){.item = strip->item,
					  .n_rows = n_rows,
					  .unit = unit,
					  .n_units = m->p->n[PROGRAM_UNITS] - unit,
					  .n_groups = m->p->n_groups - n_groups};
	return r;
}
