/* group_test.c - several CPU devices as one: the same answers, nothing but partials between them,
 * and what goes wrong. */
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
#define SHORT_MS 1500u

/* As attention_test has them: a few more roundings in fp32 are nothing beside those of the
 * dtype. */
static const double bounds[] = {[WORK_FP32] = 2e-6, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
/* The planner's ways, and auto as a GPU has it. */
#define N_POLICIES (PLAN_N_WAYS + 1u)

struct members {
	struct group_device devices[4];
	struct group_config config;
};

static void members_init(struct members *m, uint32_t n)
{
	*m = (struct members){.config = {.n_devices = n, .timeout_ms = TIMEOUT_MS}};
	for (uint32_t i = 0; i < n; i++)
		m->devices[i].ops = &backend_cpu;
	m->config.devices = m->devices;
}

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
	plan_config_init(ret, PLAN_AUTO, &w->shape, 4);
	ret->tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	if (which == PLAN_N_WAYS)
		ret->tile_rows = PLAN_DEVICE_ROWS;
	else
		assert_int_equal(plan_policy_parse(plan_ways[which], ret), 0);
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

/* Of KV, that was to go from device to device. */
static uint64_t moved(const struct world *w)
{
	struct backend_counters counters;

	w->ops->counters(w->backend, &counters);
	return counters.kv_bytes_moved;
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
		fail_msg(
			"policy %s (%u), %u devices, split %d, page %u, dtype %d: error %g, LSE %g",
			plan_policy_name(config.policy), which, group->n_devices,
			(int)w->shape.split, w->shape.page_tokens, (int)w->shape.dtype, error, lse);
	world_run(w, &config, 0, w->tree.n_queries, &again);
	assert_memory_equal(answer.raw, again.raw, answer.raw_bytes);
	want = w->shape.split != WORK_TOKENS
		       ? 0
		       : exchange_bytes(EXCHANGE_DIRECT, false, group->n_devices,
					group_parts_bytes(&w->shape, world_rows(w)));
	assert_int_equal(exchanged(w, group->n_devices) - before, 2 * want);
	assert_int_equal(moved(w), 0);
	world_answer_done(&answer);
	world_answer_done(&again);
}

static void run_world(uint32_t n, enum work_split split, enum work_dtype dtype,
		      struct oracle_random *random)
{
	struct members m;
	struct world w;
	struct world_want want = {.ops = &backend_group,
				  .group = &m.config,
				  .extent_bytes = 2 * MIB * n,
				  .shape = shape_make(split == WORK_HEADS ? 2 * n : 2,
						      1 + oracle_below(random, 5),
						      16u << oracle_below(random, 3), dtype),
				  .n_nodes = 1 + oracle_below(random, 6),
				  .n_queries = 1 + oracle_below(random, 8),
				  .node_tokens = 100,
				  .drafts = true};

	members_init(&m, n);
	want.shape.split = split;
	want.shape.home = split == WORK_HOME ? oracle_below(random, n) : 0;
	world_init(&w, &want, random);
	for (uint32_t i = 0; i < N_POLICIES; i++)
		check_policy(&w, i, &m.config);
	world_done(&w);
}

static void run_worlds(enum work_split split, const char *name)
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
	run_worlds(WORK_TOKENS, __func__);
}

static void test_devices_that_share_heads_answer_as_one(void **state)
{
	(void)state;
	run_worlds(WORK_HEADS, __func__);
}

static void test_a_device_that_has_all_answers_for_all(void **state)
{
	(void)state;
	run_worlds(WORK_HOME, __func__);
}

/* ---- shares --------------------------------------------------------------------------------- */

/* Prefix and leaves, nothing but decoding; the KV is in the pages already. */
static void shared_world(struct world *w, struct members *m, uint32_t n,
			 const struct backend_ops *member, struct oracle_random *random)
{
	struct world_want want = {.ops = &backend_group,
				  .group = &m->config,
				  .extent_bytes = 2 * MIB * n,
				  .shape = shape_make(2, 4, 32, WORK_FP32),
				  .n_nodes = 6,
				  .n_queries = 6,
				  .node_tokens = 100};

	members_init(m, n);
	for (uint32_t i = 0; i < n; i++)
		m->devices[i].ops = member;
	world_init(w, &want, random);
}

/* A batch of the world's first queries that only reads. */
struct ask {
	struct work_tree tree;
	struct work_list list;
	struct backend_io io[WORLD_QUERIES];
	struct backend_job job;
	float *o; /* owned, of all rows */
};

