/*
 * stand_test.c - launches that stand on a device before their batches are submitted: whatever
 * comes, each batch does what it is to do, once, and nobody waits for a launch that waits for him.
 * The device is fake_stream.h's.
 */
#include "fake_stream.h"
#include "kernels/cuda/batch/batch_layers.h"
#include "kernels/plan/plan.h"
#include "oracle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u
#define LAYERS 3u
#define LONG_NS UINT64_C(5000000)
#define COUNTED_ROWS 64u

static struct pool pool = {.bytes = 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 16};
static const struct work_shape shape = {LAYERS,	   8,	       8, 128, PAGE_TOKENS,
					WORK_BF16, 0.0883883f, 0, 0};

/* A sequence of 256 tokens that is given the same one again and again. */
struct decode {
	struct batch batch;
	struct work_slice slices[8], slot;
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	struct work_list list; /* owned */
	uint64_t plan_id, last_id, k;
	uint64_t told; /* becomes the k of a batch that is done */
	uint32_t layer;
};

static void make_plan(const struct work_tree *tree, struct work_list *list)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, tree, list), 0);
}

static int setup(void **state)
{
	struct decode *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	fake_reset();
	assert_int_equal(batch_init(&d->batch, &pool, CODE_WGMMA, 132), 0);
	for (uint32_t i = 0; i < 8; i++)
		d->slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	d->slot = (struct work_slice){7, PAGE_TOKENS - 1, 1};
	d->node = (struct work_node){WORK_NONE, 0, 8 * PAGE_TOKENS, 0, 8};
	d->query = (struct work_query){.node = 0, .pos = 8 * PAGE_TOKENS - 1, .n_rows = 1};
	d->tree = (struct work_tree){&d->node, d->slices, &d->query, 1, 8, 1};
	make_plan(&d->tree, &d->list);
	d->plan_id = 1;
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct decode *d = *state;

	batch_done(&d->batch);
	plan_list_done(&d->list);
	free(d);
	return fake_done();
}

/* The next layer, to memory of its own. */
static uint64_t submit(struct decode *d)
{
	struct backend_io io = {.q = 1 << 20,
				.k = d->k += 4096,
				.v = 2 << 20,
				.o = 3 << 20,
				.slots = &d->slot,
				.n_slots = 1};
	struct backend_job job = {.shape = &shape,
				  .tree = &d->tree,
				  .list = &d->list,
				  .io = &io,
				  .plan_id = d->plan_id,
				  .layer = d->layer};
	struct backend_tell tell = {(uintptr_t)&d->told, d->k};
	struct backend_batch one = {&job, 1, &tell, 1};

	assert_int_equal(batch_submit(&d->batch, &one, &d->last_id), 0);
	d->layer = (d->layer + 1) % LAYERS;
	return d->last_id;
}

static void await(struct decode *d, uint64_t id)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < 4 && done < id; i++) {
		fake_runs();
		assert_int_equal(batch_completed(&d->batch, &done), 0);
	}
	assert_true(done >= id);
	fake.now_ns += 20000;
}

static void assert_did(const struct decode *d, uint64_t id, uint64_t k, uint32_t layer)
{
	const struct fake_deed *deed = &fake.deeds[id];
	uint64_t layer_bytes = kv_head_bytes(&shape) * shape.n_kv_heads;

	assert_int_equal(deed->n, 1);
	assert_int_equal(deed->k, k);
	assert_ptr_equal(deed->pool, (char *)(uintptr_t)d->batch.pool->base + layer * layer_bytes);
}

static void step(struct decode *d)
{
	uint32_t layer = d->layer;
	uint64_t id = submit(d);

	assert_int_not_equal(d->told, d->k);
	await(d, id);
	assert_did(d, id, d->k, layer);
	assert_int_equal(d->told, d->k);
}

