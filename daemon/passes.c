/* passes.c - see passes.h. */
#include "passes.h"

#include "complete.h"
#include "sched_impl.h"
#include "step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES (UINT64_C(256) << 20) /* of the rows of a slice */
#define ROWS_MAX 8192u

/* ---- which steps ---------------------------------------------------------------------------------------- */

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

/* ---- copies into the stage ------------------------------------------------------------------------------ */

/* The stage's pages are of one layer: all layers' parts of a page lie one after the other. */
static struct work_shape stage_shape(const struct sched_model *model)
{
	struct work_shape shape = model->shape;

	shape.n_layers = 1;
	return shape;
}

static uint64_t layer_bytes(const struct sched_model *model)
{
	return model->page_bytes / model->shape.n_layers;
}

static uint32_t extent_pages(const struct sched *s, const struct sched_model *model)
{
	return (uint32_t)(s->config->extent_bytes / layer_bytes(model));
}

/* Slices of a staged pass: [*ret, end). */
static uint32_t staged_end(const struct passes *p, uint32_t pass, uint32_t *ret)
{
	uint32_t begin = p->gather.n_device + pass * p->cell_pages;
	uint32_t left = p->gather.n_slices - begin;

	*ret = begin;
	return begin + (left < p->cell_pages ? left : p->cell_pages);
}

static void copy_ask(struct sched *s, uint32_t cell, uint32_t index, uint32_t slice)
{
	struct passes *p = &s->passes;
	const struct step *step = &p->lane->step;
	uint64_t bytes = layer_bytes(step->model);
	uint32_t each = extent_pages(s, step->model), page = cell * p->cell_pages + index;
	struct backend_copy copy = {
		.extent = p->first_extent + page / each,
		.offset_bytes = page % each * bytes,
		.bytes = bytes,
		.host = (char *)gather_memory(&p->gather, slice) + step->layer * bytes,
	};

	p->tokens[cell] = s->ops->tier->up(s->backend, &copy);
	p->staged_bytes += bytes;
}

/* Staged passes that the backend has done. */
static uint32_t staged_done(const struct passes *p)
{
	uint32_t prefix = p->gather.n_device > 0;

	return p->next > prefix ? p->next - prefix : 0;
}

/* For all cells that are free; slices that are still on their way down come later. */
static void copies_ask(struct sched *s)
{
	struct passes *p = &s->passes;

	while (p->n_asked < p->n_staged && p->n_asked < staged_done(p) + PASSES_CELLS) {
		uint32_t begin, end = staged_end(p, p->n_asked, &begin);

		for (; begin + p->n_asked_slices < end; p->n_asked_slices++) {
			if (!gather_is_there(&p->gather, begin + p->n_asked_slices))
				return;
			copy_ask(s, p->n_asked % PASSES_CELLS, p->n_asked_slices,
				 begin + p->n_asked_slices);
		}
		p->n_asked++;
		p->n_asked_slices = 0;
		s->ops->tier->kick(s->backend);
	}
}

/* ---- passes --------------------------------------------------------------------------------------------- */

enum kind { PREFIX, STAGED, REST };

static enum kind kind_of(const struct passes *p, uint32_t *ret_staged)
{
	*ret_staged = staged_done(p);
	if (p->next == p->n_passes - 1)
		return REST;
	return p->next == 0 && p->gather.n_device > 0 ? PREFIX : STAGED;
}

/* What the next pass is about is there. */
static bool next_is_ready(struct sched *s)
{
	struct passes *p = &s->passes;
	uint32_t staged;

	if (kind_of(p, &staged) != STAGED)
		return true;
	return staged < p->n_asked &&
	       p->tokens[staged % PASSES_CELLS] <= s->ops->tier->ups_done(s->backend);
}

static int slices_reserve(struct passes *p, uint32_t n)
{
	if (n <= p->slices_room)
		return 0;
	struct work_slice *slices = realloc(p->slices, n * sizeof(*slices));

	if (!slices)
		return -ENOMEM;
	p->slices = slices;
	p->slices_room = n;
	return 0;
}

/* What a pass sees: one run of tokens, and the rows behind or at its end. */
struct view {
	struct work_shape shape;
	struct work_node node;
	struct work_query query;
	struct backend_io io;
	uint32_t layer;
};

static void view_add(struct passes *p, struct view *v, struct store_slice slice)
{
	p->slices[v->node.n_slices++] = (struct work_slice){slice.page, slice.first, slice.count};
	v->node.n_tokens += slice.count;
}

