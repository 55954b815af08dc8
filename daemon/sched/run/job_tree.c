/*
 * job_tree.c - the tree of a job's paths.
 *
 * A tree has borders only where its own paths part or end, whoever else leaves them where: a run of
 * the store's nodes between two borders is one node, parents first, and behind the paths is a node
 * of live tokens for each query. So what is planned grows with pages and queries, not with what
 * others did to a path. The store's nodes are stamped while a tree is made, or paths are counted.
 */
#include "job_tree.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"
#include "daemon/sched/core/turns.h"

#include <errno.h>
#include <string.h>

static_assert(sizeof(struct store_slice) == sizeof(struct work_slice), "one struct, two borders");

/* A node's stamp is the tree's number and the index of the node there that ends with it; numbers
 * last for years, and nodes are born with none. */
#define INDEX_BITS 24
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)
/* Instead of an index: no path parts or ends at the node's end; one does, and the index follows. */
#define NO_BORDER INDEX_MASK
#define SOME_BORDER 0u

static int add_slice(struct plan *plan, const struct store_slice *slice)
{
	if (GROW(plan->slices, plan->slices_room, plan->tree.n_slices + 1) < 0)
		return -ENOMEM;
	plan->slices[plan->tree.n_slices++] =
		(struct work_slice){slice->page, slice->first, slice->count};
	return 0;
}

static int add_slices(struct plan *plan, const struct store_slice *slices, uint32_t n)
{
	if (GROW(plan->slices, plan->slices_room, plan->tree.n_slices + n) < 0)
		return -ENOMEM;
	memcpy(plan->slices + plan->tree.n_slices, slices, n * sizeof(*slices));
	plan->tree.n_slices += n;
	return 0;
}

int tree_add_tokens(struct plan *plan, const struct store_slice *slices, uint32_t first,
		    uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);

		if (cut.count > 0 && add_slice(plan, &cut) < 0)
			return -ENOMEM;
	}
	return 0;
}