/* Until a launch stands. */
static void steps_in_a_row(struct decode *d)
{
	uint32_t n = 0;

	while (!d->batch.stand.stands) {
		step(d);
		assert_true(++n < 40);
	}
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_steps_in_a_row_are_called(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	uint32_t n_called = fake.n_called, n_stood = fake.n_stood;

	for (uint32_t i = 0; i < 50; i++)
		step(d);
	assert_int_equal(fake.n_called - n_called, 50);
	assert_int_equal(fake.n_stood - n_stood, 50);
}

static void test_another_layer_is_launched(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	uint32_t n_called = fake.n_called;

	d->layer = (d->layer + 1) % LAYERS;
	step(d);
	assert_int_equal(fake.n_called, n_called);
}

static void test_another_plan_is_launched(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	d->plan_id++;
	step(d);
	assert_false(d->batch.stand.stands);
	steps_in_a_row(d);
}

static void test_a_launch_that_nobody_called_is_no_harm(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	fake_is_impatient();
	fake_runs();
	uint32_t n_called = fake.n_called;

	step(d);
	assert_int_equal(fake.n_called, n_called);
}

static void test_one_that_had_left_when_it_was_called_is_made_up_for(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	fake_is_impatient();
	step(d);
}

static void test_one_that_has_left_tells_nobody(void **state)
{
	struct decode *d = *state;

	steps_in_a_row(d);
	fake_is_impatient();
	submit(d);
	fake_runs();
	assert_int_not_equal(d->told, d->k);
	await(d, d->last_id);
	assert_int_equal(d->told, d->k);
}

static void test_that_is_made_up_for_before_the_next(void **state)
{
	struct decode *d = *state;
	uint32_t layer = d->layer;
	uint64_t id;

	steps_in_a_row(d);
	layer = d->layer;
	fake_is_impatient();
	id = submit(d);
	uint64_t next = submit(d);

	await(d, next);
	assert_did(d, id, d->k - 4096, layer);
	assert_did(d, next, d->k, (layer + 1) % LAYERS);
}

static void test_an_answer_that_comes_late_is_waited_for(void **state)
{
	struct decode *d = *state;
	uint64_t id, done, answer, *at;

	steps_in_a_row(d);
	at = &d->batch.frames[(d->last_id + 1) % BATCH_FRAMES].clock->answer;
	answer = *at;
	id = submit(d);
	fake_runs();
	uint64_t right = *at;

	*at = answer;
	assert_int_equal(batch_completed(&d->batch, &done), 0);
	assert_true(done < id);
	*at = right;
	assert_int_equal(batch_completed(&d->batch, &done), 0);
	assert_int_equal(done, id);
	assert_int_equal(fake.deeds[id].n, 1);
}

static void test_none_stands_where_batches_come_slowly(void **state)
{
	struct decode *d = *state;

	for (uint32_t i = 0; i < 40; i++) {
		fake.now_ns += LONG_NS;
		step(d);
	}
	assert_int_equal(fake.n_stood, 0);
}

static void test_a_first_layer_that_comes_slowly_is_not_waited_for(void **state)
{
	struct decode *d = *state;

	for (uint32_t i = 0; i < 60 * LAYERS; i++) {
		if (d->layer == 0) {
			assert_false(d->batch.stand.stands);
			fake.now_ns += LONG_NS;
		}
		step(d);
	}
	assert_true(fake.n_called >= 50 * (LAYERS - 1));
}

static void test_whoever_waits_for_the_stream_has_it_leave_first(void **state)
{
	struct decode *d = *state;
	struct backend_move move = {0, 1, 0, 2};

	steps_in_a_row(d);
	assert_int_equal(stand_leave(&d->batch), 0);
	assert_int_equal(batch_move(&d->batch, &shape, &move, 1), 0);
	step(d);
}

static void test_a_batch_has_the_device_a_while_after_it_has_begun(void **state)
{
	struct decode *d = *state;
	uint64_t id = submit(d);

	fake.now_ns += LONG_NS;
	assert_false(batch_settled(&d->batch, id));
	fake_runs();
	assert_false(batch_settled(&d->batch, id));
	fake.now_ns += 10000;
	assert_true(batch_settled(&d->batch, id));
	await(d, id);
}

static void test_what_comes_across_the_bus_takes_longer(void **state)
{
	struct decode *d = *state;
	uint64_t id;

	assert_int_equal(hosts_add(&d->batch.hosts, 0, 8 << 20), 0);
	id = submit(d);
	fake_runs();
	assert_false(batch_settled(&d->batch, id));
	fake.now_ns += 4020;
	assert_false(batch_settled(&d->batch, id));
	fake.now_ns += 10000;
	assert_true(batch_settled(&d->batch, id));
	await(d, id);
	hosts_drop(&d->batch.hosts, 0, 8 << 20);
}

/* As a kernel takes them, by the description or by the table. */
static void assert_described(const struct device_copy *copies, uint32_t n, bool in_a_row)
{
	const struct tables t = {.q = (struct device_copy *)(uintptr_t)copies};
	struct device_inbound in = {.copy_bytes = 512};

	tables_describe_copies(&t, n, &in);
	assert_int_equal(in.copy_stride != 0, in_a_row);
	for (uint32_t i = 0; i < n && in_a_row; i++) {
		assert_int_equal(in.copy_from + i * in.copy_stride, copies[i].from);
		assert_int_equal(in.copy_to + i * in.copy_bytes, copies[i].to);
	}
}

static void test_copies_in_a_row_are_described(void **state)
{
	const struct device_copy rows[] = {{4096, 512}, {5120, 1024}, {6144, 1536}, {7170, 2048}};
	const struct device_copy back[] = {{4096, 512}, {2048, 1024}};
	const struct device_copy one[] = {{4096, 512}, {4096, 1024}},
				 none[] = {{0, 512}, {512, 1024}};

	(void)state;
	assert_described(rows, 0, false);
	assert_described(rows, 1, true);
	assert_described(rows, 3, true);
	assert_described(rows, 4, false);
	assert_described(back, 2, true);
	assert_described(one, 2, false);
	assert_described(none, 2, false);
}

/* What the tables of so many rows take lies within what was counted for them. */
static void assert_counted(const struct decode *d, uint32_t n_rows, struct placement place)
{
	static char host[32 << 10];
	const struct backend_io io = {.q = 1 << 20, .o = 3 << 20};
	struct work_row rows[COUNTED_ROWS] = {0};
	uint32_t owner[COUNTED_ROWS] = {0};
	const struct work_list list = {.rows = rows, .n_rows = n_rows};
	const struct backend_job job = {.shape = &shape,
					.tree = &d->tree,
					.list = &list,
					.io = &io,
					.owner = place.met ? owner : NULL};
	const struct batch_need need = {.place = place};
	struct queue_buffer device = {0};
	struct batch_frame frame = {.host.at = host, .device = &device};
	struct upload u = {.frame = &frame};
	size_t host_bytes = 0, device_bytes = 0;
	struct tables t;

	tables_count(&job, &need, &host_bytes, &device_bytes);
	assert_true(host_bytes <= sizeof(host));
	tables_make(&u, &job, &place, &t);
	assert_in_range(u.host_used, 1, host_bytes);
	assert_in_range(u.device_used, 1, device_bytes);
}

static void test_tables_lie_in_what_is_counted_for_them(void **state)
{
	for (uint32_t n = 1; n <= COUNTED_ROWS; n++) {
		assert_counted(*state, n, (struct placement){0});
		assert_counted(*state, n, (struct placement){.stage_q = true});
		assert_counted(*state, n, (struct placement){.stage_o = true});
		assert_counted(*state, n, (struct placement){.stage_q = true, .met = true});
	}
}

/* One more at once now and then, and anything in between. */
static void test_any_steps_are_done_once(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct decode *d = *state;

	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t layer = d->layer, n = 1 + oracle_below(&random, 3);
		uint64_t ids[3], k = d->k;

		for (uint32_t at = 0; at < n; at++) {
			if (oracle_below(&random, 8) == 0)
				fake_is_impatient();
			ids[at] = submit(d);
		}
		await(d, ids[n - 1]);
		for (uint32_t at = 0; at < n; at++)
			assert_did(d, ids[at], k + (at + 1) * 4096, (layer + at) % LAYERS);
		if (oracle_below(&random, 8) == 0)
			d->layer = oracle_below(&random, LAYERS);
		if (oracle_below(&random, 16) == 0)
			d->plan_id = 1 + oracle_below(&random, 40);
		if (oracle_below(&random, 16) == 0)
			assert_int_equal(stand_leave(&d->batch), 0);
	}
	assert_true(fake.n_called > 100);
}

