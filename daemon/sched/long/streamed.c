/*
 * streamed.c - see streamed.h.
 *
 *      members      0: a b c d e x        passes    1  what all share on the device: a b
 *                   1: a b c d e y z                2  the same, staged: c d | e
 *                                                   3  each member's own, on the device and staged: x, y z
 *                                                   4  all: tails and live tokens, which are appended
 */
#include "streamed_impl.h"

#include "daemon/sched/seq/complete.h"
#include "daemon/base/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES (UINT64_C(256) << 20) /* of all members' rows */
#define ROWS_MAX 8192u
#define MEMBERS_MAX 256u
#define GROUP_ROWS 16u /* a member of several has so many at most */

/* ---- which steps ---------------------------------------------------------------------------- */

static bool is_long(const struct step *step)
{
	for (uint32_t i = 0; i < step->n_parts; i++)
		if (!store_seq_is_resident(step->parts[i].seq->store))
			return true;
	return false;
}

void passes_mark(struct sched *s)
{
	struct sched_lane *lane;

	if (s->passes.n_extents == 0 || store_n_left(s->store) == 0)
		return;
	TAILQ_FOREACH (lane, &s->lanes, link) {
		struct step *step = &lane->step;

		if (!lane->parked || lane->awaited || step->in_passes || !is_long(step))
			continue;
		step->in_passes = step->prefill = true;
		s->hold_stale = true;
	}
}

/* Could all of the step be done together with others'? */
static bool may_join(const struct step *step)
{
	for (uint32_t i = 0; i < step->n_parts; i++) {
		const struct step_part *part = &step->parts[i];

		if (part->n_new > GROUP_ROWS || part->seq->parents || !part->io.o)
			return false;
	}
	return step->next_part == 0 && step->next_row == 0;
}

/* ---- members -------------------------------------------------------------------------------- */

static uint32_t rows_room(const struct sched_model *model)
{
	const struct work_shape *shape = &model->shape;
	uint64_t row_bytes = (uint64_t)shape->n_q_heads * (shape->head_dim + 2) * sizeof(float);
	uint64_t most = STATE_BYTES / row_bytes + 1;

	return most < ROWS_MAX ? (uint32_t)most : ROWS_MAX;
}

/* Members that never were have gathers of nothing. */
static int members_grow(struct passes *p)
{
	uint32_t n_before = p->members_room;
	int r = GROW(p->members, p->members_room, p->n_members + 1);

	if (r == 0)
		memset(&p->members[n_before], 0,
		       (p->members_room - n_before) * sizeof(*p->members));
	return r;
}

static int member_add(struct passes *p, struct sched_lane *lane, uint32_t part, uint32_t row,
		      uint32_t n_rows)
{
	uint32_t first_row = passes_n_rows(p);
	int r = members_grow(p);

	if (r < 0)
		return r;
	struct passes_member *m = &p->members[p->n_members];

	m->lane = lane;
	m->part = &lane->step.parts[part];
	m->row = row;
	m->n_rows = n_rows;
	m->first_row = first_row;
	r = gather_begin(&m->gather, m->part->seq->store);
	p->n_members += r == 0;
	return r;
}

static void members_drop(struct passes *p, uint32_t n_left)
{
	while (p->n_members > n_left)
		gather_end(&p->members[--p->n_members].gather);
}

/* Slices that two paths begin with. */
static uint32_t common(const struct gather *a, const struct gather *b)
{
	uint32_t n = a->n_slices < b->n_slices ? a->n_slices : b->n_slices, i = 0;

	while (i < n && (i < a->n_device) == (i < b->n_device) &&
	       !memcmp(&a->slices[i], &b->slices[i], sizeof(*a->slices)))
		i++;
	return i;
}

/* Does the last member's path begin with half of the first's at least? */
static bool is_alike(const struct passes *p)
{
	const struct gather *first = &p->members[0].gather;

	return 2 * common(first, &p->members[p->n_members - 1].gather) >= first->n_slices;
}

/* All parts of a step; none of one that is not alike those that are there. */
static int step_join(struct passes *p, struct sched_lane *lane)
{
	uint32_t n_before = p->n_members;
	int r = 0;

	for (uint32_t i = 0; i < lane->step.n_parts && r == 0; i++) {
		r = member_add(p, lane, i, 0, lane->step.parts[i].n_new);
		if (r == 0 && n_before > 0 && !is_alike(p))
			r = -EXDEV;
	}
	if (r < 0)
		members_drop(p, n_before);
	return r;
}

static bool has_room_for(const struct passes *p, const struct step *step)
{
	uint32_t n_rows = passes_n_rows(p);

	for (uint32_t i = 0; i < step->n_parts; i++)
		n_rows += step->parts[i].n_new;
	return n_rows <= rows_room(p->model) && p->n_members + step->n_parts <= MEMBERS_MAX;
}