static void ask_init(struct ask *a, struct world *w, uint32_t n_queries)
{
	struct plan_config config;
	size_t row_bytes = world_row_values(w) * sizeof(float);

	*a = (struct ask){.tree = w->tree, .o = malloc(world_rows(w) * row_bytes)};
	assert_non_null(a->o);
	memset(a->o, 0xff, world_rows(w) * row_bytes);
	a->tree.n_queries = n_queries;
	for (uint32_t i = 0; i < n_queries; i++)
		a->io[i] = (struct backend_io){.q = world_address(w, w->q_raw) +
						    w->first_row[i] * row_bytes,
					       .o = (uintptr_t)a->o + w->first_row[i] * row_bytes,
					       .q_stride = row_bytes,
					       .o_stride = row_bytes};
	config_make(w, 0, &config);
	assert_int_equal(plan_make(&config, &a->tree, &a->list), 0);
	a->job = (struct backend_job){.shape = &w->shape,
				      .tree = &a->tree,
				      .list = &a->list,
				      .io = a->io,
				      .layer = w->shape.n_layers - 1};
}

static void ask_done(struct ask *a)
{
	plan_list_done(&a->list);
	free(a->o);
}

static int submit(struct world *w, const struct backend_job *jobs, uint32_t n)
{
	struct backend_batch batch = {jobs, n};
	uint64_t id;

	return w->ops->submit(w->backend, &batch, &id);
}

static void test_each_key_is_read_once_and_appended_once(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	uint64_t read[5] = {0}, appended[5] = {0};

	(void)state;
	for (uint32_t n = 1; n <= 4; n++) {
		struct oracle_random same = random;
		struct backend_counters before, after;
		struct members m;
		struct world w;
		struct ask ask;

		shared_world(&w, &m, n, &backend_cpu, &same);
		ask_init(&ask, &w, w.tree.n_queries);
		w.ops->counters(w.backend, &before);
		assert_int_equal(submit(&w, &ask.job, 1), 0);
		w.ops->counters(w.backend, &after);
		read[n] = after.kv_bytes_read - before.kv_bytes_read;
		assert_true(read[n] > 0);
		assert_int_equal(after.rows - before.rows, ask.list.n_rows);
		for (uint32_t i = 0; i < n; i++) {
			struct group_stats stats;

			group_stats(w.backend, i, &stats);
			appended[n] += stats.appended_tokens;
		}
		assert_int_equal(read[n], read[1]);
		assert_int_equal(appended[n], appended[1]);
		assert_int_equal(appended[n], w.kv.n_pages * w.shape.page_tokens);
		ask_done(&ask);
		world_done(&w);
	}
}

static void test_jobs_of_one_plan_and_of_many_answer_alike(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct members m;
	struct world w;
	struct ask asks[12];
	struct backend_job jobs[12];
	size_t bytes;

	(void)state;
	shared_world(&w, &m, 3, &backend_cpu, &random);
	bytes = world_rows(&w) * world_row_values(&w) * sizeof(float);
	for (uint32_t i = 0; i < 12; i++) {
		ask_init(&asks[i], &w, 1 + i % w.tree.n_queries);
		jobs[i] = asks[i].job;
		assert_int_equal(submit(&w, &jobs[i], 1), 0);
	}
	for (uint32_t round = 0; round < 30; round++) {
		uint32_t first = oracle_below(&random, 12),
			 n = 1 + oracle_below(&random, 12 - first);
		float *alone[12];

		for (uint32_t i = first; i < first + n; i++) {
			jobs[i].plan_id = oracle_below(&random, 8) ? i + 1 : 0;
			alone[i] = malloc(bytes);
			assert_non_null(alone[i]);
			memcpy(alone[i], asks[i].o, bytes);
		}
		assert_int_equal(submit(&w, jobs + first, n), 0);
		for (uint32_t i = first; i < first + n; i++) {
			assert_memory_equal(alone[i], asks[i].o, bytes);
			free(alone[i]);
		}
	}
	for (uint32_t i = 0; i < 12; i++)
		ask_done(&asks[i]);
	world_done(&w);
}

static void test_a_move_between_devices_is_refused_and_counted(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct members m;
	struct world w;
	struct ask ask;
	float *before;
	size_t bytes;
	struct backend_move within = {0, 3, 4, 4}, between = {0, 3, 1, 3};
	const struct work_shape *shape = &w.shape;
	struct backend_move both[2] = {within, between};

	(void)state;
	shared_world(&w, &m, 2, &backend_cpu, &random);
	bytes = world_rows(&w) * world_row_values(&w) * sizeof(float);
	ask_init(&ask, &w, w.tree.n_queries);
	assert_int_equal(submit(&w, &ask.job, 1), 0);
	before = malloc(bytes);
	assert_non_null(before);
	memcpy(before, ask.o, bytes);
	assert_int_equal(w.ops->move(w.backend, &w.shape, both, 2), -EXDEV);
	assert_int_equal(moved(&w), 2 * 4 * shape->head_dim * shape->n_kv_heads * shape->n_layers);
	assert_int_equal(submit(&w, &ask.job, 1), 0);
	assert_memory_equal(before, ask.o, bytes);
	assert_int_equal(w.ops->move(w.backend, &w.shape, &within, 1), 0);
	assert_int_equal(moved(&w), 2 * 4 * shape->head_dim * shape->n_kv_heads * shape->n_layers);
	free(before);
	ask_done(&ask);
	world_done(&w);
}

