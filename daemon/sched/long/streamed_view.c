/*
 * streamed_view.c - a leg as the backend is told of it: which of the members' rows see what.
 *
 * A view is one node of a tree, the leg's slices, and a query for each member that sees it; the
 * rest is a node for each member, of its tail and live tokens, which are appended. Pages of the
 * stage hold one layer: the view's shape has one then. A view's arrays stay what they are until the
 * backend has it.
 */
#include "streamed_impl.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"
#include "daemon/sched/run/job.h"

#include <stdlib.h>

static void node_begin(struct streamed_view *v, uint32_t pos)
{
	v->nodes[v->tree.n_nodes++] =
		(struct work_node){.parent = WORK_NONE, .pos = pos, .slice = v->tree.n_slices};
}

static void slice_add(struct streamed_view *v, struct store_slice slice)
{
	struct work_node *node = &v->nodes[v->tree.n_nodes - 1];

	v->slices[v->tree.n_slices++] = (struct work_slice){slice.page, slice.first, slice.count};
	node->n_slices++;
	node->n_tokens += slice.count;
}

static void query_add(struct streamed_view *v, const struct streamed_member *m, uint32_t node)
{
	v->io[v->tree.n_queries] = io_from_row(m->part->io, m->row);
	v->queries[v->tree.n_queries++] =
		(struct work_query){.node = node,
				    .pos = store_seq_n_tokens(m->part->seq->store) + m->row,
				    .n_rows = m->n_rows};
}

/* A run of slices, seen by one member or all. */
static void view_span(struct streamed *p, const struct streamed_leg *leg, struct streamed_view *v)
{
	const struct gather *g = streamed_gather(p, leg);
	bool all = leg->member == STREAMED_ALL;
	uint32_t first = p->first_extent * streamed_extent_pages(p) +
			 p->n_filled % p->n_cells * p->cell_pages;
	uint32_t page = first, pos = leg->pos;

	v->shape.n_layers = v->staged ? 1 : v->shape.n_layers;
	v->layer = v->staged ? 0 : v->layer;
	node_begin(v, leg->pos);
	for (uint32_t i = leg->begin; i < leg->end; i++) {
		struct store_slice slice = g->slices[i];

		/* What is not seen has not come, and has no page: any does. */
		if (v->staged)
			slice.page = choice_has(p, v->shape.n_kv_heads, pos) ? page++ : first;
		pos += slice.count;
		slice_add(v, slice);
	}
	for (uint32_t i = 0; all && i < p->n_members; i++)
		query_add(v, &p->members[i], 0);
	if (all)
		return;
	query_add(v, &p->members[leg->member], 0);
	v->first_row = p->members[leg->member].first_row;
}

/* Tokens [first, first + count) of a run of slices. */
static void cut_add(struct streamed_view *v, const struct store_slice *slices, uint32_t first,
		    uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);

		if (cut.count > 0)
			slice_add(v, cut);
	}
}

/* A member's tail and live tokens up to its last row, which are appended. Their slots stand behind
 * the node's slices. */
static void view_rest(struct streamed *p, const struct streamed_member *m, struct streamed_view *v)
{
	uint32_t n_slots, n_tail_slices, n_tail, n = v->tree.n_nodes;
	const struct store_slice *slots = store_seq_slots(m->part->seq->store, &n_slots);
	const struct store_slice *tail =
		store_seq_tail(m->part->seq->store, &n_tail_slices, &n_tail);

	node_begin(v, m->gather.n_tokens);
	for (uint32_t i = 0; i < n_tail_slices; i++)
		slice_add(v, tail[i]);
	cut_add(v, slots, 0, m->row + m->n_rows);
	query_add(v, m, n);
	v->queries[n].parents = m->part->seq->parents;
	struct work_node all = v->nodes[n];

	v->io[n].slots = v->slices + v->tree.n_slices;
	cut_add(v, slots, m->row, m->n_rows);
	v->io[n].n_slots = p->choice.appended ? 0 : v->nodes[n].n_slices - all.n_slices;
	v->nodes[n] = all;
}

static int view_reserve(struct streamed *p, const struct streamed_leg *leg, struct streamed_view *v)
{
	uint32_t n = leg->end - leg->begin;

	for (uint32_t i = 0; leg->kind == STREAMED_REST && i < p->n_members; i++) {
		uint32_t n_slots, n_tail_slices, n_tail;

		store_seq_slots(p->members[i].part->seq->store, &n_slots);
		store_seq_tail(p->members[i].part->seq->store, &n_tail_slices, &n_tail);
		n += n_tail_slices + 2 * n_slots + 2;
	}
	if (GROW_ZEROED(v->lists, v->lists_room, 1) < 0 ||
	    GROW(v->slices, v->slices_room, n + 1) < 0 ||
	    GROW(v->nodes, v->nodes_room, p->n_members) < 0 ||
	    GROW(v->queries, v->queries_room, p->n_members) < 0 ||
	    GROW(v->io, v->io_room, p->n_members) < 0)
		return -ENOMEM;
	return GROW(v->jobs, v->jobs_room, 1);
}

