/*
 * grove.c - nodes get slices of pages one after the other, queries and drafts hang at them; numbers
 * are drawn by COPPICE_SEED.
 */
#include "grove.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static uint64_t random_state;

void grove_seed(void)
{
	const char *seed = getenv("COPPICE_SEED");

	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("COPPICE_SEED=%llu\n", (unsigned long long)random_state);
	random_state = random_state * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

uint32_t grove_below(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16) % below;
}

struct grove *grove_new(uint32_t page_tokens)
{
	struct grove *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->page_tokens = page_tokens;
	g->tree = (struct work_tree){.nodes = g->nodes, .slices = g->slices, .queries = g->queries};
	return g;
}

static uint32_t node_end(const struct grove *g, uint32_t node)
{
	return g->nodes[node].pos + g->nodes[node].n_tokens;
}

uint32_t grove_root(struct grove *g, uint32_t pos, uint32_t n_tokens)
{
	struct work_node *node = &g->nodes[g->tree.n_nodes];
	uint32_t end = pos + n_tokens;

	assert_true(g->tree.n_nodes < GROVE_NODES);
	*node = (struct work_node){WORK_NONE, pos, n_tokens, g->tree.n_slices, 0};
	for (uint32_t count; pos < end; pos += count) {
		uint32_t first = pos % g->page_tokens, page_left = g->page_tokens - first;

		assert_true(g->tree.n_slices < GROVE_SLICES);
		count = page_left < end - pos ? page_left : end - pos;
		g->slices[g->tree.n_slices++] = (struct work_slice){.page = g->n_pages++,
								    .first = (uint16_t)first,
								    .count = (uint16_t)count};
	}
	node->n_slices = g->tree.n_slices - node->slice;
	return g->tree.n_nodes++;
}

uint32_t grove_child(struct grove *g, uint32_t parent, uint32_t n_tokens)
{
	uint32_t node = grove_root(g, node_end(g, parent), n_tokens);

	g->nodes[node].parent = parent;
	return node;
}

struct work_query *grove_query(struct grove *g, uint32_t node, uint32_t n_rows)
{
	struct work_query *query = &g->queries[g->tree.n_queries++];

	assert_true(g->tree.n_queries <= GROVE_QUERIES);
	*query = (struct work_query){.node = node,
				     .pos = node_end(g, node) - n_rows,
				     .n_rows = n_rows};
	return query;
}

void grove_draft(struct grove *g, uint32_t node, uint32_t n_rows)
{
	struct work_query *query = grove_query(g, node, n_rows);

	assert_true(g->n_parents + n_rows <= GROVE_PARENTS);
	query->parents = &g->parents[g->n_parents];
	for (uint32_t i = 0; i < n_rows; i++)
		g->parents[g->n_parents++] = i && grove_below(5) ? grove_below(i) : WORK_NONE;
	if (grove_below(2))
		query->n_before = grove_below(n_rows);
	query->n_rows -= query->n_before;
	query->pos += query->n_before;
}

struct plan_config grove_config(enum plan_policy policy)
{
	struct work_shape shape = {
		.n_layers = 1, .n_q_heads = 8, .n_kv_heads = 8, .head_dim = 64, .page_tokens = 32};
	struct plan_config config;

	plan_config_init(&config, policy, &shape, 1);
	return config;
}

struct plan_config grove_config_way(uint32_t way)
{
	struct plan_config config = grove_config(PLAN_AUTO);

	assert_int_equal(plan_policy_parse(plan_ways[way], &config), 0);
	return config;
}

void grove_check(const struct grove *g, const struct work_list *list)
{
	char error[256] = "";
	int r = plan_list_check(&g->tree, list, error, sizeof(error));

	if (r)
		print_error("%s\n", error);
	assert_int_equal(r, 0);
}

void grove_plan(const struct grove *g, const struct plan_config *config, struct work_list *list)
{
	assert_int_equal(plan_make(config, &g->tree, list), 0);
	grove_check(g, list);
}

struct grove *grove_fan(uint32_t n_prefix, uint32_t n_queries, uint32_t n_own)
{
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, n_prefix);

	for (uint32_t i = 0; i < n_queries; i++)
		grove_query(g, grove_child(g, root, n_own), 1);
	return g;
}
