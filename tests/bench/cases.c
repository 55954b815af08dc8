/*
 * cases.c - entries of a file become trees, and so do the built-in ones, which stand here in a
 * table, and random ones, cut down to the memory there is.
 */
#include "cases.h"

#ifdef BENCH_HAVE_KERNELS
#include "../unit/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 128u
#define RANDOM_NODES_MAX 8192u
#define RANDOM_SEQUENCES 193u /* wanted at most: a last node brings 63 more */
#define RANDOM_BYTES_MAX (UINT64_C(256) << 20) /* of K and V, of a tree drawn anew */

static struct work_shape shape_make(uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim,
				    const struct case_options *o)
{
	q_heads = o->q_heads ? o->q_heads : q_heads;
	kv_heads = o->kv_heads ? o->kv_heads : kv_heads;
	head_dim = o->head_dim ? o->head_dim : head_dim;
	return (struct work_shape){1,
				   q_heads,
				   kv_heads,
				   head_dim,
				   o->page_tokens,
				   o->dtype,
				   1 / sqrtf((float)head_dim)};
}

/* A context of which the last tokens are one query's. */
static int set_chunk(struct workload_spec *spec, uint32_t n_new, uint32_t total)
{
	uint32_t nodes[] = {1, 1}, tokens[] = {total - n_new, n_new};
	bool whole = total == n_new;
	int r = workload_spec_levels(spec, nodes, tokens + whole, whole ? 1 : 2);

	spec->n_new = n_new;
	return r;
}

bool case_wanted(struct case_filter *filter, const char *name)
{
	bool wanted = !filter->part || strstr(name, filter->part);

	filter->n_found += wanted;
	return wanted;
}

/* ---- of a file ------------------------------------------------------------------------------ */

static uint32_t read_array(const json_t *array, uint32_t *to)
{
	size_t n = json_array_size(array);

	if (n > LEVELS_MAX)
		return 0;
	for (size_t i = 0; i < n; i++) {
		json_int_t value = json_integer_value(json_array_get(array, i));

		if (value < 1 || value > UINT32_MAX)
			return 0;
		to[i] = (uint32_t)value;
	}
	return (uint32_t)n;
}

static uint32_t read_number(const json_t *entry, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(entry, key));
}

static int read_chunk(const json_t *entry, struct workload_spec *spec)
{
	uint32_t n_new = read_number(entry, "new_tokens"),
		 total = read_number(entry, "total_tokens");

	if (!n_new || total < n_new)
		return -EINVAL;
	snprintf(spec->name, sizeof(spec->name), "prefill_%u_of_%u_q%uk%u", n_new, total,
		 spec->shape.n_q_heads, spec->shape.n_kv_heads);
	return set_chunk(spec, n_new, total);
}

static int read_levels(const json_t *entry, struct workload_spec *spec)
{
	const char *name = json_string_value(json_object_get(entry, "name"));
	uint32_t nodes[LEVELS_MAX], tokens[LEVELS_MAX];
	uint32_t n = read_array(json_object_get(entry, "nodes"), nodes),
		 n_new = read_number(entry, "new_tokens");
	int r;

	if (!name || n == 0 || read_array(json_object_get(entry, "lengths"), tokens) != n)
		return -EINVAL;
	snprintf(spec->name, sizeof(spec->name), "%s", name);
	r = workload_spec_levels(spec, nodes, tokens, n);
	if (n_new)
		spec->n_new = n_new;
	return r ? r : spec->n_new > tokens[n - 1] ? -EINVAL : 0;
}

static uint32_t add_node(struct workload_spec *spec, uint32_t parent, uint32_t n_tokens)
{
	spec->parents[spec->n_nodes] = parent;
	spec->tokens[spec->n_nodes] = n_tokens;
	return spec->n_nodes++;
}

/* A prompt's next rows behind tokens of its own, beside what is there: two more nodes. */
static int add_prompt(struct workload_spec *spec, uint32_t before, uint32_t n_new)
{
	size_t n = (size_t)spec->n_nodes + 2;
	uint32_t *parents = realloc(spec->parents, n * sizeof(*parents));
	uint32_t *tokens = parents ? realloc(spec->tokens, n * sizeof(*tokens)) : NULL;

	spec->parents = parents ? parents : spec->parents;
	spec->tokens = tokens ? tokens : spec->tokens;
	if (!parents || !tokens)
		return -ENOMEM;
	spec->last_new = n_new;
	add_node(spec, WORK_NONE, before);
	add_node(spec, spec->n_nodes - 1, n_new);
	return 0;
}

static int read_beside(const json_t *entry, struct workload_spec *spec)
{
	const json_t *prompt = json_object_get(entry, "beside");
	uint32_t before = read_number(prompt, "before"), n_new = read_number(prompt, "new_tokens");

	if (!prompt)
		return 0;
	return before && n_new ? add_prompt(spec, before, n_new) : -EINVAL;
}