/* Tokens that a plan made ahead has taken in are in no list: none can be made of it for those rows
 * alone that are wanted. */
static void test_a_plan_made_ahead_is_for_all_rows_or_none(void **state)
{
	struct decode *d = *state;
	struct work_slice slices[2] = {{8, 0, 20}, {9, 0, 20}}, slots[2];
	const struct work_node nodes[2] = {{WORK_NONE, 0, 20, 0, 1}, {WORK_NONE, 0, 20, 1, 1}};
	const struct work_query queries[2] = {{.node = 0, .pos = 19, .n_rows = 1},
					      {.node = 1, .pos = 19, .n_rows = 1}};
	const struct work_tree tree = {nodes, slices, queries, 2, 2, 2};
	struct backend_io io[2];
	struct work_list list = {0};
	struct backend_job job = {
		.shape = &shape, .tree = &tree, .list = &list, .io = io, .plan_id = 9};
	struct backend_batch one = {&job, 1, NULL, 0};
	uint64_t id;

	make_plan(&tree, &list);
	assert_int_equal(batch_make_ahead(&d->batch, &job), 0);
	for (uint32_t i = 0; i < 2; i++) {
		slots[i] = (struct work_slice){slices[i].page, 20, 1};
		io[i] = (struct backend_io){.q = 1 << 20,
					    .k = 4096,
					    .v = 2 << 20,
					    .o = i ? 0 : 3 << 20,
					    .slots = &slots[i],
					    .n_slots = 1};
		list.rows[i].pos++;
	}
	assert_int_equal(batch_advance(&d->batch, &job), 0);
	job.advanced = true;
	assert_int_equal(batch_submit(&d->batch, &one, &id), -ESTALE);
	io[1].o = 4 << 20;
	assert_int_equal(batch_submit(&d->batch, &one, &id), 0);
	fake_runs();
	plan_list_done(&list);
}