static void view_prefix(struct passes *p, struct view *v)
{
	for (uint32_t i = 0; i < p->gather.n_device; i++)
		view_add(p, v, p->gather.slices[i]);
}

static void view_staged(struct sched *s, struct view *v, uint32_t staged)
{
	struct passes *p = &s->passes;
	const struct sched_model *model = p->lane->step.model;
	uint32_t begin, end = staged_end(p, staged, &begin);
	uint32_t page =
		p->first_extent * extent_pages(s, model) + staged % PASSES_CELLS * p->cell_pages;

	v->shape = stage_shape(model);
	v->layer = 0;
	v->node.pos = p->staged_tokens;
	for (uint32_t i = begin; i < end; i++) {
		struct store_slice slice = p->gather.slices[i];

		slice.page = page + i - begin;
		view_add(p, v, slice);
	}
}

/* Tokens [first, first + count) of a run of slices. */
static void view_add_cut(struct passes *p, struct view *v, const struct store_slice *slices,
			 uint32_t first, uint32_t count)
{
	for (; count > 0; slices++) {
		if (first >= slices->count) {
			first -= slices->count;
			continue;
		}
		uint32_t n = slices->count - first < count ? slices->count - first : count;

		view_add(p, v,
			 (struct store_slice){slices->page, (uint16_t)(slices->first + first),
					      (uint16_t)n});
		first = 0;
		count -= n;
	}
}

/* Tail and live tokens up to the slice's last, which are appended. Their slots stand behind the view's slices. */
static void view_rest(struct passes *p, struct view *v, const struct step_part *part)
{
	uint32_t n_slots, n_tail_slices, n_tail;
	const struct store_slice *slots = store_seq_slots(part->seq->store, &n_slots);
	const struct store_slice *tail = store_seq_tail(part->seq->store, &n_tail_slices, &n_tail);

	v->node.pos = p->gather.n_tokens;
	for (uint32_t i = 0; i < n_tail_slices; i++)
		view_add(p, v, tail[i]);
	view_add_cut(p, v, slots, 0, p->row + p->n_rows);
	struct work_node all = v->node;

	v->io.slots = p->slices + all.n_slices;
	view_add_cut(p, v, slots, p->row, p->n_rows);
	v->io.n_slots = v->node.n_slices - all.n_slices;
	v->node = all;
	v->query.parents = part->seq->parents;
}

static void view_init(const struct passes *p, const struct step_part *part, struct view *v)
{
	uint64_t row = p->row;

	*v = (struct view){
		.shape = p->lane->step.model->shape,
		.node = {.parent = WORK_NONE},
		.query = {.pos = store_seq_n_tokens(part->seq->store) + p->row,
			  .n_rows = p->n_rows},
		.io = part->io,
		.layer = p->lane->step.layer,
	};
	v->io.q += v->io.q ? row * v->io.q_stride : 0;
	v->io.k += row * v->io.k_stride;
	v->io.v += row * v->io.v_stride;
	v->io.o += v->io.o ? row * v->io.o_stride : 0;
	v->io.lse += v->io.lse ? row * v->io.lse_stride : 0;
	v->io.slots = NULL;
	v->io.n_slots = 0;
}

static int view_plan(struct sched *s, const struct view *v, const struct work_tree *tree)
{
	uint32_t n_threads = s->config->n_threads ? s->config->n_threads : s->n_cores;
	uint32_t n_heads = v->shape.n_kv_heads;
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &v->shape, (n_threads + n_heads - 1) / n_heads);
	config.tile_rows = s->ops->tile_rows(s->backend, &v->shape);
	return plan_make(&config, tree, &s->passes.list);
}

static int pass_submit(struct sched *s)
{
	struct passes *p = &s->passes;
	const struct step *step = &p->lane->step;
	const struct step_part *part = &step->parts[step->next_part];
	uint32_t staged, n_slots, n_tail_slices, n_tail;
	enum kind kind = kind_of(p, &staged);
	struct view v;

	store_seq_slots(part->seq->store, &n_slots);
	store_seq_tail(part->seq->store, &n_tail_slices, &n_tail);
	if (slices_reserve(p, p->gather.n_slices + n_tail_slices + 2 * n_slots + 2) < 0)
		return -ENOMEM;
	view_init(p, part, &v);
	if (kind == PREFIX)
		view_prefix(p, &v);
	else if (kind == STAGED)
		view_staged(s, &v, staged);
	else
		view_rest(p, &v, part);
	struct work_tree tree = {&v.node, p->slices, &v.query, 1, v.node.n_slices, 1};
	int r = view_plan(s, &v, &tree);

	if (r < 0)
		return r;
	struct backend_job job = {
		.shape = &v.shape, .tree = &tree, .list = &p->list, .io = &v.io, .layer = v.layer};
	uint32_t flags =
		(p->next == 0 ? BACKEND_PASS_FIRST : 0u) | (kind == REST ? BACKEND_PASS_LAST : 0u);

	if (kind == STAGED)
		p->staged_tokens += v.node.n_tokens;
	return s->ops->tier->pass(s->backend, &job, flags, &p->id);
}