static void others_join(struct sched *s, const struct sched_lane *leader)
{
	struct passes *p = &s->passes;
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &s->lanes, link) {
		const struct step *step = &lane->step;

		if (lane != leader && lane->parked && !lane->awaited && step->in_passes &&
		    step->model == p->model && step->layer == p->layer && may_join(step) &&
		    has_room_for(p, step))
			step_join(p, lane);
	}
}

/* The next rows of a part of a step that is alone. */
static int slice_join(struct passes *p, struct sched_lane *lane)
{
	const struct step *step = &lane->step;
	const struct step_part *part = &step->parts[step->next_part];
	uint32_t left = part->n_new - step->next_row, most = rows_room(p->model);

	return member_add(p, lane, step->next_part, step->next_row,
			  part->seq->parents || left < most ? left : most);
}

/* ---- what passes there are ------------------------------------------------------------------ */

static int pass_add(struct passes *p, struct passes_pass pass)
{
	int r = GROW(p->passes, p->passes_room, p->n_passes + 1);

	if (r == 0)
		p->passes[p->n_passes++] = pass;
	return r;
}

static uint32_t count_tokens(const struct gather *g, uint32_t begin, uint32_t end)
{
	uint32_t n = 0;

	for (uint32_t i = begin; i < end; i++)
		n += g->slices[i].count;
	return n;
}

/* Lengthens a pass by what follows on its side of the device's end, as far as a cell has room for
 * what is seen of it. Returns how many slices are seen. */
static uint32_t pass_fill(const struct passes *p, const struct gather *g, uint32_t end,
			  struct passes_pass *pass)
{
	bool staged = pass->kind == PASSES_STAGED;
	uint32_t pos = pass->pos, any = p->model->shape.n_kv_heads, n_seen = 0;

	end = staged || end < g->n_device ? end : g->n_device;
	for (; pass->end < end; pos += g->slices[pass->end++].count) {
		bool seen = choice_has(p, any, pos);
		if (staged && seen && n_seen == p->cell_pages)
			break;
		n_seen += seen;
	}
	return n_seen;
}

/* Slices [begin, end) of a member's path: what is on the device in one go, the rest a cell at a
 * time. */
static int span_add(struct passes *p, uint32_t member, uint32_t begin, uint32_t end)
{
	const struct gather *g = &p->members[member == PASSES_ALL ? 0 : member].gather;
	uint32_t pos = count_tokens(g, 0, begin);
	int r = 0;

	while (begin < end && r == 0) {
		struct passes_pass pass = {begin >= g->n_device ? PASSES_STAGED : PASSES_DEVICE,
					   member, begin, begin, pos};
		if (pass_fill(p, g, end, &pass) > 0)
			r = pass_add(p, pass);
		pos += count_tokens(g, begin, pass.end);
		begin = pass.end;
	}
	return r;
}

/* How much of the first's path all have. */
static uint32_t shared_slices(const struct passes *p)
{
	uint32_t n = p->members[0].gather.n_slices;

	for (uint32_t i = 1; i < p->n_members; i++) {
		uint32_t c = common(&p->members[0].gather, &p->members[i].gather);

		n = c < n ? c : n;
	}
	return n;
}

/* What needs no copies goes before what does, where the rows are one member's: these have its time
 * too. */
static void rest_goes_ahead(struct passes *p)
{
	struct passes_pass rest = p->passes[p->n_passes - 1];
	uint32_t i = p->n_passes - 1;

	for (; i > 0 && p->passes[i - 1].kind == PASSES_STAGED; i--)
		p->passes[i] = p->passes[i - 1];
	p->passes[i] = rest;
}

static int passes_make(struct passes *p)
{
	bool appends = p->members[0].part->io.o == 0; /* who only appends sees nothing */
	uint32_t n_shared = shared_slices(p);
	int r = appends ? 0 : span_add(p, PASSES_ALL, 0, n_shared);

	for (uint32_t i = 0; i < p->n_members && r == 0 && !appends; i++)
		r = span_add(p, i, n_shared, p->members[i].gather.n_slices);
	if (r == 0)
		r = pass_add(p, (struct passes_pass){.kind = PASSES_REST, .member = PASSES_ALL});
	if (r == 0 && p->n_members == 1)
		rest_goes_ahead(p);
	return r;
}

/* ---- copies into the stage ------------------------------------------------------------------ */

/* A stage of very few pages has as many cells. */
static void cells_cut(struct sched *s)
{
	struct passes *p = &s->passes;
	uint64_t n_pages = (uint64_t)p->n_extents * passes_extent_pages(s), newest = 0;

	p->n_cells = n_pages < PASSES_CELLS ? (uint32_t)n_pages : PASSES_CELLS;
	p->cell_pages = (uint32_t)(n_pages / p->n_cells);
	for (uint32_t i = 0; i < PASSES_CELLS; i++)
		newest = p->users[i] > newest ? p->users[i] : newest;
	for (uint32_t i = 0; i < PASSES_CELLS; i++)
		p->users[i] = newest; /* another model's cells lay elsewhere */
}

