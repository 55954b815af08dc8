/* group_test.c - several CPU devices as one: the same answers, nothing but partials between them, and what goes wrong. */
#include "world.h"
#include "kernels/group/exchange.h"
#include "kernels/group/group.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define TIMEOUT_MS 60000u
#define SHORT_MS 200u

/* As attention_test has them: a few more roundings in fp32 are nothing beside those of the dtype. */
static const double bounds[] = {[WORK_FP32] = 2e-6, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
static const enum plan_policy policies[] = {PLAN_AUTO, PLAN_NONE, PLAN_CASCADE, PLAN_FASTTREE,
					    PLAN_DEFT, PLAN_DEFT, PLAN_DEFT, PLAN_AUTO};
#define N_POLICIES (sizeof(policies) / sizeof(policies[0]))

struct members {
	struct group_device devices[4];
	struct group_config config;
};

static void members_init(struct members *m, uint32_t n, enum group_split split)
{
	*m = (struct members){.config = {.n_devices = n, .split = split, .timeout_ms = TIMEOUT_MS}};
	for (uint32_t i = 0; i < n; i++)
		m->devices[i].ops = &backend_cpu;
	m->config.devices = m->devices;
}

/* Pages are as large as an extent holds one or two of, so that every few tokens are on another device. */
static struct work_shape shape_make(uint32_t n_kv_heads, uint32_t ratio, uint32_t page_tokens,
				    enum work_dtype dtype)
{
	uint64_t layer_bytes = 2ull * 64 * page_tokens * n_kv_heads * work_dtype_bytes(dtype);

	return (struct work_shape){.n_layers = (uint32_t)(MIB / layer_bytes),
				   .n_q_heads = n_kv_heads * ratio,
				   .n_kv_heads = n_kv_heads,
				   .head_dim = 64,
				   .page_tokens = page_tokens,
				   .dtype = dtype,
				   .scale = 0.125f};
}

static void config_make(const struct world *w, uint32_t which, struct plan_config *ret)
{
	plan_config_init(ret, policies[which], &w->shape, 4);
	ret->tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	if (which + 1 == N_POLICIES)
		ret->tile_rows = PLAN_DEVICE_ROWS;
	if (policies[which] == PLAN_DEFT)
		ret->deft = which - 4;
	ret->segment_tokens = 2 * WORK_TILE_TOKENS;
}

/* Bytes that all devices of the group gave each other. */
static uint64_t exchanged(const struct world *w, uint32_t n_devices)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n_devices; i++) {
		struct group_stats stats;

		group_stats(w->backend, i, &stats);
		bytes += stats.exchange_bytes;
	}
	return bytes;
}

static void check_policy(struct world *w, uint32_t which, const struct group_config *group)
{
	struct plan_config config;
	struct world_answer answer, again;
	uint64_t before = exchanged(w, group->n_devices), want;
	double lse, error;

	config_make(w, which, &config);
	world_run(w, &config, 0, w->tree.n_queries, &answer);
	error = world_error(w, 0, w->tree.n_queries, &answer, &lse);
	if (error > bounds[w->shape.dtype] || lse > 1e-5)
		fail_msg("policy %s (%u), %u devices, split %d, page %u, dtype %d: error %g, LSE %g",
			 plan_policy_name(policies[which]), which, group->n_devices,
			 (int)group->split, w->shape.page_tokens, (int)w->shape.dtype, error, lse);
	world_run(w, &config, 0, w->tree.n_queries, &again);
	assert_memory_equal(answer.raw, again.raw, answer.raw_bytes);
	want = group->split == GROUP_HEADS
		       ? 0
		       : exchange_bytes(EXCHANGE_DIRECT, false, group->n_devices,
					group_parts_bytes(&w->shape, world_rows(w)));
	assert_int_equal(exchanged(w, group->n_devices) - before, 2 * want);
	world_answer_done(&answer);
	world_answer_done(&again);
}

static void run_world(uint32_t n, enum group_split split, enum work_dtype dtype,
		      struct oracle_random *random)
{
	struct members m;
	struct world w;
	struct world_want want = {
		.ops = &backend_group,
		.group = &m.config,
		.extent_bytes = split == GROUP_HEADS ? 2 * MIB * n : 2 * MIB,
		.shape = shape_make(split == GROUP_HEADS ? 2 * n : 2,
				    1 + oracle_below(random, 5), 16u << oracle_below(random, 3),
				    dtype),
		.n_nodes = 1 + oracle_below(random, 6),
		.n_queries = 1 + oracle_below(random, 8),
		.node_tokens = 100,
		.drafts = true};

	members_init(&m, n, split);
	world_init(&w, &want, random);
	for (uint32_t i = 0; i < N_POLICIES; i++)
		check_policy(&w, i, &m.config);
	world_done(&w);
}

static void run_worlds(enum group_split split, const char *name)
{
	struct oracle_random random = oracle_seed(name);

	for (uint32_t n = 1; n <= 4; n++) {
		for (int dtype = WORK_FP32; dtype <= WORK_BF16; dtype++) {
			for (uint32_t i = 0; i < 3; i++)
				run_world(n, split, dtype, &random);
		}
	}
}

static void test_devices_that_share_tokens_answer_as_one(void **state)
{
	(void)state;
	run_worlds(GROUP_TOKENS, __func__);
}

static void test_devices_that_share_heads_answer_as_one(void **state)
{
	(void)state;
	run_worlds(GROUP_HEADS, __func__);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_that_share_tokens_answer_as_one),
		cmocka_unit_test(test_devices_that_share_heads_answer_as_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