/* ---- slices of a step ----------------------------------------------------------------------------------- */

static uint32_t rows_at_once(const struct sched_model *model, const struct step_part *part,
			     uint32_t left)
{
	const struct work_shape *shape = &model->shape;
	uint64_t row_bytes = (uint64_t)shape->n_q_heads * (shape->head_dim + 2) * sizeof(float);
	uint64_t most = STATE_BYTES / row_bytes + 1;

	most = most < ROWS_MAX ? most : ROWS_MAX;
	return part->seq->parents || left < most ? left : (uint32_t)most;
}

static int slice_begin(struct sched *s, struct sched_lane *lane)
{
	struct passes *p = &s->passes;
	const struct step *step = &lane->step;
	const struct step_part *part = &step->parts[step->next_part];
	uint32_t n_pages = p->n_extents * extent_pages(s, step->model);
	int r = gather_begin(&p->gather, part->seq->store);

	if (r < 0)
		return r;
	uint32_t n_missing = p->gather.n_slices - p->gather.n_device;

	p->lane = lane;
	p->row = step->next_row;
	p->n_rows = rows_at_once(step->model, part, part->n_new - step->next_row);
	p->cell_pages = n_pages / PASSES_CELLS;
	p->n_staged = (n_missing + p->cell_pages - 1) / p->cell_pages;
	p->n_passes = (p->gather.n_device > 0) + p->n_staged + 1;
	if (!part->io.o) { /* who only appends sees nothing */
		p->n_staged = 0;
		p->n_passes = 1;
	}
	p->next = p->n_asked = p->n_asked_slices = 0;
	p->staged_tokens = p->gather.n_device_tokens;
	copies_ask(s);
	return 0;
}

bool passes_may(struct sched *s, const struct sched_lane *lane)
{
	return !s->passes.lane || (s->passes.lane == lane && next_is_ready(s));
}

static void lane_fail(struct sched *s, struct sched_lane *lane, int r)
{
	if (r == -EIO)
		sched_fail(s);
	step_fail(s, lane, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
}

void passes_begin(struct sched *s, struct sched_lane *lane)
{
	int r = s->passes.lane ? 0 : slice_begin(s, lane);

	if (r == 0 && !next_is_ready(s))
		return;
	if (r == 0)
		r = pass_submit(s);
	if (r < 0)
		lane_fail(s, lane, r);
	else
		s->passes.in_flight = true;
}

/* The step goes on with the next rows or part, or is done. */
static void slice_end(struct sched *s)
{
	struct passes *p = &s->passes;
	struct sched_lane *lane = p->lane;
	struct step *step = &lane->step;

	passes_forget(s, lane);
	s->stats.prefill_jobs++;
	step->next_row = p->row + p->n_rows;
	if (step->next_row < step->parts[step->next_part].n_new)
		return;
	step->next_row = 0;
	if (++step->next_part == step->n_parts)
		step_finish(s, lane);
}

bool passes_poll(struct sched *s)
{
	struct passes *p = &s->passes;
	uint64_t completed;

	if (!p->lane)
		return false;
	if (!p->in_flight) {
		copies_ask(s);
		return false;
	}
	if (s->ops->completed(s->backend, &completed) < 0) {
		sched_fail(s);
		passes_fail(s);
		return true;
	}
	if (completed < p->id)
		return false;
	s->now_ns = s->clock();
	s->stats.batches++;
	p->in_flight = false;
	p->n_done++;
	if (++p->next == p->n_passes)
		slice_end(s);
	else
		copies_ask(s);
	return true;
}

void passes_forget(struct sched *s, const struct sched_lane *lane)
{
	struct passes *p = &s->passes;

	if (p->lane != lane)
		return;
	gather_end(&p->gather);
	p->lane = NULL;
	p->in_flight = false;
}

void passes_fail(struct sched *s)
{
	if (s->passes.lane)
		step_fail(s, s->passes.lane, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

void passes_done(struct passes *p)
{
	gather_done(&p->gather);
	plan_list_done(&p->list);
	free(p->slices);
}