/* So many words of plans have gone up since then. */
static uint32_t count_patches(uint32_t since)
{
	uint32_t n = 0;

	for (uint32_t i = since; i < fake.end; i++)
		n += fake.graphs[i % FAKE_GRAPHS].in.n_patches;
	return n;
}

static void run_layers(struct decode *d, const struct backend_job *job, bool attends)
{
	struct batch_layers layers;
	uint64_t id;

	assert_int_equal(batch_layers_begin(&d->batch, job, 0, &layers), 0);
	if (attends)
		assert_int_equal(batch_layers_attend(&layers, 0), 0);
	assert_int_equal(batch_layers_end(&layers, false, &id), 0);
	await(d, id);
}

/* A program's run that ends before its layer's attention: the next one's has the same plan. */
static void test_a_plan_is_brought_up_to_date_whoever_attends_by_it(void **state)
{
	struct decode *d = *state;
	struct work_slice slice = {8, 0, 20}, slot = {8, 20, 1};
	const struct work_node node = {WORK_NONE, 0, 20, 0, 1};
	const struct work_query query = {.node = 0, .pos = 19, .n_rows = 1};
	const struct work_tree tree = {&node, &slice, &query, 1, 1, 1};
	struct backend_io io = {.q = 1 << 20, .o = 3 << 20, .slots = &slot, .n_slots = 1};
	struct work_list list = {0};
	struct backend_job job = {
		.shape = &shape, .tree = &tree, .list = &list, .io = &io, .plan_id = 9};
	uint32_t since;

	make_plan(&tree, &list);
	run_layers(d, &job, true);
	for (; slot.first < 25; slot.first++) { /* into the next KV block */
		list.rows[0].pos++;
		assert_in_range(batch_advance(&d->batch, &job), 0, BACKEND_SOON);
	}
	slot.first--;
	job.advanced = true;
	since = fake.end;
	run_layers(d, &job, false);
	assert_true(count_patches(since) > 0);
	since = fake.end;
	run_layers(d, &job, true);
	assert_int_equal(count_patches(since), 0);
	plan_list_done(&list);
}