/* Heads [head, head + n_heads) of a page's layer. */
static void copy_ask(struct sched *s, uint32_t page, const char *host, uint32_t head,
		     uint32_t n_heads)
{
	struct passes *p = &s->passes;
	uint64_t bytes = passes_layer_bytes(p), head_bytes = bytes / p->model->shape.n_kv_heads;
	uint32_t each = passes_extent_pages(s);
	struct backend_copy copy = {
		.extent = p->first_extent + page / each,
		.offset_bytes = page % each * bytes + head * head_bytes,
		.bytes = n_heads * head_bytes,
		.host = (char *)(uintptr_t)host + p->layer * bytes + head * head_bytes,
		.after = p->users[page / p->cell_pages],
	};

	p->tokens[page / p->cell_pages] = s->ops->tier->up(s->backend, &copy);
	p->staged_bytes += copy.bytes;
}

/* Slices [slice, end) of a path, all of one block: what any head sees of them, heads that stand
 * together in one go, so that copies lie at equal distances. */
static void block_ask(struct sched *s, const struct gather *g, uint32_t pos, uint32_t slice,
		      uint32_t end)
{
	struct passes *p = &s->passes;
	uint32_t n_heads = p->model->shape.n_kv_heads, next;
	uint32_t page = p->n_asked % p->n_cells * p->cell_pages + p->n_asked_pages;

	if (!choice_has(p, n_heads, pos))
		return;
	p->n_asked_pages += end - slice;
	for (uint32_t head = 0; head < n_heads; head = next + 1) {
		for (next = head; next < n_heads && choice_has(p, next, pos);)
			next++;
		for (uint32_t i = slice; i < end && next > head; i++)
			copy_ask(s, page + i - slice, gather_memory(g, i), head, next - head);
	}
}

/* Where a block's slices end that begin here; in block_tokens, choice's too. */
static uint32_t block_end(const struct sched *s, const struct gather *g, uint32_t pos,
			  uint32_t slice, uint32_t end, uint32_t *ret_pos)
{
	uint32_t block = pos / s->config->stage_block;

	for (; slice < end && pos / s->config->stage_block == block; slice++)
		pos += g->slices[slice].count;
	*ret_pos = pos;
	return slice;
}

static bool all_are_there(const struct gather *g, uint32_t slice, uint32_t end)
{
	while (slice < end && gather_is_there(g, slice))
		slice++;
	return slice == end;
}

/* Of one pass. False: slices are still on their way down, they come later. */
static bool pass_ask(struct sched *s, const struct passes_pass *pass)
{
	struct passes *p = &s->passes;
	const struct gather *g = passes_gather(p, pass);
	uint32_t slice = pass->begin + p->n_asked_slices, end, next_pos;
	uint32_t pos = pass->pos + count_tokens(g, pass->begin, slice);

	for (; slice < pass->end; slice = end, pos = next_pos) {
		end = block_end(s, g, pos, slice, pass->end, &next_pos);
		if (!all_are_there(g, slice, end))
			return false;
		block_ask(s, g, pos, slice, end);
		p->n_asked_slices += end - slice;
	}
	p->n_asked++;
	p->n_asked_slices = p->n_asked_pages = 0;
	s->ops->tier->kick(s->backend);
	return true;
}

/* For a cell that is free, as long as no more than so many are filled: one at a time, as attention
 * is submitted in between. */
static void copies_ask(struct sched *s, uint32_t n_cells)
{
	struct passes *p = &s->passes;

	while (p->ask < p->n_passes && p->passes[p->ask].kind != PASSES_STAGED)
		p->ask++;
	if (p->ask < p->n_passes && p->n_asked < p->n_staged + n_cells &&
	    pass_ask(s, &p->passes[p->ask]))
		p->ask++;
}

/* What the next pass is about is there. */
static bool next_is_ready(struct sched *s)
{
	struct passes *p = &s->passes;

	if (p->passes[p->n_begun].kind != PASSES_STAGED)
		return true;
	return p->n_filled < p->n_asked &&
	       p->tokens[p->n_filled % p->n_cells] <= s->ops->tier->ups_done(s->backend);
}

/* ---- from the first pass to the last -------------------------------------------------------- */

static void give_up(struct passes *p)
{
	members_drop(p, 0);
	p->choice.sums = p->choice.made = p->choice.appended = false;
	p->n_passes = p->n_begun = p->n_ended = p->ask = 0;
	p->in_flight = false;
}

