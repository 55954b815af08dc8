/*
 * group_cuda_test.c - several GPUs as one: the same answers as float64 within the bounds of one,
 * nothing but rows between them, and a device that never comes. The twin of group_test.c.
 *
 * argv[1] is the module. COPPICE_DEVICES names the devices, with commas (default 0,0,0,0: one GPU
 * can be several). Without a device the program says so and exits with 77, which CTest counts as
 * skipped.
 */
#include "group_growing.h"
#include "kernels/cuda/module/module.h"
#include "kernels/group/exchange.h"
#include "kernels/group/group.h"
#include "world.h"
#include "proto/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define SKIPPED 77
#define DEVICES_MAX 8u
#define TIMEOUT_MS 5000u
#define SHORT_MS 300u
#define LSE_BOUND 1e-4 /* as cuda_test.c */

/* As cuda_test.c. A part is rounded once more before the merge, but parts of n devices count for 1
 * / n each. */
static const double bounds[] = {[WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};
static const struct backend_ops *cuda;
static cuda_arena_copy arena_copy;
static char names[DEVICES_MAX][64];
static uint32_t n_names;
/* which makes its connections anew for each group, and takes a second for it */
static bool by_nccl;

static void members_init(uint32_t n, struct group_device *devices)
{
	for (uint32_t i = 0; i < n; i++)
		devices[i] = (struct group_device){cuda, names[i]};
}

/* ---- answers -------------------------------------------------------------------------------- */

static struct work_shape shape_make(uint32_t n_kv_heads, uint32_t ratio, uint32_t head_dim,
				    enum work_dtype dtype)
{
	return (struct work_shape){.n_layers = 2,
				   .n_q_heads = n_kv_heads * ratio,
				   .n_kv_heads = n_kv_heads,
				   .head_dim = head_dim,
				   .page_tokens = 32,
				   .dtype = dtype,
				   .scale = 1 / sqrtf((float)head_dim)};
}

static uint64_t exchanged(const struct world *w, uint32_t n)
{
	struct group_stats stats;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		group_stats(w->backend, i, &stats);
		bytes += stats.exchange_bytes;
	}
	return bytes;
}

static uint64_t wanted_rows(const struct world *w)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < w->tree.n_queries; i++)
		n += w->silent[i] ? 0 : w->queries[i].n_rows;
	return n;
}

/* Of KV, that was to go from device to device. */
static uint64_t moved(const struct world *w)
{
	struct backend_counters counters;

	w->ops->counters(w->backend, &counters);
	return counters.kv_bytes_moved;
}

/* That devices give each other: each row's owner has those of all others, or by NCCL all have all,
 * who wants them or not. */
static uint64_t formula_bytes(const struct world *w, uint32_t n)
{
	uint64_t rows = by_nccl ? (uint64_t)n * world_rows(w) : wanted_rows(w);

	return w->shape.split == WORK_TOKENS ? (n - 1) * rows * group_met_row_bytes(&w->shape) : 0;
}

/* Of all rows, by a batch. */
static void check_answers(struct world *w, uint32_t n, struct world_answer *ret)
{
	struct plan_config config;
	double error, lse;

	plan_config_init(&config, PLAN_AUTO, &w->shape, 66);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, ret);
	error = world_error(w, 0, w->tree.n_queries, ret, &lse);
	if (error > bounds[w->shape.dtype] || lse > LSE_BOUND)
		fail_msg("%u devices, split %d, dim %u, dtype %d: error %g, LSE %g", n,
			 (int)w->shape.split, w->shape.head_dim, (int)w->shape.dtype, error, lse);
}

static void check_world(struct world *w, uint32_t n)
{
	struct world_answer answer, again;
	uint64_t before = exchanged(w, n);

	check_answers(w, n, &answer);
	assert_int_equal(exchanged(w, n) - before, formula_bytes(w, n));
	assert_int_equal(moved(w), 0);
	check_answers(w, n, &again);
	assert_memory_equal(answer.raw, again.raw, answer.raw_bytes);
	world_answer_done(&answer);
	world_answer_done(&again);
}