int case_read(const json_t *entry, const struct case_options *o, struct workload_spec *ret)
{
	uint32_t dim = read_number(entry, "head_dim"), q = read_number(entry, "q_heads"),
		 kv = read_number(entry, "kv_heads");

	*ret = (struct workload_spec){.shape = shape_make(q, kv, dim, o)};
	if (!dim || !q || !kv)
		return -EINVAL;
	int r = json_object_get(entry, "nodes") ? read_levels(entry, ret) : read_chunk(entry, ret);

	return r ? r : read_beside(entry, ret);
}

/* ---- built in ------------------------------------------------------------------------------- */

/* CASE_COMB: a chain of nodes with a leaf at each. */
enum case_kind { CASE_LEVELS, CASE_COMB, CASE_RANDOM, CASE_CHUNK, CASE_DRAFTS };

struct built_in {
	const char *name;
	enum case_kind kind;
	uint32_t q_heads, kv_heads, head_dim;
	uint32_t nodes[2]; /* CASE_LEVELS; CASE_COMB: of the chain */
	uint32_t tokens[2]; /* of the nodes; CASE_CHUNK, CASE_DRAFTS: before and new ones */
	/* CASE_RANDOM: a node has up to 2^tokens_log2 tokens */
	uint32_t n_roots, n_leaves, tokens_log2, seed;
};

static const struct built_in built_ins[] = {
	{"random1_q32k8", CASE_RANDOM, 32, 8, 128, {0}, {0}, 1, 256, 9, 1},
	{"random2_q32k8", CASE_RANDOM, 32, 8, 128, {0}, {0}, 1, 64, 13, 2},
	{"random3_q32k8", CASE_RANDOM, 32, 8, 128, {0}, {0}, 1, 1024, 8, 3},
	{"random1_q32k32", CASE_RANDOM, 32, 32, 128, {0}, {0}, 1, 256, 9, 1},
	{"random2_q16k1", CASE_RANDOM, 16, 1, 128, {0}, {0}, 1, 64, 13, 2},
	{"random1_q32k8d64", CASE_RANDOM, 32, 8, 64, {0}, {0}, 1, 256, 9, 1},
	{"random1_q32k8d256", CASE_RANDOM, 32, 8, 256, {0}, {0}, 1, 256, 9, 1},
	{"forest8_q32k8", CASE_RANDOM, 32, 8, 128, {0}, {0}, 8, 256, 10, 4},
	{"forest32_q32k32", CASE_RANDOM, 32, 32, 128, {0}, {0}, 32, 128, 10, 5},
	{"heads_q52k52", CASE_LEVELS, 52, 52, 128, {1, 64}, {2048, 128}},
	{"heads_q8k1", CASE_LEVELS, 8, 1, 128, {1, 64}, {8192, 512}},
	{"chain16384_q32k8", CASE_LEVELS, 32, 8, 128, {1, 1}, {16384, 1}},
	{"chain16384x8_q32k8", CASE_LEVELS, 32, 8, 128, {1, 8}, {16384, 64}},
	{"chain256x64_q32k8", CASE_COMB, 32, 8, 128, {64}, {256, 32}},
	{"drafts256_p8192_q32k8", CASE_DRAFTS, 32, 8, 128, {0}, {8192, 256}},
	{"drafts64_p4096_q32k32", CASE_DRAFTS, 32, 32, 128, {0}, {4096, 64}},
	{"shared4096x64_q32k8", CASE_LEVELS, 32, 8, 128, {1, 64}, {4096, 1}},
	{"unshared4096x64_q32k8", CASE_LEVELS, 32, 8, 128, {64, 64}, {4095, 1}},
	{"one131072_q32k8", CASE_LEVELS, 32, 8, 128, {1, 1}, {131071, 1}},
	{"prefill_8192_of_16384_q32k8", CASE_CHUNK, 32, 8, 128, {0}, {8192, 8192}},
	{"prefill_512_of_8192_q32k8", CASE_CHUNK, 32, 8, 128, {0}, {7680, 512}},
};

/* Many short nodes, few long ones. */
static uint32_t random_tokens(struct oracle_random *random, uint32_t tokens_log2)
{
	uint32_t bits = oracle_below(random, tokens_log2 + 1);

	return (1u << bits) + oracle_below(random, 1u << bits);
}

