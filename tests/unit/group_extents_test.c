/*
 * group_extents_test.c - what each device of a group has of an extent: as much as the others, and
 * none of what was in it once it is renewed.
 */
#include "world.h"
#include "kernels/group/group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N_DEVICES 3u

struct members {
	struct group_device devices[N_DEVICES];
	struct group_config config;
};

static void members_init(struct members *m)
{
	*m = (struct members){.config = {.n_devices = N_DEVICES, .timeout_ms = 60000}};
	for (uint32_t i = 0; i < N_DEVICES; i++)
		m->devices[i].ops = &backend_cpu;
	m->config.devices = m->devices;
}

static void test_an_extent_has_as_much_on_each_device(void **state)
{
	struct backend_config config = {.pool_bytes = 48 * MIB, .extent_bytes = 6 * MIB};
	struct members m;
	struct group_stats stats;
	struct backend *b = NULL;

	(void)state;
	config.group = &m.config;
	members_init(&m);
	assert_int_equal(backend_group.open(&config, &b, NULL, 0), 0);
	for (uint32_t e = 0; e < 6; e++)
		assert_int_equal(backend_group.extent_commit(b, e), 0);
	backend_group.extent_release(b, 1);
	assert_int_equal(backend_group.extent_renew(b, 2), 0);
	for (uint32_t i = 0; i < 3; i++) {
		group_stats(b, i, &stats);
		assert_int_equal(stats.pool_peak_bytes, 12 * MIB);
		assert_int_equal(stats.pool_bytes, 10 * MIB);
	}
	backend_group.close(b);
}

/* What all rows get to see, as the sum of how far it is from zero. */
static double seen(struct world *w)
{
	struct plan_config config;
	struct world_answer answer;
	double sum = 0;

	plan_config_init(&config, PLAN_AUTO, &w->shape, 4);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, &answer);
	for (size_t i = 0; i < world_rows(w) * world_row_values(w); i++)
		sum += fabs(answer.o[i]);
	world_answer_done(&answer);
	return sum;
}

static void test_of_renewed_extents_no_device_keeps_anything(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct members m;
	struct world w;
	struct world_want want = {.ops = &backend_group,
				  .group = &m.config,
				  .extent_bytes = 2 * MIB * N_DEVICES,
				  .shape = {.n_layers = 32,
					    .n_q_heads = 2,
					    .n_kv_heads = 2,
					    .head_dim = 64,
					    .page_tokens = 32,
					    .dtype = WORK_FP32,
					    .scale = 0.125f},
				  .n_nodes = 6,
				  .n_queries = 6,
				  .node_tokens = 100};

	(void)state;
	members_init(&m);
	world_init(&w, &want, &random);
	memset(w.appends, 0, sizeof(w.appends));
	assert_true(seen(&w) > 0);
	for (uint32_t e = 0; backend_group.extent_commit(w.backend, e) < 0; e++)
		assert_int_equal(backend_group.extent_renew(w.backend, e), 0);
	assert_true(seen(&w) == 0);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_extent_has_as_much_on_each_device),
		cmocka_unit_test(test_of_renewed_extents_no_device_keeps_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