int tree_add_each_token(struct plan *plan, const struct store_slice *slices, uint32_t first,
			uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);
		struct store_slice token = {cut.page, cut.first, 1};

		for (; token.first < cut.first + cut.count; token.first++) {
			if (add_slice(plan, &token) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* Does the tree being made have the node already? */
static bool is_in_tree(const struct plans *p, struct store_node *node)
{
	return *store_node_scratch(node) >> INDEX_BITS == p->n_trees;
}

static uint32_t index_of(struct store_node *node)
{
	return store_node_parent(node) ? *store_node_scratch(node) & INDEX_MASK : WORK_NONE;
}

static void set_index(const struct plans *p, struct store_node *node, uint32_t index)
{
	*store_node_scratch(node) = p->n_trees << INDEX_BITS | index;
}

static int end_path(struct plans *p)
{
	if (GROW(p->ends, p->ends_room, p->n_ends + 1) < 0)
		return -ENOMEM;
	p->ends[p->n_ends++] = p->n_path;
	return 0;
}

/* What the path adds to those before it. Roots are empty: left out. */
static int find_path(struct plans *p, const struct sched_seq *seq)
{
	struct store_node *leaf = store_seq_node(seq->store), *node = leaf;

	for (; store_node_parent(node) && !is_in_tree(p, node); node = store_node_parent(node)) {
		if (GROW(p->path, p->path_room, p->n_path + 1) < 0)
			return -ENOMEM;
		p->path[p->n_path++] = node;
		set_index(p, node, NO_BORDER);
	}
	set_index(p, node, SOME_BORDER);
	set_index(p, leaf, SOME_BORDER);
	return end_path(p);
}

/* Who only appends sees nothing of it. */
static int find_path_of(struct plans *p, const struct step_part *part)
{
	return part_only_appends(part) ? end_path(p) : find_path(p, part->seq);
}

static int open_node(struct plan *plan, uint32_t parent, uint32_t pos)
{
	uint32_t n = plan->tree.n_nodes;

	if (n == NO_BORDER || GROW(plan->nodes, plan->nodes_room, n + 1) < 0)
		return -ENOMEM;
	plan->nodes[n] =
		(struct work_node){.parent = parent, .pos = pos, .slice = plan->tree.n_slices};
	plan->tree.n_nodes++;
	return 0;
}

/* Behind the last node's. Slices of a page that follow each other are one. */
static int join_slice(struct plan *plan, const struct store_slice *slice)
{
	struct work_node *node = &plan->nodes[plan->tree.n_nodes - 1];
	struct work_slice *last = node->n_slices ? &plan->slices[plan->tree.n_slices - 1] : NULL;

	node->n_tokens += slice->count;
	if (last && last->page == slice->page && last->first + last->count == slice->first) {
		last->count += slice->count;
		return 0;
	}
	node->n_slices++;
	return add_slice(plan, slice);
}

/* The first of its slices may go on in the last one's page; none of the others does. */
static int join_node(struct plan *plan, const struct store_node *node)
{
	uint32_t n;
	const struct store_slice *slices = store_node_slices(node, &n);
	int r = join_slice(plan, &slices[0]);

	if (r == 0 && n > 1)
		r = add_slices(plan, slices + 1, n - 1);
	if (r < 0)
		return r;
	struct work_node *to = &plan->nodes[plan->tree.n_nodes - 1];

	to->n_tokens += store_node_n_tokens(node) - slices[0].count;
	to->n_slices += n - 1;
	return 0;
}

/* Of the next query, from the root down. Behind a border begins a node. */
static int add_path(const struct plans *p, struct plan *plan)
{
	uint32_t q = plan->tree.n_queries, end = q ? p->ends[q - 1] : 0;
	bool begins = true;

	for (uint32_t i = p->ends[q]; i-- > end;) {
		struct store_node *node = p->path[i];

		if (begins &&
		    open_node(plan, index_of(store_node_parent(node)), store_node_pos(node)) < 0)
			return -ENOMEM;
		if (join_node(plan, node) < 0)
			return -ENOMEM;
		begins = index_of(node) != NO_BORDER;
		if (begins)
			set_index(p, node, plan->tree.n_nodes - 1);
	}
	return 0;
}

/* What the rows see: the sequence's path, and what is live up to the last of them. */
static int add_seen(const struct plans *p, struct plan *plan, const struct part_rows *rows,
		    struct work_query *query)
{
	const struct sched_seq *seq = rows->part->seq;
	struct store_seq_view view = store_seq_view(seq->store);

	if (add_path(p, plan) < 0 ||
	    open_node(plan, index_of(store_seq_node(seq->store)), view.n_tokens) < 0 ||
	    tree_add_tokens(plan, view.slots, 0, rows->row + rows->n_rows) < 0)
		return -ENOMEM;
	struct work_node *node = &plan->nodes[plan->tree.n_nodes - 1];

	node->n_tokens = rows->row + rows->n_rows;
	node->n_slices = plan->tree.n_slices - node->slice;
	query->node = plan->tree.n_nodes - 1;
	query->parents = seq->parents;
	query->n_before = seq->parents ? rows->row : 0;
	return 0;
}

/* Rows of a part, at the end of the sequence's path. */
static int add_query(const struct plans *p, struct plan *plan, const struct part_rows *rows)
{
	uint32_t q = plan->tree.n_queries;

	if (GROW(plan->queries, plan->queries_room, q + 1) < 0)
		return -ENOMEM;
	plan->queries[q] =
		(struct work_query){.node = WORK_NONE,
				    .pos = store_seq_n_tokens(rows->part->seq->store) + rows->row,
				    .n_rows = rows->n_rows};
	if (!part_only_appends(rows->part) && add_seen(p, plan, rows, &plan->queries[q]) < 0)
		return -ENOMEM;
	plan->tree.n_queries++;
	return 0;
}

static void begin_tree(struct plans *p, struct plan *plan, const struct batch_job *job)
{
	p->n_trees++;
	p->n_path = p->n_ends = 0;
	plan->model = job->model;
	plan->config = job->config;
	plan->tree = (struct work_tree){0};
	plan->replaces = plan->id;
	plan->id = 0;
	plan->n_planned = 0;
	plan->advanced = plan->ends_soon = plan->foreseen = false;
}

void tree_lend(struct plan *plan)
{
	plan->tree.nodes = plan->nodes;
	plan->tree.slices = plan->slices;
	plan->tree.queries = plan->queries;
}

/* The part's rows; or of them the last, as if it came alone. */
static struct part_rows rows_of(const struct step_part *part, bool last)
{
	uint32_t row = part->first_row;

	return last ? (struct part_rows){part, row + part->n_new - 1, 1}
		    : (struct part_rows){part, row, part->n_new};
}

static int make_tree(struct plans *p, struct plan *plan, const struct batch_job *job, bool last)
{
	begin_tree(p, plan, job);
	if (GROW(plan->planned, plan->planned_room, job->n_parts) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->n_parts; i++)
		if (job->parts[i]->n_new && find_path_of(p, job->parts[i]) < 0)
			return -ENOMEM;
	for (uint32_t i = 0; i < job->n_parts; i++) {
		const struct part_rows rows = rows_of(job->parts[i], last);
		struct plan_query *planned = &plan->planned[plan->tree.n_queries];

		if (job->parts[i]->n_new == 0)
			continue;
		if (add_query(p, plan, &rows) < 0)
			return -ENOMEM;
		*planned = job->queries[i];
		planned->n_tokens += rows.row - job->parts[i]->first_row;
		planned->n_new = rows.n_rows;
	}
	tree_lend(plan);
	plan->id = ++p->cache.last_id;
	plan->n_planned = plan->tree.n_queries;
	return 0;
}

int tree_make(struct plans *p, struct plan *plan, const struct batch_job *job)
{
	return make_tree(p, plan, job, false);
}

int tree_make_of_last(struct plans *p, struct plan *plan, const struct batch_job *job)
{
	return make_tree(p, plan, job, true);
}

/* A node of its own for so many tokens. */
static int add_leaf(struct plan *plan, uint32_t parent, uint32_t pos,
		    const struct store_slice *slots, uint32_t n_slots)
{
	int r = open_node(plan, parent, pos);

	for (uint32_t i = 0; i < n_slots && r == 0; i++)
		r = join_slice(plan, &slots[i]);
	return r;
}

/* Behind what is live, which is nobody's row any more. */
static int add_next_query(const struct plans *p, struct plan *plan, const struct next_job *next,
			  uint32_t q)
{
	const struct next_rows *rows = &next->rows[q];
	struct store_seq_view view = store_seq_view(rows->seq->store);
	uint32_t pos = view.n_tokens + view.n_live, parent;
	int r = add_path(p, plan);

	parent = index_of(store_seq_node(rows->seq->store));
	if (r == 0 && view.n_live > 0) {
		r = add_leaf(plan, parent, view.n_tokens, view.slots, view.n_slots);
		parent = plan->tree.n_nodes - 1;
	}
	if (r == 0)
		r = add_leaf(plan, parent, pos, next->slots + rows->first_slot, rows->n_slots);
	plan->queries[q] = (struct work_query){.node = plan->tree.n_nodes - 1,
					       .pos = pos,
					       .n_rows = rows->n_rows};
	plan->planned[q] = (struct plan_query){.handle = rows->seq->handle,
					       .path_version = view.path_version,
					       .n_tokens = pos,
					       .n_new = rows->n_rows};
	plan->tree.n_queries++;
	return r;
}

int tree_make_next(struct plans *p, struct plan *plan, const struct batch_job *job,
		   const struct next_job *next)
{
	int r = 0;

	begin_tree(p, plan, job);
	if (GROW(plan->planned, plan->planned_room, next->n_rows) < 0 ||
	    GROW(plan->queries, plan->queries_room, next->n_rows) < 0)
		return -ENOMEM;
	for (uint32_t q = 0; q < next->n_rows && r == 0; q++)
		r = find_path(p, next->rows[q].seq);
	for (uint32_t q = 0; q < next->n_rows && r == 0; q++)
		r = add_next_query(p, plan, next, q);
	tree_lend(plan);
	plan->id = ++p->cache.last_id;
	plan->n_planned = r == 0 ? plan->tree.n_queries : 0;
	plan->foreseen = true;
	return r;
}

int tree_make_slice(struct plans *p, struct plan *plan, const struct batch_job *job,
		    const struct slice *slice)
{
	int r = 0;

	begin_tree(p, plan, job);
	for (uint32_t i = 0; i < slice->n && r == 0; i++)
		r = find_path_of(p, slice->rows[i].part);
	for (uint32_t i = 0; i < slice->n && r == 0; i++)
		r = add_query(p, plan, &slice->rows[i]);
	return r;
}

/* ---- what paths have in common -------------------------------------------------------------- */

/* Beyond so many nodes it is not looked at. */
static struct path_added walk_new(uint64_t paths, const struct sched_seq *seq, uint32_t most_nodes,
				  bool add)
{
	struct store_node *node = store_seq_node(seq->store);
	struct path_added added = {0};

	for (; store_node_parent(node) && *store_node_scratch(node) >> INDEX_BITS != paths &&
	       added.n_nodes <= most_nodes;
	     node = store_node_parent(node)) {
		added.n_tokens += store_node_n_tokens(node);
		added.n_nodes++;
		if (add)
			*store_node_scratch(node) = paths << INDEX_BITS;
	}
	return added;
}

struct path_added paths_add(uint64_t paths, const struct sched_seq *seq)
{
	return walk_new(paths, seq, UINT32_MAX, true);
}

struct path_added paths_look(uint64_t paths, const struct sched_seq *seq, uint32_t most_nodes)
{
	return walk_new(paths, seq, most_nodes, false);
}

double part_path_ns(uint64_t paths, const struct sched_model *model, const struct step_part *part)
{
	struct path_added added;

	if (!part->n_seen)
		return 0;
	added = paths_add(paths, part->seq);
	return path_ns(model, added.n_tokens + part->n_new, added.n_nodes);
}
