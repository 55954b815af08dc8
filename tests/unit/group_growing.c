/*
 * group_growing.c - two queries on a stem of two pages, each with pages of its own on all devices:
 * a plan grows by tokens, and its rows are compared with a new plan's.
 */
#include "group_growing.h"

#include "kernels/plan/plan.h"
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define BOUND 5e-4 /* of fp16, as cuda_test.c */
#define STEM_TOKENS 64u
#define PAGE_TOKENS 32u
#define OWN_PAGES 8u /* that each query has at most: some on each device */
#define OWN_TOKENS (7 * PAGE_TOKENS - 12) /* of each query, when the plan is made */
#define NEXT_TOKENS 20u /* into a new page, which is on another device */
#define ROW_VALUES 512u /* of Q and O, of K and of V */
#define ROW_BYTES (2 * ROW_VALUES * 2) /* of K with V */
#define MEMORY_BYTES (UINT64_C(4) << 20)

/* Two queries on a stem of two pages, each with pages of its own; KV row i of the memory is that of
 * token i, those of queries behind the stem's. */
struct growing {
	struct work_shape shape;
	struct backend *backend; /* owned */
	uint8_t *memory; /* owned */
	uint64_t base;
	struct work_slice slices[2 + 2 * OWN_PAGES];
	struct work_node nodes[3];
	struct work_query queries[2];
	struct work_tree tree;
	struct plan_config config;
};