/* The view's tree, and a job of all heads. */
static int view_make(struct streamed *p, const struct streamed_leg *leg, struct streamed_view *v)
{
	int r = view_reserve(p, leg, v);

	if (r < 0)
		return r;
	v->staged = leg->kind == STREAMED_STAGED;
	v->shape = p->model->shape;
	v->layer = p->layer;
	v->first_row = 0;
	v->tree = (struct work_tree){.nodes = v->nodes, .slices = v->slices, .queries = v->queries};
	for (uint32_t i = 0; leg->kind == STREAMED_REST && i < p->n_members; i++)
		view_rest(p, &p->members[i], v);
	if (leg->kind != STREAMED_REST)
		view_span(p, leg, v);
	v->n_jobs = 1;
	v->jobs[0] = (struct backend_job){.shape = &v->shape,
					  .tree = &v->tree,
					  .list = &v->lists[0],
					  .io = v->io,
					  .layer = v->layer};
	return 0;
}

int streamed_append(struct streamed *p)
{
	const struct streamed_leg rest = {.kind = STREAMED_REST, .member = STREAMED_ALL};
	struct streamed_view *v = &p->views[0];
	struct plan_config config;
	int r = view_make(p, &rest, v);

	if (r < 0)
		return r;
	v->io[0].o = v->io[0].lse = 0;
	job_config(p->core, &v->shape, PLAN_AUTO, &config);
	r = plan_make(&config, &v->tree, &v->lists[0]);
	if (r == 0)
		r = p->core->ops->submit(p->core->backend, &(struct backend_batch){v->jobs, 1},
					 &v->id);
	return r ? r : choice_take_in(p, v);
}

/* What the leg seems to take is its members', what they read together in equal parts. */
static void charge(struct streamed *p, const struct streamed_leg *leg, struct streamed_view *v)
{
	bool all = leg->member == STREAMED_ALL;
	uint32_t n_readers = v->tree.n_queries / v->tree.n_nodes;

	v->ns = 0;
	for (uint32_t i = 0; i < v->tree.n_queries; i++) {
		const struct work_query *q = &v->tree.queries[i];
		double n_tokens = v->tree.nodes[q->node].n_tokens;
		double ns = work_ns(p->model, q->n_rows * n_tokens, n_tokens / n_readers);

		turn_take(p->core, p->members[all ? i : leg->member].lane,
			  streamed_charged_ns(p, ns));
		v->ns += ns;
	}
}

int streamed_submit(struct streamed *p)
{
	const struct streamed_leg *leg = &p->legs[p->n_begun];
	struct streamed_view *v = &p->views[p->n_begun % STREAMED_VIEWS];
	struct plan_config config;

	v->begun_ns = core_clock(p->core);
	int r = view_make(p, leg, v);

	if (r < 0)
		return r;
	job_config(p->core, &v->shape, PLAN_AUTO, &config);
	r = choice_jobs(p, leg, &config, v);
	if (r < 0)
		return r;
	struct backend_batch batch = {v->jobs, v->n_jobs};
	struct backend_leg of = {.first_row = v->first_row,
				 .n_rows = streamed_n_rows(p),
				 .first = p->n_begun == 0,
				 .last = p->n_begun + 1 == p->n_legs,
				 .rows_id = p->choice.made ? p->rows_id : 0};

	r = p->core->ops->tier->leg(p->core->backend, &batch, &of, &v->id);
	if (r < 0)
		return r;
	charge(p, leg, v);
	p->n_begun++;
	if (v->staged)
		p->users[p->n_filled++ % p->n_cells] = v->id;
	p->in_flight = true;
	return choice_take_in(p, v);
}

void streamed_views_done(struct streamed *p)
{
	for (uint32_t i = 0; i < STREAMED_VIEWS; i++) {
		struct streamed_view *v = &p->views[i];
		for (uint32_t j = 0; j < v->lists_room; j++)
			plan_list_done(&v->lists[j]);
		free(v->lists);
		free(v->jobs);
		free(v->nodes);
		free(v->queries);
		free(v->io);
		free(v->slices);
		free(v->path);
		free(v->kept);
	}
}
