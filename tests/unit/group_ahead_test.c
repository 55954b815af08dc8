/*
 * group_ahead_test.c - a plan that is made ahead for a group: each device prepares its own part of
 * it, and what one of them cannot is the group's answer.
 *
 * Devices are the CPU's backend, which has nothing to prepare: that they are asked is noted here.
 */
#include "world.h"
#include "kernels/group/group.h"
#include "kernels/plan/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N_DEVICES 3u
#define PLAN_ID 9u

static struct {
	uint32_t n_asked;
	uint64_t kv_tokens; /* of the lists that they were asked with */
	uint32_t fails_at; /* the so many-th that is asked; 0: none does */
} devices;

static int prepare(struct backend *b, const struct backend_job *job)
{
	(void)b;
	assert_int_equal(job->plan_id, PLAN_ID);
	devices.kv_tokens += job->list->kv_tokens_read;
	return ++devices.n_asked == devices.fails_at ? -ENOMEM : 0;
}

struct group {
	struct backend_ops ops;
	struct group_device members[N_DEVICES];
	struct group_config config;
	struct world w;
	struct work_list list;
};

static int setup(void **state)
{
	static struct group g;
	struct oracle_random random = oracle_seed("group_ahead_test");
	struct plan_config config;
	struct world_want want = {.ops = &backend_group,
				  .group = &g.config,
				  .extent_bytes = 2 * MIB * N_DEVICES,
				  .shape = {.n_layers = 16,
					    .n_q_heads = 3,
					    .n_kv_heads = 3,
					    .head_dim = 64,
					    .page_tokens = 16,
					    .dtype = WORK_FP32,
					    .scale = 0.125f},
				  .n_nodes = 6,
				  .n_queries = 6,
				  .node_tokens = 100};

	g = (struct group){.ops = backend_cpu, .config = {g.members, N_DEVICES, 60000}};
	g.ops.prepare = prepare;
	for (uint32_t i = 0; i < N_DEVICES; i++)
		g.members[i].ops = &g.ops;
	world_init(&g.w, &want, &random);
	plan_config_init(&config, PLAN_AUTO, &g.w.shape, 4);
	config.tile_rows = g.w.ops->tile_rows(g.w.backend, &g.w.shape);
	assert_int_equal(plan_make(&config, &g.w.tree, &g.list), 0);
	devices.n_asked = devices.fails_at = 0;
	devices.kv_tokens = 0;
	*state = &g;
	return 0;
}

static int teardown(void **state)
{
	struct group *g = *state;

	plan_list_done(&g->list);
	world_done(&g->w);
	return 0;
}

static int make_ahead(struct group *g, enum work_split split)
{
	struct work_shape shape = g->w.shape;
	const struct backend_job job = {.shape = &shape,
					.tree = &g->w.tree,
					.list = &g->list,
					.plan_id = PLAN_ID};

	shape.split = split;
	return backend_group.prepare(g->w.backend, &job);
}

static void each_device_prepares_what_is_on_its_pages(void **state)
{
	struct group *g = *state;

	assert_int_equal(make_ahead(g, WORK_TOKENS), 0);
	assert_int_equal(devices.n_asked, N_DEVICES);
	assert_int_equal(devices.kv_tokens, g->list.kv_tokens_read);
}

static void who_share_heads_prepare_it_all(void **state)
{
	struct group *g = *state;

	assert_int_equal(make_ahead(g, WORK_HEADS), 0);
	assert_int_equal(devices.n_asked, N_DEVICES);
	assert_int_equal(devices.kv_tokens, N_DEVICES * g->list.kv_tokens_read);
}

static void what_a_device_cannot_the_group_cannot(void **state)
{
	struct group *g = *state;

	devices.fails_at = 2;
	assert_int_equal(make_ahead(g, WORK_TOKENS), -ENOMEM);
	devices.n_asked = 0;
	assert_int_equal(make_ahead(g, WORK_HEADS), -ENOMEM);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(each_device_prepares_what_is_on_its_pages),
		CASE(who_share_heads_prepare_it_all),
		CASE(what_a_device_cannot_the_group_cannot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