/* ---- faults --------------------------------------------------------------------------------- */

/* The CPU, with one device that can be made to fail or to fall silent. */
static struct {
	struct backend *victim;
	uint32_t n_open;
	bool fails, silent;
} fault;

static int faulty_open(const struct backend_config *config, struct backend **ret, char *error,
		       size_t error_bytes)
{
	int r = backend_cpu.open(config, ret, error, error_bytes);

	if (r == 0 && fault.n_open++ == 1)
		fault.victim = *ret;
	return r;
}

static int faulty_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	if (fault.fails && b == fault.victim)
		return -EIO;
	return backend_cpu.submit(b, batch, ret_id);
}

static int faulty_completed(struct backend *b, uint64_t *ret_id)
{
	if (!fault.silent || b != fault.victim)
		return backend_cpu.completed(b, ret_id);
	*ret_id = 0;
	return 0;
}

static struct backend_ops faulty_ops(void)
{
	struct backend_ops ops = backend_cpu;

	memset(&fault, 0, sizeof(fault));
	ops.open = faulty_open;
	ops.submit = faulty_submit;
	ops.completed = faulty_completed;
	return ops;
}

static void assert_dead(struct world *w, struct ask *ask, const char *why)
{
	uint64_t id;

	assert_int_equal(submit(w, &ask->job, 1), 0);
	assert_int_equal(w->ops->completed(w->backend, &id), -EIO);
	assert_non_null(w->ops->fault(w->backend));
	assert_non_null(strstr(w->ops->fault(w->backend), "device 1 of 3: "));
	assert_non_null(strstr(w->ops->fault(w->backend), why));
	assert_int_equal(submit(w, &ask->job, 1), -EIO);
}

static void test_a_device_that_fails_ends_the_batch_and_the_group(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_ops ops = faulty_ops();
	struct members m;
	struct world w;
	struct ask ask;

	(void)state;
	shared_world(&w, &m, 3, &ops, &random);
	ask_init(&ask, &w, w.tree.n_queries);
	assert_int_equal(submit(&w, &ask.job, 1), 0);
	assert_null(w.ops->fault(w.backend));
	fault.fails = true;
	assert_dead(&w, &ask, "refused");
	ask_done(&ask);
	world_done(&w);
}

