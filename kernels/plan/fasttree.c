/*
 * fasttree.c - the published greedy walk: each child's rows stay in their parent's group or
 * leave it, whichever the cost of the two groups says is less. See fasttree.h for the cost and
 * where it comes from.
 */
#include "fasttree.h"
#include "proto/arith.h"

#include <errno.h>

#define TILE_TOKENS 32u
#define NARROW 4u /* wide tiles have so many times the rows of narrow ones */
#define SHORT_CHUNK 8u /* and long chunks so many times the tokens of short ones */
#define NARROW_SHARE 4u /* the narrow phase wants so many items per unit before it splits less */

enum memory { TAKEN, GROUPS, CHOICE };
enum phase { WIDE, THIN };

/* What the greedy walk decides under. */
struct choice {
	struct fasttree_tiles tiles;
	uint32_t chunk_tokens[2]; /* by phase */
};

void fasttree_tiles_init(struct fasttree_tiles *tiles, const struct plan_config *config)
{
	uint32_t wide = config->tile_rows / config->group_heads;

	tiles->rows[WIDE] = wide ? wide : 1;
	tiles->rows[THIN] = wide / NARROW ? wide / NARROW : 1;
	tiles->tokens[WIDE] = tiles->tokens[THIN] = TILE_TOKENS;
}

static enum phase phase_of(const struct fasttree_tiles *tiles, uint32_t n_rows)
{
	return n_rows > tiles->rows[THIN] ? WIDE : THIN;
}

double fasttree_cost(const struct plan_config *config, const struct fasttree_tiles *tiles,
		     uint32_t n_rows, uint32_t n_tokens)
{
	enum phase phase = phase_of(tiles, n_rows);
	uint32_t over = n_rows % tiles->rows[phase], tile_tokens = tiles->tokens[phase];
	double pad_rows = over ? tiles->rows[phase] - over : 0;
	double pad_tokens = n_tokens < tile_tokens ? tile_tokens - n_tokens : 0;

	return config->group_heads * (config->fasttree.alpha * pad_rows * n_tokens +
				      config->fasttree.beta * pad_tokens * n_rows);
}

bool fasttree_together(const struct plan_config *config, const struct fasttree_tiles *tiles,
		       struct fasttree_group parent, struct fasttree_group child)
{
	uint32_t rows_left = parent.n_rows - child.n_rows;
	uint32_t both_tokens = parent.n_tokens + child.n_tokens;
	double apart = fasttree_cost(config, tiles, parent.n_rows, parent.n_tokens) +
		       fasttree_cost(config, tiles, child.n_rows, child.n_tokens) +
		       config->fasttree.gamma * child.n_rows;
	double together = fasttree_cost(config, tiles, rows_left, parent.n_tokens) +
			  fasttree_cost(config, tiles, child.n_rows, both_tokens);

	return apart > together;
}

/* Parents come before their children, so a parent's context is settled when its children ask. */
static void choose_edges(const struct build *build, const struct choice *choice, bool *taken,
			 struct fasttree_group *groups)
{
	for (uint32_t i = 0; i < build->tree->n_nodes; i++) {
		const struct work_node *node = &build->tree->nodes[i];
		struct fasttree_group *group = &groups[i], *up;

		*group = (struct fasttree_group){build->order->nodes[i].row_end, node->n_tokens};
		taken[i] = false;
		if (node->parent == WORK_NONE || !group->n_rows)
			continue;
		up = &groups[node->parent];
		taken[i] = fasttree_together(build->config, &choice->tiles, *up, *group);
		if (taken[i]) {
			up->n_rows -= group->n_rows;
			group->n_tokens += up->n_tokens;
		}
	}
}

static void count_items(const struct build *build, const struct choice *choice,
			const struct fasttree_group *groups, uint64_t n_items[2])
{
	n_items[WIDE] = n_items[THIN] = 0;
	for (uint32_t i = 0; i < build->tree->n_nodes; i++) {
		enum phase phase = phase_of(&choice->tiles, groups[i].n_rows);
		uint32_t rows = choice->tiles.rows[phase], tokens = choice->chunk_tokens[phase];

		n_items[phase] += ceil_div_u64(groups[i].n_rows, rows) *
				  ceil_div_u64(groups[i].n_tokens, tokens);
	}
}

static bool too_few(uint64_t n_items, uint32_t n_wanted)
{
	return n_items && n_items < n_wanted;
}