static int slice_begin(struct sched *s, struct sched_lane *lane)
{
	struct passes *p = &s->passes;

	p->model = lane->step.model;
	p->layer = lane->step.layer;
	cells_cut(s);
	p->rows_id++;
	p->n_filled = p->n_staged = p->n_asked = p->n_asked_slices = p->n_asked_pages = 0;
	p->n_passes = p->n_begun = p->n_ended = p->ask = 0;
	bool group = may_join(&lane->step) && has_room_for(p, &lane->step);
	int r = group ? step_join(p, lane) : slice_join(p, lane);

	if (r == 0 && group)
		others_join(s, lane);
	if (r == 0 && !group)
		r = choice_begin(s);
	if (r == 0)
		r = passes_make(p);
	if (r < 0)
		give_up(p);
	else if (p->passes[0].kind == PASSES_STAGED)
		copies_ask(s,
			   /* the others, and where none is wanted first, while the first pass is at
			 * work */
			   1);
	return r;
}

static bool is_member(const struct passes *p, const struct sched_lane *lane)
{
	for (uint32_t i = 0; i < p->n_members; i++)
		if (p->members[i].lane == lane)
			return true;
	return false;
}

bool passes_may(struct sched *s, const struct sched_lane *lane)
{
	return !passes_busy(&s->passes) || (is_member(&s->passes, lane) && next_is_ready(s));
}

static void lane_fail(struct sched *s, struct sched_lane *lane, int r)
{
	if (r == -EIO)
		sched_fail(s);
	step_fail(s, lane, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
}

void passes_begin(struct sched *s, struct sched_lane *lane)
{
	int r = passes_busy(&s->passes) ? 0 : slice_begin(s, lane);

	if (r == 0 && !next_is_ready(s))
		return;
	if (r == 0)
		r = passes_submit(s);
	if (r < 0)
		lane_fail(s, lane, r);
}

/* The pass after one that the backend has, where nobody else waits: so the backend need not. */
static void go_ahead(struct sched *s)
{
	struct passes *p = &s->passes;
	uint32_t n_flying = p->n_begun - p->n_ended;

	if (p->n_members != 1 || s->n_parked > 1 || n_flying == 0 || n_flying == PASSES_VIEWS ||
	    p->n_begun == p->n_passes || !next_is_ready(s))
		return;
	int r = passes_submit(s);
	if (r < 0)
		lane_fail(s, p->members[0].lane, r);
}

/* The step goes on with the next rows or part, or is done. */
static void step_go_on(struct sched *s, struct sched_lane *lane, uint32_t row_end)
{
	struct step *step = &lane->step;

	step->next_row = row_end;
	if (row_end < step->parts[step->next_part].n_new)
		return;
	step->next_row = 0;
	if (++step->next_part == step->n_parts)
		step_finish(s, lane);
}

static void slice_end(struct sched *s)
{
	struct passes *p = &s->passes;
	uint32_t n = p->n_members;

	choice_end(s);
	give_up(p);
	s->stats.prefill_jobs++;
	for (uint32_t i = 0; i < n; i++)
		step_go_on(s, p->members[i].lane, p->members[i].row + p->members[i].n_rows);
}

static void pass_end(struct sched *s)
{
	struct passes *p = &s->passes;

	s->stats.batches++;
	p->n_done++;
	p->n_staged += p->views[p->n_ended++ % PASSES_VIEWS].staged;
	p->in_flight = p->n_ended < p->n_begun;
}

bool passes_poll(struct sched *s)
{
	struct passes *p = &s->passes;
	uint32_t n_ended = p->n_ended;
	uint64_t completed;

	if (!passes_busy(p))
		return false;
	if (p->in_flight && s->ops->completed(s->backend, &completed) < 0) {
		sched_fail(s);
		passes_fail(s);
		return true;
	}
	while (p->in_flight && p->views[p->n_ended % PASSES_VIEWS].id <= completed)
		pass_end(s);
	if (p->n_ended > n_ended)
		s->now_ns = s->clock();
	if (p->n_ended == p->n_passes) {
		slice_end(s);
		return true;
	}
	n_ended -= p->n_ended;
	copies_ask(s, p->n_cells);
	go_ahead(s);
	return n_ended != 0;
}

void passes_forget(struct sched *s, const struct sched_lane *lane)
{
	if (is_member(&s->passes, lane))
		give_up(&s->passes);
}

void passes_fail(struct sched *s)
{
	while (passes_busy(&s->passes))
		step_fail(s, s->passes.members[0].lane, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

void passes_done(struct passes *p)
{
	for (uint32_t i = 0; i < p->members_room; i++)
		gather_done(&p->members[i].gather);
	passes_views_done(p);
	choice_done(&p->choice);
	free(p->members);
	free(p->passes);
}