static void test_a_device_that_never_answers_ends_them_in_time(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_ops ops = faulty_ops();
	struct group_device devices[3] = {{&ops, NULL}, {&ops, NULL}, {&ops, NULL}};
	struct group_config group = {devices, 3, SHORT_MS};
	struct world_want want = {.ops = &backend_group,
				  .group = &group,
				  .extent_bytes = 6 * MIB,
				  .shape = shape_make(2, 4, 32, WORK_FP32),
				  .n_nodes = 1,
				  .n_queries = 1,
				  .node_tokens = 10};
	struct world w;
	struct ask ask;

	(void)state;
	world_init(&w, &want, &random);
	ask_init(&ask, &w, w.tree.n_queries);
	fault.silent = true;
	assert_dead(&w, &ask, "has not answered for 1500 ms");
	ask_done(&ask);
	world_done(&w);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void assert_refused(const struct group_config *group, uint64_t extent_bytes,
			   const char *word)
{
	struct backend_config config = {.pool_bytes = 4 * extent_bytes,
					.extent_bytes = extent_bytes,
					.group = group};
	struct backend *b = NULL;
	char error[256] = "";

	assert_int_equal(backend_group.open(&config, &b, error, sizeof(error)), -EINVAL);
	assert_null(b);
	assert_non_null(strstr(error, word));
}

static void test_open_refuses_what_is_no_group_in_a_sentence(void **state)
{
	struct backend_ops other = backend_cpu, mute = backend_cpu;
	struct members m;

	(void)state;
	other.name = "other";
	mute.leaves_parts = false;
	assert_refused(NULL, 2 * MIB, "1 to 32 devices");
	members_init(&m, 0);
	assert_refused(&m.config, 2 * MIB, "1 to 32 devices");
	members_init(&m, 2);
	m.devices[1].ops = &other;
	assert_refused(&m.config, 2 * MIB, "device 0 is of cpu, 1 of other");
	m.devices[0].ops = m.devices[1].ops = &mute;
	assert_refused(&m.config, 2 * MIB, "cannot share the tokens");
	members_init(&m, 3);
	assert_refused(&m.config, 8 * MIB, "8M are no multiple of 2M on each of 3 devices");
}

static void test_heads_that_devices_do_not_divide_are_refused_in_a_sentence(void **state)
{
	struct backend_config config = {.pool_bytes = 24 * MIB, .extent_bytes = 6 * MIB};
	struct work_shape shape = shape_make(8, 4, 32, WORK_FP16), odd;
	struct members m;
	struct backend *b = NULL;
	struct backend_job job = {.shape = &shape};
	struct backend_batch batch = {&job, 1};
	char error[256] = "";
	uint64_t id;

	(void)state;
	shape.split = WORK_HEADS;
	odd = shape;
	members_init(&m, 3);
	config.group = &m.config;
	assert_int_equal(backend_group.open(&config, &b, error, sizeof(error)), 0);
	assert_int_equal(backend_group.page_bytes(b, &shape, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "8 KV heads cannot be shared out evenly to 3 devices"));
	assert_int_equal(backend_group.submit(b, &batch, &id), -EINVAL);
	odd.n_kv_heads = 6;
	odd.n_q_heads = 9;
	assert_int_equal(backend_group.page_bytes(b, &odd, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "no multiple of 6 KV heads"));
	odd.n_q_heads = 12;
	assert_true(backend_group.page_bytes(b, &odd, error, sizeof(error)) > 0);
	odd.split = WORK_HOME;
	odd.home = 2;
	assert_true(backend_group.page_bytes(b, &odd, error, sizeof(error)) > 0);
	odd.home = 3;
	assert_int_equal(backend_group.page_bytes(b, &odd, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "no device 3 of 3"));
	backend_group.close(b);
}

static struct {
	struct backend *backend;
	struct backend_move move;
} noted[4];
static uint32_t n_noted;

static int note_move(struct backend *b, const struct work_shape *shape,
		     const struct backend_move *moves, uint32_t n)
{
	(void)shape;
	assert_int_equal(n, 1);
	noted[n_noted].backend = b;
	noted[n_noted++].move = *moves;
	return 0;
}

/* Pages 0, 2, 4 and so on are the first device's, as its 0, 1, 2. */
static void test_each_move_is_made_by_the_device_that_has_its_pages(void **state)
{
	struct backend_config config = {.pool_bytes = 16 * MIB, .extent_bytes = 4 * MIB};
	struct work_shape shape = shape_make(8, 4, 32, WORK_FP16);
	const struct backend_move moves[] = {{0, 3, 4, 4}, {1, 0, 3, 5}, {2, 1, 0, 6}};
	const struct backend_move own[] = {{0, 3, 2, 4}, {0, 0, 1, 5}, {1, 1, 0, 6}};
	struct backend_ops ops = backend_cpu;
	struct backend *b = NULL;
	struct members m;

	(void)state;
	shape.split = WORK_TOKENS;
	members_init(&m, 2);
	ops.move = note_move;
	m.devices[0].ops = m.devices[1].ops = &ops;
	config.group = &m.config;
	assert_int_equal(backend_group.open(&config, &b, NULL, 0), 0);
	assert_int_equal(backend_group.move(b, &shape, moves, 3), 0);
	assert_int_equal(n_noted, 3);
	assert_ptr_equal(noted[0].backend, noted[2].backend);
	assert_ptr_not_equal(noted[0].backend, noted[1].backend);
	for (uint32_t i = 0; i < 3; i++)
		assert_memory_equal(&noted[i].move, &own[i], sizeof(own[i]));
	backend_group.close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_that_share_tokens_answer_as_one),
		cmocka_unit_test(test_devices_that_share_heads_answer_as_one),
		cmocka_unit_test(test_a_device_that_has_all_answers_for_all),
		cmocka_unit_test(test_each_key_is_read_once_and_appended_once),
		cmocka_unit_test(test_jobs_of_one_plan_and_of_many_answer_alike),
		cmocka_unit_test(test_a_move_between_devices_is_refused_and_counted),
		cmocka_unit_test(test_each_move_is_made_by_the_device_that_has_its_pages),
		cmocka_unit_test(test_a_device_that_fails_ends_the_batch_and_the_group),
		cmocka_unit_test(test_a_device_that_never_answers_ends_them_in_time),
		cmocka_unit_test(test_open_refuses_what_is_no_group_in_a_sentence),
		cmocka_unit_test(test_heads_that_devices_do_not_divide_are_refused_in_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
