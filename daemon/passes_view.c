/* passes_view.c - a pass as the backend is told of it: which of the members' rows see what. See passes.h. */
#include "passes_impl.h"

#include "grow.h"

/* What the backend is told of a pass. */
struct view {
	struct work_shape shape;
	struct work_tree tree;
	uint32_t layer;
	uint32_t first_row;
};

static void node_begin(struct passes *p, struct view *v, uint32_t pos)
{
	p->nodes[v->tree.n_nodes++] =
		(struct work_node){.parent = WORK_NONE, .pos = pos, .slice = v->tree.n_slices};
}

static void slice_add(struct passes *p, struct view *v, struct store_slice slice)
{
	struct work_node *node = &p->nodes[v->tree.n_nodes - 1];

	p->slices[v->tree.n_slices++] = (struct work_slice){slice.page, slice.first, slice.count};
	node->n_slices++;
	node->n_tokens += slice.count;
}

static void query_add(struct passes *p, struct view *v, const struct passes_member *m,
		      uint32_t node)
{
	struct backend_io io = m->part->io;
	uint64_t row = m->row;

	io.q += io.q ? row * io.q_stride : 0;
	io.k += row * io.k_stride;
	io.v += row * io.v_stride;
	io.o += io.o ? row * io.o_stride : 0;
	io.lse += io.lse ? row * io.lse_stride : 0;
	io.slots = NULL;
	io.n_slots = 0;
	p->io[v->tree.n_queries] = io;
	p->queries[v->tree.n_queries++] =
		(struct work_query){.node = node,
				    .pos = store_seq_n_tokens(m->part->seq->store) + m->row,
				    .n_rows = m->n_rows};
}

/* A run of slices, seen by one member or all. */
static void view_span(struct sched *s, const struct passes_pass *pass, struct view *v)
{
	struct passes *p = &s->passes;
	const struct gather *g = passes_gather(p, pass);
	bool all = pass->member == PASSES_ALL, staged = pass->kind == PASSES_STAGED;
	uint32_t page =
		p->first_extent * passes_extent_pages(s) + p->n_staged % p->n_cells * p->cell_pages;

	v->shape.n_layers = staged ? 1 : v->shape.n_layers;
	v->layer = staged ? 0 : v->layer;
	node_begin(p, v, pass->pos);
	for (uint32_t i = pass->begin; i < pass->end; i++) {
		struct store_slice slice = g->slices[i];

		slice.page = staged ? page++ : slice.page;
		slice_add(p, v, slice);
	}
	for (uint32_t i = 0; all && i < p->n_members; i++)
		query_add(p, v, &p->members[i], 0);
	if (all)
		return;
	query_add(p, v, &p->members[pass->member], 0);
	v->first_row = p->members[pass->member].first_row;
}

/* Tokens [first, first + count) of a run of slices. */
static void cut_add(struct passes *p, struct view *v, const struct store_slice *slices,
		    uint32_t first, uint32_t count)
{
	for (; count > 0; slices++) {
		if (first >= slices->count) {
			first -= slices->count;
			continue;
		}
		uint32_t n = slices->count - first < count ? slices->count - first : count;

		slice_add(p, v,
			  (struct store_slice){slices->page, (uint16_t)(slices->first + first),
					       (uint16_t)n});
		first = 0;
		count -= n;
	}
}

/* A member's tail and live tokens up to its last row, which are appended. Their slots stand behind the node's slices. */
static void view_rest(struct passes *p, const struct passes_member *m, struct view *v)
{
	uint32_t n_slots, n_tail_slices, n_tail, n = v->tree.n_nodes;
	const struct store_slice *slots = store_seq_slots(m->part->seq->store, &n_slots);
	const struct store_slice *tail =
		store_seq_tail(m->part->seq->store, &n_tail_slices, &n_tail);

	node_begin(p, v, m->gather.n_tokens);
	for (uint32_t i = 0; i < n_tail_slices; i++)
		slice_add(p, v, tail[i]);
	cut_add(p, v, slots, 0, m->row + m->n_rows);
	query_add(p, v, m, n);
	p->queries[n].parents = m->part->seq->parents;
	struct work_node all = p->nodes[n];

	p->io[n].slots = p->slices + v->tree.n_slices;
	cut_add(p, v, slots, m->row, m->n_rows);
	p->io[n].n_slots = p->nodes[n].n_slices - all.n_slices;
	p->nodes[n] = all;
}

static int pass_reserve(struct passes *p, const struct passes_pass *pass)
{
	uint32_t n = pass->end - pass->begin, room = p->queries_room;
	uint32_t rooms[3] = {room, room, room};

	for (uint32_t i = 0; pass->kind == PASSES_REST && i < p->n_members; i++) {
		uint32_t n_slots, n_tail_slices, n_tail;

		store_seq_slots(p->members[i].part->seq->store, &n_slots);
		store_seq_tail(p->members[i].part->seq->store, &n_tail_slices, &n_tail);
		n += n_tail_slices + 2 * n_slots + 2;
	}
	int r = GROW(p->slices, p->slices_room, n + 1);

	if (r == 0)
		r = GROW(p->nodes, rooms[0], p->n_members);
	if (r == 0)
		r = GROW(p->queries, rooms[1], p->n_members);
	if (r == 0)
		r = GROW(p->io, rooms[2], p->n_members);
	if (r == 0)
		p->queries_room = rooms[0];
	return r;
}

static int view_plan(struct sched *s, struct view *v)
{
	struct passes *p = &s->passes;
	uint32_t n_threads = s->config->n_threads ? s->config->n_threads : s->n_cores;
	uint32_t n_heads = v->shape.n_kv_heads;
	struct plan_config config;

	v->tree.nodes = p->nodes;
	v->tree.slices = p->slices;
	v->tree.queries = p->queries;
	plan_config_init(&config, PLAN_AUTO, &v->shape, (n_threads + n_heads - 1) / n_heads);
	config.tile_rows = s->ops->tile_rows(s->backend, &v->shape);
	return plan_make(&config, &v->tree, &p->list);
}

int passes_submit(struct sched *s)
{
	struct passes *p = &s->passes;
	const struct passes_pass *pass = &p->passes[p->next];
	struct view v = {.shape = p->model->shape, .layer = p->layer};
	int r = pass_reserve(p, pass);

	if (r < 0)
		return r;
	for (uint32_t i = 0; pass->kind == PASSES_REST && i < p->n_members; i++)
		view_rest(p, &p->members[i], &v);
	if (pass->kind != PASSES_REST)
		view_span(s, pass, &v);
	r = view_plan(s, &v);
	if (r < 0)
		return r;
	struct backend_job job = {.shape = &v.shape,
				  .tree = &v.tree,
				  .list = &p->list,
				  .io = p->io,
				  .layer = v.layer};
	struct backend_pass of = {.first_row = v.first_row,
				  .n_rows = passes_n_rows(p),
				  .first = p->next == 0,
				  .last = pass->kind == PASSES_REST};

	return s->ops->tier->pass(s->backend, &job, &of, &p->id);
}
