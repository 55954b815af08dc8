/*
 * program.c - see program.h: strips cut into units, their rows' places, and the whole.
 * program_impl.h has the parts.
 */
#include "program_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_STEPS 12u

/* A row that a unit has something for, in the order of units. */
struct seen {
	uint32_t row, dest;
};

size_t program_entry_bytes(enum program_array array)
{
	static const size_t bytes[] = {
		[PROGRAM_UNITS] = sizeof(struct device_unit),
		[PROGRAM_FIRSTS] = DEVICE_FIRST_SLOTS * sizeof(struct device_source),
		[PROGRAM_SLOTS] = sizeof(struct device_slot),
		[PROGRAM_SOURCES] = sizeof(struct device_source),
		[PROGRAM_DESTS] = sizeof(uint32_t),
		[PROGRAM_MERGES] = sizeof(struct device_merge),
	};

	return bytes[array];
}

static void *room(struct program_memory *memory, size_t n, size_t size)
{
	size_t bytes = n * size;
	void *at;

	if (memory->at && bytes <= memory->bytes)
		return memory->at;
	bytes += bytes / 2 + 4096;
	at = realloc(memory->at, bytes);
	if (!at)
		return NULL;
	memory->at = at;
	memory->bytes = bytes;
	return at;
}

void *make_scratch(struct make *m, enum scratch which, size_t n, size_t size)
{
	return room(&m->p->scratch[which], n, size);
}

/* The next n entries of an array. */
void *make_append(struct make *m, enum program_array array, uint32_t n)
{
	size_t size = program_entry_bytes(array);
	char *at = room(&m->p->arrays[array], (size_t)m->p->n[array] + n, size);

	if (!at)
		return NULL;
	at += m->p->n[array] * size;
	m->p->n[array] += n;
	return at;
}

bool make_wants(const struct make *m, uint32_t begin, uint32_t end)
{
	for (uint32_t row = begin; row < end; row++) {
		if (!m->want->wanted || m->want->wanted[m->want->list->rows[row].query])
			return true;
	}
	return false;
}

/* ---- units ---------------------------------------------------------------------------------- */

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

		run.n_groups = end - i;
		run_weigh(m, &run);
		if (!load_takes(m, &load, &run, g->row_begin, g->row_end, part_ns, &ns))
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

/* Where all rows see all, only the first strip needs slots. */
static int make_strip(struct make *m, struct strip *strip, double limit_ns)
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

/* ---- the whole ------------------------------------------------------------------------------ */

/* Rows of one unit alone go to the output; the others get partials side by side, in the order of
 * units. */
static int place_rows(struct make *m)
{
	const struct work_list *list = m->want->list;
	uint32_t *counts = m->p->scratch[COUNTS].at, *dests = m->p->arrays[PROGRAM_DESTS].at;
	uint32_t *bases = make_scratch(m, BASES, list->n_rows + 1, sizeof(*bases));
	const struct seen *seen = m->p->scratch[SEEN].at;

	if (!bases)
		return -ENOMEM;
	for (uint32_t row = 0; row < list->n_rows; row++) {
		struct device_merge *merge;

		bases[row] = m->p->n_parts;
		if (counts[row] == 1 || !make_wants(m, row, row + 1))
			continue;
		merge = make_append(m, PROGRAM_MERGES, 1);
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

/* Longest first; equals in their order. */
static int compare_units(const void *left, const void *right)
{
	const struct device_unit *a = left, *b = right;

	if (a->n_slots != b->n_slots)
		return a->n_slots < b->n_slots ? 1 : -1;
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

static int make_firsts(struct make *m)
{
	uint32_t n = m->p->n[PROGRAM_UNITS];
	struct device_source *firsts = make_append(m, PROGRAM_FIRSTS, n);
	const struct device_unit *units = m->p->arrays[PROGRAM_UNITS].at;
	const struct device_source *sources = m->p->arrays[PROGRAM_SOURCES].at;

	if (!firsts)
		return n ? -ENOMEM : 0;
	memset(firsts, 0xff, n * program_entry_bytes(PROGRAM_FIRSTS));
	for (uint32_t i = 0; i < n; i++, firsts += DEVICE_FIRST_SLOTS)
		memcpy(firsts, &sources[units[i].slot],
		       min_u32(units[i].n_slots, DEVICE_FIRST_SLOTS) * sizeof(*firsts));
	return 0;
}

static int make_all(struct make *m, double limit_ns)
{
	uint32_t *counts =
		make_scratch(m, COUNTS, (size_t)m->want->list->n_rows + 1, sizeof(*counts));
	int r = 0;

	if (!counts)
		return -ENOMEM;
	memset(counts, 0, m->want->list->n_rows * sizeof(*counts));
	if (m->want->tails)
		r = tails_clear(m);
	for (uint32_t i = 0; i < m->n_strips && !r; i++)
		r = make_strip(m, &make_strips_of(m)[i], limit_ns);
	if (!r)
		r = place_rows(m);
	if (!r && m->p->n[PROGRAM_UNITS] > 1)
		qsort(m->p->arrays[PROGRAM_UNITS].at, m->p->n[PROGRAM_UNITS],
		      sizeof(struct device_unit), compare_units);
	if (!r)
		r = make_firsts(m);
	return r || !m->want->tails ? r : tails_place(m);
}

static struct make make_begin(struct program *program, const struct program_want *want)
{
	const struct costs *costs = want->costs;
	double group_kb = DEVICE_GROUP_TOKENS * 4.0 * want->shape->head_dim / 1024;
	uint32_t heads = want->shape->n_q_heads / want->shape->n_kv_heads;
	double row_kb = heads * want->shape->head_dim * 4.0 / 1024;

	memset(program->n, 0, sizeof(program->n));
	program->n_parts = 0;
	program->most_parts = 0;
	program->tails = NULL;
	program->n_groups = 0;
	return (struct make){
		.p = program,
		.want = want,
		.heads = heads,
		.block_tokens = DEVICE_BLOCK_ROWS / heads,
		.read_ns = costs->read_ns_per_kb * group_kb,
		.slot_ns = costs->slot_ns_per_kb * group_kb,
		.stage_ns = costs->stage_ns_per_kb * group_kb,
		.row_ns = costs->row_ns_per_kb * row_kb,
		.part_ns = costs->part_ns_per_kb * row_kb * 2,
	};
}

int program_make(struct program *program, const struct program_want *want)
{
	struct make m = make_begin(program, want);
	double limit_ns = 0;
	int r = strips_choose(&m, &limit_ns);

	return r ? r : make_all(&m, limit_ns);
}

int program_estimate(struct program *program, const struct program_want *want)
{
	struct make m = make_begin(program, want);
	double limit_ns = 0;

	return strips_choose(&m, &limit_ns);
}

void program_done(struct program *program)
{
	for (uint32_t i = 0; i < PROGRAM_N_ARRAYS; i++)
		free(program->arrays[i].at);
	for (uint32_t i = 0; i < PROGRAM_N_SCRATCH; i++)
		free(program->scratch[i].at);
	*program = (struct program){0};
}