/* A leaf, more often a late one, gets one child or up to 64, until there are leaves enough. */
static void grow(struct workload_spec *spec, const struct built_in *b, struct oracle_random *random)
{
	uint32_t leaves[RANDOM_NODES_MAX], n_leaves = 0;

	for (; n_leaves < b->n_roots; n_leaves++)
		leaves[n_leaves] = add_node(spec, WORK_NONE, 1u << b->tokens_log2);
	while (n_leaves < b->n_leaves && spec->n_nodes + 64 < RANDOM_NODES_MAX) {
		uint32_t x = oracle_below(random, n_leaves), y = oracle_below(random, n_leaves);
		uint32_t at = x > y ? x : y, parent = leaves[at];
		uint32_t n = 1u << oracle_below(random, 7);

		leaves[at] = leaves[--n_leaves];
		for (uint32_t i = 0; i < n; i++)
			leaves[n_leaves++] =
				add_node(spec, parent, random_tokens(random, b->tokens_log2));
	}
}

static int set_random(struct workload_spec *spec, const struct built_in *b,
		      struct oracle_random *random)
{
	spec->parents = calloc(RANDOM_NODES_MAX, sizeof(*spec->parents));
	spec->tokens = calloc(RANDOM_NODES_MAX, sizeof(*spec->tokens));
	if (!spec->parents || !spec->tokens)
		return -ENOMEM;
	spec->n_new = 1;
	grow(spec, b, random);
	return 0;
}

static int set_comb(struct workload_spec *spec, const struct built_in *b)
{
	uint32_t above = WORK_NONE;

	spec->parents = calloc(2 * (size_t)b->nodes[0], sizeof(*spec->parents));
	spec->tokens = calloc(2 * (size_t)b->nodes[0], sizeof(*spec->tokens));
	if (!spec->parents || !spec->tokens)
		return -ENOMEM;
	spec->n_new = 1;
	for (uint32_t i = 0; i < b->nodes[0]; i++) {
		above = add_node(spec, above, b->tokens[0]);
		add_node(spec, above, b->tokens[1]);
	}
	return 0;
}

uint32_t case_count(void)
{
	return sizeof(built_ins) / sizeof(built_ins[0]);
}

int case_built_in(uint32_t index, const struct case_options *o, struct workload_spec *ret)
{
	const struct built_in *b = &built_ins[index];
	struct oracle_random random = {UINT64_C(0x9e3779b97f4a7c15) * b->seed};

	*ret = (struct workload_spec){.shape = shape_make(b->q_heads, b->kv_heads, b->head_dim, o)};
	snprintf(ret->name, sizeof(ret->name), "%s", b->name);
	switch (b->kind) {
	case CASE_LEVELS:
		return workload_spec_levels(ret, b->nodes, b->tokens, 2);
	case CASE_COMB:
		return set_comb(ret, b);
	case CASE_RANDOM:
		return set_random(ret, b, &random);
	case CASE_CHUNK:
	case CASE_DRAFTS:
		ret->drafts = b->kind == CASE_DRAFTS;
		return set_chunk(ret, b->tokens[1], b->tokens[0] + b->tokens[1]);
	}
	return -EINVAL;
}

/* ---- drawn anew ----------------------------------------------------------------------------- */

static uint64_t kv_bytes(const struct workload_spec *spec)
{
	uint64_t tokens = 0;

	for (uint32_t i = 0; i < spec->n_nodes; i++)
		tokens += spec->tokens[i];
	return tokens * spec->shape.n_kv_heads * spec->shape.head_dim * 4;
}

/* What is too large for a bench of many has its nodes' tokens halved. */
static void make_smaller(struct workload_spec *spec)
{
	while (kv_bytes(spec) > RANDOM_BYTES_MAX) {
		for (uint32_t i = 0; i < spec->n_nodes; i++)
			spec->tokens[i] -= spec->tokens[i] / 2;
	}
}

int case_random(uint32_t index, struct oracle_random *random, const struct case_options *o,
		struct workload_spec *ret)
{
	static const uint32_t heads[][2] = {{1, 1},  {8, 1},  {16, 1}, {8, 8},	 {28, 4},
					    {32, 8}, {40, 8}, {32, 4}, {32, 32}, {64, 8}};
	static const uint32_t dims[] = {64, 128, 256};
	uint32_t i = oracle_below(random, sizeof(heads) / sizeof(heads[0]));
	struct built_in b = {.q_heads = heads[i][0], .kv_heads = heads[i][1]};
	int r;

	b.head_dim = dims[oracle_below(random, 3)];
	b.n_roots = oracle_below(random, 4) ? 1 : 2 + oracle_below(random, 7);
	b.n_leaves = 1 + oracle_below(random, RANDOM_SEQUENCES);
	b.tokens_log2 = 5 + oracle_below(random, 9);
	*ret = (struct workload_spec){.shape = shape_make(b.q_heads, b.kv_heads, b.head_dim, o)};
	r = set_random(ret, &b, random);
	if (r)
		return r;
	make_smaller(ret);
	snprintf(ret->name, sizeof(ret->name), "random%u_q%uk%ud%u", index, ret->shape.n_q_heads,
		 ret->shape.n_kv_heads, ret->shape.head_dim);
	return 0;
}
#endif