static void run_world(uint32_t n, const struct work_shape *shape, uint32_t node_tokens,
		      struct oracle_random *random)
{
	struct group_device devices[DEVICES_MAX];
	struct group_config group = {devices, n, TIMEOUT_MS};
	struct world_want want = {.ops = &backend_group,
				  .group = &group,
				  .extent_bytes = 2 * MIB * n,
				  .shape = *shape,
				  .n_nodes = 1 + oracle_below(random, 6),
				  .n_queries = 1 + oracle_below(random, 8),
				  .node_tokens = node_tokens,
				  .drafts = true};
	struct world w;

	members_init(n, devices);
	world_init(&w, &want, random);
	check_world(&w, n);
	world_done(&w);
}

static void run_worlds(enum work_split split, const char *name)
{
	static const uint32_t dims[] = {64, 96, 128, 192, 256};
	struct oracle_random random = oracle_seed(name);

	/* where nothing is exchanged NCCL has no part */
	for (uint32_t n = by_nccl && split != WORK_TOKENS ? n_names : 2; n <= n_names; n++) {
		for (uint32_t i = 0; i < (by_nccl ? 5 : 10); i++) {
			/* of more than 16 a token has several rows on the device */
			uint32_t ratio = i % 4 == 3 ? 16 * (2 + oracle_below(&random, 3))
						    : 1 + oracle_below(&random, 8);
			struct work_shape shape =
				shape_make(split == WORK_HEADS ? n : 1 + oracle_below(&random, 3),
					   ratio, dims[i % 5], i % 2 ? WORK_BF16 : WORK_FP16);

			shape.split = split;
			shape.home = split == WORK_HOME ? oracle_below(&random, n) : 0;
			run_world(n, &shape, 150, &random);
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

static uint32_t n_abandoned;

/* A batch whose last job only the last device has, under a plan that is gone: it refuses that, what
 * all have begun of the first job is abandoned. Then the batch itself. One that only brings tokens
 * needs no plan. */
static int submit_after_refusal(struct backend *b, const struct backend_batch *batch,
				uint64_t *ret_id)
{
	struct backend_job jobs[] = {batch->jobs[0], batch->jobs[0]};
	struct work_shape shape = *batch->jobs[0].shape;
	struct backend_batch doomed = {jobs, 2};
	uint64_t id;

	assert_int_equal(batch->n_jobs, 1);
	if (batch->jobs[0].list->n_rows == 0)
		return backend_group.submit(b, batch, ret_id);
	shape.split = WORK_HOME;
	shape.home = n_names - 1;
	jobs[1].shape = &shape;
	jobs[1].plan_id = UINT64_MAX;
	jobs[1].advanced = true;
	assert_int_equal(backend_group.submit(b, &doomed, &id), -ESTALE);
	n_abandoned++;
	return backend_group.submit(b, batch, ret_id);
}

static void test_what_one_device_refuses_all_abandon(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct backend_ops ops = backend_group;
	struct group_device devices[DEVICES_MAX];
	struct group_config group = {devices, n_names, TIMEOUT_MS};
	struct world_want want = {.ops = &ops,
				  .group = &group,
				  .extent_bytes = 4 * MIB * n_names,
				  .shape = shape_make(2, 4, 128, WORK_BF16),
				  .n_nodes = 4,
				  .n_queries = 8,
				  .node_tokens = 150};
	struct world_answer answer;
	struct world w;

	(void)state;
	ops.submit = submit_after_refusal;
	members_init(n_names, devices);
	world_init(&w, &want, &random);
	n_abandoned = 0;
	check_answers(&w, n_names, &answer);
	assert_int_equal(n_abandoned, 1);
	world_answer_done(&answer);
	world_done(&w);
}

/* More of it than an inbox holds. */
static void test_many_rows_are_exchanged_in_rounds(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct group_device devices[DEVICES_MAX];
	struct group_config group = {devices, n_names, TIMEOUT_MS};
	struct world_want want = {.ops = &backend_group,
				  .group = &group,
				  .extent_bytes = 4 * MIB * n_names,
				  .shape = shape_make(8, 8, 128, WORK_BF16),
				  .n_nodes = 4,
				  .n_queries = WORLD_QUERIES,
				  .node_tokens = 60};
	struct world w;

	(void)state;
	want.shape.n_layers = 1;
	members_init(n_names, devices);
	world_init(&w, &want, &random);
	check_world(&w, n_names);
	world_done(&w);
}

/* ---- arenas --------------------------------------------------------------------------------- */

/* What the device says of itself. */
static void find_uuid(struct backend *member, uint8_t *ret)
{
	struct backend_arena arena = {0};

	assert_int_equal(cuda->arena_new(member, 2 * MIB, &arena), 0);
	memcpy(ret, arena.device, sizeof(arena.device));
	close(arena.fd);
	cuda->arena_free(member, arena.base);
}

/* Of the second device; false: it is the first one, too, or does not reach it. */
static bool arena_of_second(struct world *w, struct backend_arena *ret)
{
	uint8_t first[BACKEND_DEVICE_BYTES];

	if (n_names < 2 || group_notice(w->backend))
		return false;
	*ret = (struct backend_arena){0};
	find_uuid(group_backend(w->backend, 0), first);
	find_uuid(group_backend(w->backend, 1), ret->device);
	if (memcmp(first, ret->device, sizeof(first)) == 0)
		return false;
	memcpy(first, ret->device, sizeof(first));
	assert_int_equal(backend_group.arena_new(w->backend, 2 * MIB, ret), 0);
	assert_memory_equal(ret->device, first, sizeof(first));
	return true;
}

/* All queries once more, as their KV is in the pages now, with O from there on. */
static void run_into(struct world *w, const struct plan_config *config, uint64_t o)
{
	uint64_t bytes = world_row_values(w) * work_dtype_bytes(w->shape.dtype), id, done = 0;
	struct backend_io io[WORLD_QUERIES] = {0};
	struct work_list list = {0};
	struct backend_job job = {.shape = &w->shape,
				  .tree = &w->tree,
				  .list = &list,
				  .io = io,
				  .layer = w->shape.n_layers - 1};
	struct backend_batch batch = {&job, 1};

	for (uint32_t i = 0; i < w->tree.n_queries; i++) {
		io[i].q_stride = io[i].o_stride = bytes;
		io[i].q = world_address(w, w->q_raw) + w->first_row[i] * bytes;
		io[i].o = w->silent[i] ? 0 : o + w->first_row[i] * bytes;
	}
	assert_int_equal(plan_make(config, &w->tree, &list), 0);
	assert_int_equal(backend_group.submit(w->backend, &batch, &id), 0);
	while (done < id)
		assert_int_equal(backend_group.completed(w->backend, &done), 0);
	plan_list_done(&list);
}

/* Who has O where it is wanted merges the rows, and gives nobody any. */
static void check_arena(struct world *w, const struct backend_arena *arena)
{
	struct backend *second = group_backend(w->backend, 1);
	struct world_answer answer;
	struct plan_config config;
	struct group_stats before, after;
	double lse;

	plan_config_init(&config, PLAN_AUTO, &w->shape, 66);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, &answer);
	assert_true(answer.raw_bytes <= 2 * MIB);
	group_stats(w->backend, 1, &before);
	run_into(w, &config, arena->base);
	group_stats(w->backend, 1, &after);
	assert_true(by_nccl || after.exchange_bytes == before.exchange_bytes);
	assert_int_equal(arena_copy(second, answer.raw, (void *)(uintptr_t)arena->base,
				    answer.raw_bytes),
			 0);
	oracle_decode(w->shape.dtype, answer.o, answer.raw, world_rows(w) * world_row_values(w));
	assert_true(world_error(w, 0, w->tree.n_queries, &answer, &lse) <= bounds[w->shape.dtype]);
	world_answer_done(&answer);
}

static void test_a_device_arena_is_on_the_device_that_is_named(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct group_device devices[DEVICES_MAX];
	struct group_config group = {devices, n_names, TIMEOUT_MS};
	struct world_want want = {.ops = &backend_group,
				  .group = &group,
				  .extent_bytes = 2 * MIB * n_names,
				  .shape = shape_make(2, 4, 128, WORK_BF16),
				  .n_nodes = 4,
				  .n_queries = 6,
				  .node_tokens = 150};
	struct backend_arena arena;
	struct world w;
	bool is_there;

	(void)state;
	members_init(n_names, devices);
	world_init(&w, &want, &random);
	is_there = arena_of_second(&w, &arena);
	if (is_there) {
		check_arena(&w, &arena);
		backend_group.arena_free(w.backend, arena.base);
	}
	world_done(&w);
	if (!is_there)
		skip();
}

static void test_a_plan_takes_in_the_next_tokens(void **state)
{
	struct group_device devices[DEVICES_MAX];
	struct group_config group = {devices, n_names, TIMEOUT_MS};
	struct work_shape shape = shape_make(4, 1, 128, WORK_FP16);

	(void)state;
	members_init(n_names, devices);
	shape.n_layers = 1;
	for (int split = WORK_TOKENS; split <= WORK_HEADS; split++) {
		shape.split = (enum work_split)split;
		if (split == WORK_TOKENS || shape.n_kv_heads % n_names == 0)
			growing_check(&group, &shape);
	}
}

/* ---- faults --------------------------------------------------------------------------------- */

static void open_two(struct backend **ret)
{
	char notice[256] = "", error[256] = "";

	for (uint32_t i = 0; i < 2; i++) {
		struct backend_config config = {.pool_bytes = 4 * MIB,
						.extent_bytes = 2 * MIB,
						.device = names[i]};

		assert_int_equal(cuda->open(&config, &ret[i], error, sizeof(error)), 0);
		assert_int_equal(cuda->extent_commit(ret[i], 0), 0);
	}
	const struct backend_meeting meeting = {.members = ret,
						.n = 2,
						.n_all = 2,
						.timeout_ms = SHORT_MS};

	if (cuda->meet(&meeting, notice, error, sizeof(error)) != 0)
		fail_msg("%s", error);
}

/* One GPU is no two ranks of NCCL, if there is NCCL at all. */
static void test_what_nccl_refuses_is_said(void **state)
{
	struct group_device devices[] = {{cuda, names[0]}, {cuda, names[0]}};
	struct group_config group = {devices, 2, TIMEOUT_MS, 0};
	struct backend_config config = {.pool_bytes = 4 * MIB,
					.extent_bytes = 4 * MIB,
					.group = &group};
	struct backend *b = NULL;
	char error[256] = "";

	(void)state;
	setenv("COPPICE_EXCHANGE", "nccl", 1);
	assert_int_not_equal(backend_group.open(&config, &b, error, sizeof(error)), 0);
	unsetenv("COPPICE_EXCHANGE");
	if (!strstr(error, "COPPICE_EXCHANGE=nccl: "))
		fail_msg("\"%s\" does not say that it is NCCL", error);
}

/* A row over a page of zeros, on the first device alone. */
static int submit_alone(struct backend *b, const struct work_shape *shape, uint64_t q, uint64_t o)
{
	struct work_slice slice = {0, 0, 16};
	struct work_node node = {.parent = WORK_NONE, .n_tokens = 16, .n_slices = 1};
	struct work_query query = {.node = 0, .pos = 15, .n_rows = 1};
	struct work_tree tree = {&node, &slice, &query, 1, 1, 1};
	struct backend_io io = {.q = q, .o = o};
	struct work_list list = {0};
	struct plan_config config;
	uint32_t owner = 0;
	uint64_t id;

	plan_config_init(&config, PLAN_AUTO, shape, 66);
	config.tile_rows = cuda->tile_rows(b, shape);
	assert_int_equal(plan_make(&config, &tree, &list), 0);

	struct backend_job job = {
		.shape = shape, .tree = &tree, .list = &list, .io = &io, .owner = &owner};
	struct backend_batch batch = {&job, 1};
	int r = cuda->submit(b, &batch, &id);

	if (r == 0)
		r = cuda->conclude(b);
	plan_list_done(&list);
	return r;
}

static void test_a_device_that_never_comes_is_waited_for_so_long(void **state)
{
	struct work_shape shape = shape_make(1, 1, 64, WORK_FP16);
	struct backend *b[2];
	void *memory = NULL;
	uint64_t base, done = 0, start = clock_now_ms();
	int r = 0;

	(void)state;
	open_two(b);
	assert_int_equal(posix_memalign(&memory, 4096, 4096), 0);
	memset(memory, 0, 4096);
	assert_int_equal(cuda->arena_attach(b[0], memory, 4096, &base), 0);
	assert_int_equal(submit_alone(b[0], &shape, base, base + 2048), 0);
	while (r == 0 && done == 0 && clock_now_ms() - start < 20 * SHORT_MS)
		r = cuda->completed(b[0], &done);
	assert_int_equal(r, -EIO);
	assert_true(clock_now_ms() - start >= SHORT_MS);
	assert_string_equal(cuda->fault(b[0]), "it waited for device 1 in vain");
	cuda->arena_detach(b[0], base, 4096);
	cuda->close(b[0]);
	cuda->close(b[1]);
	free(memory);
}

/* ---- the program ---------------------------------------------------------------------------- */

static void read_names(const char *text)
{
	while (*text && n_names < DEVICES_MAX) {
		size_t n = strcspn(text, ",");

		snprintf(names[n_names++], sizeof(names[0]), "%.*s", (int)n, text);
		text += n + (text[n] == ',');
	}
}

static bool has_device(void)
{
	struct backend_config config = {.pool_bytes = 2 * MIB,
					.extent_bytes = 2 * MIB,
					.device = names[0]};
	struct backend *b = NULL;
	char error[256] = "";

	if (cuda->open(&config, &b, error, sizeof(error)) != 0) {
		fprintf(stderr, "group_cuda_test: %s\n", error);
		return false;
	}
	cuda->close(b);
	return true;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_that_share_tokens_answer_as_one),
		cmocka_unit_test(test_devices_that_share_heads_answer_as_one),
		cmocka_unit_test(test_a_device_that_has_all_answers_for_all),
		cmocka_unit_test(test_what_one_device_refuses_all_abandon),
		cmocka_unit_test(test_many_rows_are_exchanged_in_rounds),
		cmocka_unit_test(test_a_device_arena_is_on_the_device_that_is_named),
		cmocka_unit_test(test_a_plan_takes_in_the_next_tokens),
	};
	const struct CMUnitTest faults[] = {
		cmocka_unit_test(test_a_device_that_never_comes_is_waited_for_so_long),
		cmocka_unit_test(test_what_nccl_refuses_is_said),
	};
	const char *text = getenv("COPPICE_DEVICES"), *way = getenv("COPPICE_EXCHANGE");
	void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	cuda_ops find = NULL;
	int n_failed;

	if (module) {
		*(void **)&find = dlsym(module, CUDA_MODULE_OPS);
		*(void **)&arena_copy = dlsym(module, CUDA_MODULE_ARENA_COPY);
	}
	if (!find || !arena_copy) {
		fprintf(stderr, "group_cuda_test: %s\n", dlerror());
		return 1;
	}
	cuda = find();
	read_names(text ? text : "0,0,0,0");
	if (!has_device())
		return SKIPPED;
	by_nccl = way && strcmp(way, "nccl") == 0;
	n_failed = cmocka_run_group_tests(tests, NULL, NULL);
	/* those are of peer stores; NCCL has no limit of its own to a wait */
	if (!by_nccl)
		n_failed += cmocka_run_group_tests(faults, NULL, NULL);
	return n_failed;
}