static bool shorten_chunks(struct choice *choice, const uint64_t n_items[2], uint32_t n_units)
{
	bool wide = too_few(n_items[WIDE], n_units);
	bool thin = too_few(n_items[THIN], NARROW_SHARE * n_units);
	uint32_t chunk = choice->chunk_tokens[WIDE] / SHORT_CHUNK;

	if (!chunk)
		chunk = 1;
	if (wide)
		choice->chunk_tokens[WIDE] = chunk;
	if (thin)
		choice->chunk_tokens[THIN] = chunk;
	return wide || thin;
}

static bool unite_phases(struct choice *choice, const uint64_t n_items[2], uint32_t n_units)
{
	enum phase from;

	if (too_few(n_items[WIDE], n_units))
		from = THIN;
	else if (too_few(n_items[THIN], n_units))
		from = WIDE;
	else
		return false;
	for (int i = 0; i < 2; i++) {
		choice->tiles.rows[i] = choice->tiles.rows[from];
		choice->tiles.tokens[i] = choice->tiles.tokens[from];
	}
	return true;
}

int fasttree_choose(struct build *build, const bool **ret)
{
	const struct plan_config *config = build->config;
	uint32_t n_nodes = build->tree->n_nodes;
	bool *taken = build_room(build, TAKEN, n_nodes, sizeof(*taken));
	struct fasttree_group *groups = build_room(build, GROUPS, n_nodes, sizeof(*groups));
	struct choice *choice = build_room(build, CHOICE, 1, sizeof(*choice));
	uint64_t n_items[2];

	if (!taken || !groups || !choice)
		return -ENOMEM;
	if (!config->chunk_tokens)
		return -EINVAL;
	fasttree_tiles_init(&choice->tiles, config);
	choice->chunk_tokens[WIDE] = choice->chunk_tokens[THIN] = config->chunk_tokens;
	choose_edges(build, choice, taken, groups);
	count_items(build, choice, groups, n_items);
	if (shorten_chunks(choice, n_items, config->n_units)) {
		count_items(build, choice, groups, n_items);
		if (unite_phases(choice, n_items, config->n_units))
			choose_edges(build, choice, taken, groups);
	}
	*ret = taken;
	return 0;
}

/* Of the context that the node's group meets, what lies in span (positions), which does not go
 * beyond the node: ancestors first. */
static void plan_context(struct build *build, const bool *taken, uint32_t node,
			 struct order_rows span, struct order_rows rows)
{
	const struct work_node *at = &build->tree->nodes[node];
	uint32_t from = max_u32(span.begin, at->pos);

	if (taken[node] && span.begin < at->pos)
		plan_context(build, taken, at->parent,
			     (struct order_rows){span.begin, min_u32(span.end, at->pos)}, rows);
	build_tokens(build, node, from, span.end, rows);
}

/* All of a node's group: rows in tiles, its context [from, to) in chunks. */
static void plan_group(struct build *build, const bool *taken, uint32_t node, uint32_t from,
		       const struct fasttree_group *group)
{
	const struct choice *choice = build->scratch->memory[PLAN_POLICY + CHOICE].data;
	const struct order_node *at = &build->order->nodes[node];
	enum phase phase = phase_of(&choice->tiles, group->n_rows);
	uint32_t n_rows = choice->tiles.rows[phase], chunk = choice->chunk_tokens[phase];
	uint32_t row_end = at->row_begin + group->n_rows, next;

	for (uint32_t pos = from; pos < at->seen_end; pos = next) {
		next = at->seen_end - pos > chunk ? pos + chunk : at->seen_end;
		for (uint32_t row = at->row_begin; row < row_end; row += n_rows) {
			struct order_rows rows = {row,
						  row_end - row > n_rows ? row + n_rows : row_end};

			build_item(build);
			plan_context(build, taken, node, (struct order_rows){pos, next}, rows);
			build_item_end(build);
		}
	}
}

int fasttree_plan(struct build *build)
{
	const bool *taken = build->scratch->memory[PLAN_POLICY + TAKEN].data;
	const struct fasttree_group *groups = build->scratch->memory[PLAN_POLICY + GROUPS].data;

	for (uint32_t i = 0; i < build->tree->n_nodes; i++) {
		const struct work_node *node = &build->tree->nodes[i];
		uint32_t context = groups[i].n_tokens;

		if (groups[i].n_rows)
			plan_group(build, taken, i, node->pos + node->n_tokens - context,
				   &groups[i]);
	}
	return 0;
}