/* A part of a pass, of so many layers, that tells so much; returns where. */
static const char *run_pass(struct decode *d, uint32_t n, bool ended, size_t bytes, uint64_t *id)
{
	struct backend_io io = {.q = 1 << 20, .o = 3 << 20, .slots = &d->slot, .n_slots = 1};
	const struct backend_job job = {
		.shape = &shape, .tree = &d->tree, .list = &d->list, .io = &io, .plan_id = 11};
	struct batch_layers layers;
	char *at;

	assert_int_equal(batch_layers_begin(&d->batch, &job, bytes, &layers), 0);
	at = batch_layers_host(&layers, bytes);
	memset(at, 0, bytes);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(batch_layers_attend(&layers, i), 0);
	assert_int_equal(batch_layers_end(&layers, ended, id), 0);
	return at;
}

static void test_a_prompts_plan_is_there_until_the_pass_has_ended(void **state)
{
	struct decode *d = *state;
	uint64_t id;

	d->query = (struct work_query){.node = 0, .pos = 8 * PAGE_TOKENS - 4, .n_rows = 4};
	d->slot = (struct work_slice){7, PAGE_TOKENS - 4, 4};
	make_plan(&d->tree, &d->list);
	run_pass(d, LAYERS, false, 0, &id);
	assert_non_null(plan_find(&d->batch, 11, &shape));
	run_pass(d, 0, true, 0, &id);
	assert_null(plan_find(&d->batch, 11, &shape));
	await(d, id);
}

static void test_memory_is_pinned_once_not_for_each_frame(void **state)
{
	struct decode *d = *state;
	uint32_t before = fake.n_pinned;
	uint64_t id;

	for (uint32_t i = 0; i < 6 * BATCH_FRAMES; i++) {
		run_pass(d, 0, false, (1 + 8 * (i / BATCH_FRAMES / 2)) * MIB, &id);
		await(d, id);
		assert_int_equal(fake.n_pinned, before + i / BATCH_FRAMES / 2);
	}
}

static void test_what_is_under_way_keeps_its_memory(void **state)
{
	struct decode *d = *state;
	uint32_t before = fake.n_pinned;
	const char *first, *second;
	uint64_t id;

	first = run_pass(d, 0, false, 8 * MIB, &id);
	second = run_pass(d, 0, false, 8 * MIB, &id);
	assert_true(second + 8 * MIB <= first || first + 8 * MIB <= second);
	assert_int_equal(fake.n_pinned, before + 2);
	await(d, id);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_steps_in_a_row_are_called),
		TEST(test_another_layer_is_launched),
		TEST(test_another_plan_is_launched),
		TEST(test_a_launch_that_nobody_called_is_no_harm),
		TEST(test_one_that_had_left_when_it_was_called_is_made_up_for),
		TEST(test_one_that_has_left_tells_nobody),
		TEST(test_that_is_made_up_for_before_the_next),
		TEST(test_an_answer_that_comes_late_is_waited_for),
		TEST(test_none_stands_where_batches_come_slowly),
		TEST(test_a_first_layer_that_comes_slowly_is_not_waited_for),
		TEST(test_whoever_waits_for_the_stream_has_it_leave_first),
		TEST(test_a_batch_has_the_device_a_while_after_it_has_begun),
		TEST(test_what_comes_across_the_bus_takes_longer),
		TEST(test_copies_in_a_row_are_described),
		TEST(test_tables_lie_in_what_is_counted_for_them),
		TEST(test_any_steps_are_done_once),
		TEST(test_a_plan_is_brought_up_to_date_whoever_attends_by_it),
		TEST(test_a_prompts_plan_is_there_until_the_pass_has_ended),
		TEST(test_memory_is_pinned_once_not_for_each_frame),
		TEST(test_what_is_under_way_keeps_its_memory),
		TEST(test_a_plan_made_ahead_is_for_all_rows_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