static void growing_open(struct growing *g, const struct group_config *group)
{
	struct backend_config config = {.pool_bytes = 2 * MIB * group->n_devices,
					.extent_bytes = 2 * MIB * group->n_devices,
					.group = group};
	char error[256] = "";

	if (backend_group.open(&config, &g->backend, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	assert_int_equal(backend_group.extent_commit(g->backend, 0), 0);
	assert_int_equal(posix_memalign((void **)&g->memory, 4096, MEMORY_BYTES), 0);
	assert_int_equal(backend_group.arena_attach(g->backend, g->memory, MEMORY_BYTES, &g->base),
			 0);
	plan_config_init(&g->config, PLAN_AUTO, &g->shape, 66);
	g->config.tile_rows = backend_group.tile_rows(g->backend, &g->shape);
}

/* Halves from 0.5 to 1, of either sign. */
static void growing_fill(struct growing *g)
{
	struct oracle_random random = oracle_seed(__func__);
	uint16_t *at = (uint16_t *)(void *)g->memory;

	for (size_t i = 0; i < MEMORY_BYTES / 2; i++)
		at[i] = (uint16_t)((oracle_below(&random, 1u << 16) & 0x83ff) | 0x3800);
}

/* Of a query's own tokens. */
static struct work_slice own_slice(uint32_t query, uint32_t first, uint32_t count)
{
	return (struct work_slice){2 + query * OWN_PAGES + first / PAGE_TOKENS,
				   (uint16_t)(first % PAGE_TOKENS), (uint16_t)count};
}

/* All n of them, which returns how many slices they are. */
static uint32_t own_slices(uint32_t query, uint32_t n, struct work_slice *to)
{
	uint32_t i = 0;

	for (uint32_t first = 0; first < n; first += PAGE_TOKENS)
		to[i++] =
			own_slice(query, first, n - first < PAGE_TOKENS ? n - first : PAGE_TOKENS);
	return i;
}

/* The tree, each query with n tokens of its own. */
static void growing_shape(struct growing *g, uint32_t n)
{
	uint32_t at = 2;

	for (uint32_t i = 0; i < 2; i++)
		g->slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	g->nodes[0] = (struct work_node){WORK_NONE, 0, STEM_TOKENS, 0, 2};
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t n_slices = own_slices(i, n, &g->slices[at]);

		g->nodes[1 + i] = (struct work_node){0, STEM_TOKENS, n, at, n_slices};
		g->queries[i] = (struct work_query){1 + i, STEM_TOKENS + n - 1, 1, NULL};
		at += n_slices;
	}
	g->tree = (struct work_tree){g->nodes, g->slices, g->queries, 3, at, 2};
}

static void growing_run(struct growing *g, const struct backend_job *job)
{
	struct backend_batch batch = {job, 1};
	uint64_t id, done = 0;

	assert_int_equal(backend_group.submit(g->backend, &batch, &id), 0);
	while (done < id)
		assert_int_equal(backend_group.completed(g->backend, &done), 0);
}

/* Where token i of a query comes from, and goes. */
static struct backend_io growing_io(const struct growing *g, uint32_t query, uint32_t token,
				    struct work_slice *slot)
{
	uint64_t row = STEM_TOKENS + query * OWN_PAGES * PAGE_TOKENS + token;

	*slot = own_slice(query, token, 1);
	return (struct backend_io){.k = g->base + row * ROW_BYTES,
				   .v = g->base + row * ROW_BYTES + ROW_BYTES / 2,
				   .k_stride = ROW_BYTES,
				   .v_stride = ROW_BYTES,
				   .slots = slot,
				   .n_slots = 1};
}

/* Stem and the queries' first tokens into their pages. */
static void growing_load(struct growing *g)
{
	const uint32_t counts[] = {STEM_TOKENS, OWN_TOKENS - 1, OWN_TOKENS - 1};
	struct work_query queries[3];
	struct backend_io io[3];
	struct work_slice slots[3][OWN_PAGES];
	struct work_tree tree = {.queries = queries, .n_queries = 3};
	struct work_list list = {0};
	struct backend_job job = {.shape = &g->shape, .tree = &tree, .list = &list, .io = io};

	for (uint32_t i = 0; i < 3; i++) {
		queries[i] = (struct work_query){.node = WORK_NONE, .n_rows = counts[i]};
		io[i] = growing_io(g, i ? i - 1 : 0, 0, slots[i]);
		io[i].n_slots = own_slices(i ? i - 1 : 0, counts[i], slots[i]);
	}
	io[0].k = g->base;
	io[0].v = g->base + ROW_BYTES / 2;
	io[0].slots = g->slices;
	io[0].n_slots = 2;
	growing_run(g, &job);
}

static double growing_distance(const struct growing *g, uint64_t a, uint64_t b)
{
	double off = 0, norm = 0;

	for (uint32_t row = 0; row < 2; row++, a += ROW_BYTES, b += ROW_BYTES) {
		float x[ROW_VALUES], y[ROW_VALUES];

		oracle_decode(WORK_FP16, x, g->memory + a, ROW_VALUES);
		oracle_decode(WORK_FP16, y, g->memory + b, ROW_VALUES);
		for (uint32_t i = 0; i < ROW_VALUES; i++) {
			off += pow(x[i] - y[i], 2);
			norm += pow(x[i], 2);
		}
	}
	return sqrt(off / norm);
}

/* A plan of each query's first OWN_TOKENS tokens, and what it is asked for next. */
struct growing_plan {
	struct work_list list; /* owned */
	struct backend_io io[2];
	struct work_slice slots[2];
	struct backend_job job;
};

static void growing_plan_make(struct growing *g, uint64_t id, struct growing_plan *ret)
{
	*ret = (struct growing_plan){0};
	growing_shape(g, OWN_TOKENS);
	assert_int_equal(plan_make(&g->config, &g->tree, &ret->list), 0);
	ret->job = (struct backend_job){.shape = &g->shape,
					.tree = &g->tree,
					.list = &ret->list,
					.io = ret->io,
					.plan_id = id};
}

/* To the n-th token of each query. */
static void growing_advance(struct growing *g, struct growing_plan *plan, uint32_t n)
{
	const uint64_t q = 2 * MIB, o = 3 * MIB + 2;

	for (uint32_t i = 0; i < 2; i++) {
		plan->io[i] = growing_io(g, i, n - 1, &plan->slots[i]);
		plan->io[i].q = g->base + q + i * ROW_BYTES;
		plan->io[i].o = g->base + o + i * ROW_BYTES;
		plan->list.rows[i].pos = STEM_TOKENS + n - 1;
	}
	if (n == OWN_TOKENS)
		return;
	assert_true(backend_group.advance(g->backend, &plan->job) >= 0);
	plan->job.advanced = true;
}

/* What the plan says, at an odd address, and what a new one does. */
static void growing_compare(struct growing *g, struct growing_plan *plan, uint32_t n)
{
	const uint64_t o = 3 * MIB + 2, again = 3 * MIB + 64 * 1024;
	struct work_list fresh = {0};
	struct backend_io io[2];
	struct backend_job job;

	growing_run(g, &plan->job);
	growing_shape(g, n);
	assert_int_equal(plan_make(&g->config, &g->tree, &fresh), 0);
	for (uint32_t i = 0; i < 2; i++) {
		io[i] = plan->io[i];
		io[i].o = g->base + again + i * ROW_BYTES;
		io[i].n_slots = 0;
	}
	job = (struct backend_job){.shape = &g->shape, .tree = &g->tree, .list = &fresh, .io = io};
	growing_run(g, &job);
	plan_list_done(&fresh);
	if (growing_distance(g, again, o) > BOUND)
		fail_msg("token %u: %g", n, growing_distance(g, again, o));
}

/* From the first batch after so many tokens on. */
static void growing_check_plan(struct growing *g, struct growing_plan *plan, uint32_t late)
{
	for (uint32_t n = OWN_TOKENS; n < OWN_TOKENS + NEXT_TOKENS; n++) {
		growing_advance(g, plan, n);
		if (n >= OWN_TOKENS + late)
			growing_compare(g, plan, n);
	}
	plan_list_done(&plan->list);
}

void growing_check(const struct group_config *group, const struct work_shape *shape)
{
	static const uint32_t late[] = {0, 1, 15};
	struct growing g = {.shape = *shape};
	struct growing_plan plan;

	growing_open(&g, group);
	growing_fill(&g);
	growing_shape(&g, OWN_TOKENS);
	growing_load(&g);
	growing_plan_make(&g, 1, &plan);
	growing_check_plan(&g, &plan, 0);
	for (uint32_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
		growing_plan_make(&g, 2 + i, &plan);
		assert_int_equal(backend_group.prepare(g.backend, &plan.job), 0);
		growing_check_plan(&g, &plan, late[i]);
	}
	backend_group.arena_detach(g.backend, g.base, MEMORY_BYTES);
	backend_group.close(g.backend);
	free(g.memory);
}
