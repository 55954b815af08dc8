/* backend_test.c - the CPU backend's own promises: refusals, pool, appends, moves, counters. */
#include "kernels/backend.h"
#include "proto/clock.h"
#include "kernels/cpu/vec.h"
#include "kernels/cpu/weights.h"
#include "kernels/program/backend_program.h"
#include "played_cores.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define MOST_THREADS 1024u /* that the key takes */

static struct backend *open_small(void)
{
	struct backend_config config = {8 * MIB, 2 * MIB, 2, NULL};
	struct backend *b = NULL;

	assert_int_equal(backend_cpu.open(&config, &b, NULL, 0), 0);
	return b;
}

static struct work_shape shape_small(void)
{
	return (struct work_shape){.n_layers = 2,
				   .n_q_heads = 4,
				   .n_kv_heads = 2,
				   .head_dim = 64,
				   .page_tokens = 32,
				   .dtype = WORK_FP32,
				   .scale = 0.125f};
}

static void assert_open_refused(struct backend_config config, const char *word)
{
	struct backend *b = NULL;
	char error[256] = "";

	assert_int_equal(backend_cpu.open(&config, &b, error, sizeof(error)), -EINVAL);
	assert_null(b);
	assert_non_null(strstr(error, word));
}

static void test_open_refuses_odd_sizes_in_a_sentence(void **state)
{
	(void)state;
	assert_open_refused((struct backend_config){8 * MIB, 3 * MIB, 1, NULL}, "extents of 3M");
	assert_open_refused((struct backend_config){8 * MIB, 0, 1, NULL}, "extents of 0");
	assert_open_refused((struct backend_config){7 * MIB, 2 * MIB, 1, NULL}, "a pool of 7M");
	assert_open_refused((struct backend_config){0, 2 * MIB, 1, NULL}, "a pool of 0");
}

static void test_open_refuses_an_unknown_instruction_set(void **state)
{
	(void)state;
	assert_int_equal(setenv("COPPICE_CPU_ISA", "abacus", 1), 0);
	assert_open_refused((struct backend_config){8 * MIB, 2 * MIB, 1, NULL}, "abacus");
	unsetenv("COPPICE_CPU_ISA");
}

static void assert_shape_refused(struct backend *b, struct work_shape shape, const char *word)
{
	char error[256] = "";

	assert_int_equal(backend_cpu.page_bytes(b, &shape, error, sizeof(error)), 0);
	assert_non_null(strstr(error, word));
}

#define REFUSED(b, field, value, word) \
	do { \
		struct work_shape shape = shape_small(); \
		shape.field = (value); \
		assert_shape_refused(b, shape, word); \
	} while (0)

static void test_page_bytes_refuses_in_a_sentence_what_it_cannot_do(void **state)
{
	struct backend *b = open_small();

	(void)state;
	REFUSED(b, head_dim, 72, "head_dim 72");
	REFUSED(b, head_dim, 0, "head_dim 0");
	REFUSED(b, head_dim, 272, "head_dim 272");
	REFUSED(b, n_q_heads, 2 * 129, "129 ");
	REFUSED(b, n_q_heads, 2 * 1024, "1024 ");
	REFUSED(b, n_q_heads, 5, "multiple");
	REFUSED(b, n_q_heads, 0, "query heads");
	REFUSED(b, n_kv_heads, 0, "KV heads");
	REFUSED(b, n_layers, 0, "layers");
	REFUSED(b, page_tokens, 48, "page_tokens 48");
	REFUSED(b, dtype, 7, "dtype 7");
	REFUSED(b, n_layers, 1000, "larger than an extent");
	REFUSED(b, n_layers, UINT32_MAX, "larger than an extent");
	backend_cpu.close(b);
}

static void test_page_bytes_are_those_of_all_layers_and_heads(void **state)
{
	struct backend *b = open_small();
	struct work_shape shape = shape_small();

	(void)state;
	assert_int_equal(backend_cpu.page_bytes(b, &shape, NULL, 0), 2 * 2 * 2 * 32 * 64 * 4);
	shape.dtype = WORK_BF16;
	assert_int_equal(backend_cpu.page_bytes(b, &shape, NULL, 0), 2 * 2 * 2 * 32 * 64 * 2);
	backend_cpu.close(b);
}

static void test_extents_are_committed_once_and_only_where_they_are(void **state)
{
	struct backend *b = open_small();

	(void)state;
	assert_int_equal(backend_cpu.extent_commit(b, 3), 0);
	assert_int_equal(backend_cpu.extent_commit(b, 3), -EINVAL);
	assert_int_equal(backend_cpu.extent_commit(b, 4), -EINVAL);
	backend_cpu.extent_release(b, 3);
	assert_int_equal(backend_cpu.extent_commit(b, 3), 0);
	backend_cpu.close(b);
}

#define WEIGHTS_BYTES (512 * MIB)

struct taking {
	pthread_t thread;
	struct backend *b;
	uint64_t ns;
	atomic_bool done;
};

static void *take_weights(void *arg)
{
	struct taking *t = arg;
	const struct backend_program_ops *ops = backend_cpu.program;
	static const char piece[2 * MIB];
	struct backend_weights *weights = NULL;
	uint64_t begin_ns = clock_now_ns();
	int r = ops->weights_new(t->b, WEIGHTS_BYTES, &weights);

	for (uint64_t at = 0; at < WEIGHTS_BYTES && r == 0; at += sizeof(piece))
		r = ops->weights_put(t->b, weights, at, piece, sizeof(piece));
	ops->weights_free(t->b, weights);
	t->ns = clock_now_ns() - begin_ns;
	atomic_store(&t->done, true);
	return r ? arg : NULL;
}

static uint64_t map_and_unmap_ns(void)
{
	uint64_t begin_ns = clock_now_ns();
	void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(munmap(map, 4096), 0);
	return clock_now_ns() - begin_ns;
}

/* The kernel lets one of a process at its mappings at a time. */
static void test_nobody_waits_for_all_of_others_weights(void **state)
{
	struct taking taking = {.b = open_small()};
	uint64_t longest_ns = 0;
	void *failed = NULL;

	(void)state;
	assert_int_equal(pthread_create(&taking.thread, NULL, take_weights, &taking), 0);
	while (!atomic_load(&taking.done)) {
		uint64_t ns = map_and_unmap_ns();

		longest_ns = ns > longest_ns ? ns : longest_ns;
	}
	assert_int_equal(pthread_join(taking.thread, &failed), 0);
	assert_null(failed);
	assert_true(longest_ns < taking.ns / 2);
	backend_cpu.close(taking.b);
}

static uint64_t resident_bytes(const struct backend_weights *weights)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = weights->bytes / page, bytes = 0;
	unsigned char *there = malloc(n);

	assert_non_null(there);
	assert_int_equal(mincore(weights->base, weights->bytes, there), 0);
	for (uint64_t i = 0; i < n; i++)
		bytes += there[i] & 1 ? page : 0;
	free(there);
	return bytes;
}

/* Who has them asked for may be gone before seconds' worth of pages are there. */
static void test_weights_take_memory_as_they_are_put(void **state)
{
	const struct backend_program_ops *ops = backend_cpu.program;
	struct backend_weights *weights = NULL;
	struct backend *b = open_small();

	(void)state;
	assert_int_equal(ops->weights_new(b, 16 * MIB, &weights), 0);
	assert_int_equal(resident_bytes(weights), 0);
	assert_int_equal(ops->weights_put(b, weights, 5 * MIB, NULL, 0), 0);
	assert_int_equal(resident_bytes(weights), 0);
	assert_int_equal(ops->weights_put(b, weights, 4 * MIB - 1, "ab", 2), 0);
	assert_int_equal(resident_bytes(weights), 4 * MIB);
	assert_memory_equal(weights->base + 4 * MIB - 1, "ab", 3);
	ops->weights_free(b, weights);
	backend_cpu.close(b);
}

static void test_closing_nothing_is_fine(void **state)
{
	(void)state;
	backend_cpu.close(NULL);
}

/* One row of one query over n keys at [first, first + n) of a page; K is 0, so that O is the mean
 * of V. */
struct probe {
	struct work_shape shape;
	struct work_query query;
	struct work_tree tree;
	struct work_row row;
	struct work_piece piece;
	struct work_tile tile;
	struct work_item item;
	uint32_t merge_first[2], merge_part;
	struct work_list list;
	float q[4][64], o[4][64], k[2][64], v[2][64];
};

static void probe_init(struct probe *p)
{
	*p = (struct probe){.shape = shape_small(),
			    .query = {.n_rows = 1},
			    .row = {.pos = 63},
			    .tile = {0, 1, 0, 1},
			    .item = {0, 1, 0, 1, 0, WORK_NONE},
			    .merge_first = {0, 1}};
	p->tree = (struct work_tree){.queries = &p->query, .n_queries = 1};
	p->list = (struct work_list){.rows = &p->row,
				     .items = &p->item,
				     .tiles = &p->tile,
				     .pieces = &p->piece,
				     .merge_first = p->merge_first,
				     .merge_parts = &p->merge_part,
				     .n_rows = 1,
				     .n_items = 1,
				     .n_tiles = 1,
				     .n_pieces = 1,
				     .n_parts = 1,
				     .kv_tokens_read = 1,
				     .kv_tokens_alone = 3};
}

static void probe_submit(struct probe *p, struct backend *b, const struct work_list *list,
			 const struct backend_io *io, uint32_t layer)
{
	struct backend_job job = {&p->shape, &p->tree, list, io, layer};
	struct backend_batch batch = {&job, 1};
	uint64_t id, done = 0;

	assert_int_equal(backend_cpu.submit(b, &batch, &id), 0);
	assert_int_equal(backend_cpu.completed(b, &done), 0);
	assert_int_equal(id, done);
}

static void probe_put(struct probe *p, struct backend *b, uint32_t layer, uint32_t page,
		      uint32_t row, float value)
{
	struct work_slice slot = {page, (uint16_t)row, 1};
	struct work_list nothing = {0};
	struct backend_io io = {.k = (uintptr_t)p->k,
				.v = (uintptr_t)p->v,
				.slots = &slot,
				.n_slots = 1};

	for (uint32_t i = 0; i < 128; i++)
		p->v[i / 64][i % 64] = value + (float)i;
	probe_submit(p, b, &nothing, &io, layer);
}

/* V of a row, as attention over it alone sees it. */
static void assert_row(struct probe *p, struct backend *b, uint32_t layer, uint32_t page,
		       uint32_t row, float value)
{
	struct backend_io io = {.q = (uintptr_t)p->q, .o = (uintptr_t)p->o};

	p->piece = (struct work_piece){page, (uint16_t)row, 1, row, row, 0, 1};
	probe_submit(p, b, &p->list, &io, layer);
	for (uint32_t i = 0; i < 256; i++)
		assert_true(p->o[i / 64][i % 64] == value + (float)(i / 128 * 64 + i % 64));
}

static void test_an_appended_row_is_read_back_from_any_page_of_any_extent(void **state)
{
	struct backend *b = open_small();
	uint32_t per_extent = 2 * MIB / (2 * 2 * 2 * 32 * 64 * 4);
	struct probe p;

	(void)state;
	probe_init(&p);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(backend_cpu.extent_commit(b, i), 0);
	for (uint32_t i = 0; i < 4 * per_extent; i += 5) {
		probe_put(&p, b, 0, i, i % 32, (float)i * 1000);
		probe_put(&p, b, 1, i, i % 32, (float)i * 1000 + 500);
	}
	for (uint32_t i = 0; i < 4 * per_extent; i += 5) {
		assert_row(&p, b, 0, i, i % 32, (float)i * 1000);
		assert_row(&p, b, 1, i, i % 32, (float)i * 1000 + 500);
	}
	backend_cpu.close(b);
}

/* A page of the one shape lies where one of the other would with the first one's bytes. */
static void test_jobs_of_two_shapes_have_each_their_own_pages(void **state)
{
	struct backend *b = open_small();
	struct probe large, small;

	(void)state;
	probe_init(&large);
	probe_init(&small);
	small.shape.n_layers = 1;
	small.shape.page_tokens = 16;
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	assert_int_equal(backend_cpu.extent_commit(b, 1), 0);
	probe_put(&large, b, 0, 16, 3, 1000);
	probe_put(&small, b, 0, 16, 3, 2000);
	assert_row(&large, b, 0, 16, 3, 1000);
	assert_row(&small, b, 0, 16, 3, 2000);
	backend_cpu.close(b);
}

/* Keys whose scores would be 0 and 0.08: V of both counts as much. */
static void test_subnormal_numbers_are_zero_where_they_may_take_long(void **state)
{
	struct backend *b = open_small();
	struct backend_io io;
	struct probe p;

	(void)state;
	if (!vec_select(NULL)->flushes)
		skip();
	probe_init(&p);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	probe_put(&p, b, 0, 0, 0, 0);
	for (uint32_t i = 0; i < 128; i++)
		p.k[i / 64][i % 64] = 1e-40f;
	probe_put(&p, b, 0, 0, 1, 1000);
	for (uint32_t i = 0; i < 256; i++)
		p.q[i / 64][i % 64] = 1e38f;
	io = (struct backend_io){.q = (uintptr_t)p.q, .o = (uintptr_t)p.o};
	p.piece = (struct work_piece){0, 0, 2, 0, 0, 0, 1};
	probe_submit(&p, b, &p.list, &io, 0);
	for (uint32_t i = 0; i < 256; i++)
		assert_true(p.o[i / 64][i % 64] == 500 + (float)(i / 128 * 64 + i % 64));
	backend_cpu.close(b);
}

static void test_moves_are_done_in_order_for_all_layers(void **state)
{
	struct backend *b = open_small();
	struct backend_move moves[] = {{0, 3, 1, 17}, {1, 17, 1, 18}, {0, 4, 0, 3}};
	struct probe p;

	(void)state;
	probe_init(&p);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	for (uint32_t layer = 0; layer < 2; layer++) {
		probe_put(&p, b, layer, 0, 3, 1000.0f + (float)layer);
		probe_put(&p, b, layer, 0, 4, 2000.0f + (float)layer);
	}
	assert_int_equal(backend_cpu.move(b, &p.shape, moves, 3), 0);
	for (uint32_t layer = 0; layer < 2; layer++) {
		assert_row(&p, b, layer, 1, 17, 1000.0f + (float)layer);
		assert_row(&p, b, layer, 1, 18, 1000.0f + (float)layer);
		assert_row(&p, b, layer, 0, 3, 2000.0f + (float)layer);
		assert_row(&p, b, layer, 0, 4, 2000.0f + (float)layer);
	}
	backend_cpu.close(b);
}

static void test_moved_keys_score_as_they_did(void **state)
{
	struct backend *b = open_small();
	struct backend_move move = {0, 5, 1, 26};
	struct backend_io io;
	struct probe p;
	float before[4], after[4];

	(void)state;
	probe_init(&p);
	p.shape.dtype = WORK_FP32;
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	for (uint32_t i = 0; i < 256; i++)
		p.q[i / 64][i % 64] = p.k[i / 64 % 2][i % 64] = sinf((float)i);
	probe_put(&p, b, 0, 0, 5, 1);
	io = (struct backend_io){.q = (uintptr_t)p.q, .o = (uintptr_t)p.o};
	io.lse = (uintptr_t)before;
	p.piece = (struct work_piece){0, 5, 1, 5, 5, 0, 1};
	probe_submit(&p, b, &p.list, &io, 0);
	assert_int_equal(backend_cpu.move(b, &p.shape, &move, 1), 0);
	io.lse = (uintptr_t)after;
	p.piece = (struct work_piece){1, 26, 1, 5, 5, 0, 1};
	probe_submit(&p, b, &p.list, &io, 0);
	assert_memory_equal(before, after, sizeof(before));
	assert_true(before[0] != 0);
	backend_cpu.close(b);
}

static void expect_zeroed(void (*make_new)(struct backend *b))
{
	struct backend *b = open_small();
	struct probe p;

	probe_init(&p);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	probe_put(&p, b, 0, 0, 0, 7);
	make_new(b);

	struct backend_io io = {.q = (uintptr_t)p.q, .o = (uintptr_t)p.o};

	p.piece = (struct work_piece){0, 0, 1, 0, 0, 0, 1};
	probe_submit(&p, b, &p.list, &io, 0);
	for (uint32_t i = 0; i < 256; i++)
		assert_true(p.o[i / 64][i % 64] == 0);
	backend_cpu.close(b);
}

static void release_and_commit(struct backend *b)
{
	backend_cpu.extent_release(b, 0);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
}

static void renew(struct backend *b)
{
	assert_int_equal(backend_cpu.extent_renew(b, 0), 0);
	assert_int_equal(backend_cpu.extent_commit(b, 0), -EINVAL);
}

static void test_a_released_extent_comes_back_zeroed(void **state)
{
	(void)state;
	expect_zeroed(release_and_commit);
	expect_zeroed(renew);
}

static void test_counters_count_batches_rows_and_bytes(void **state)
{
	struct backend *b = open_small();
	struct backend_counters before, after;
	struct probe p;

	(void)state;
	probe_init(&p);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	probe_put(&p, b, 0, 0, 0, 7);
	backend_cpu.counters(b, &before);
	assert_row(&p, b, 0, 0, 0, 7);
	backend_cpu.counters(b, &after);
	assert_int_equal(after.batches - before.batches, 1);
	assert_int_equal(after.rows - before.rows, 1);
	assert_int_equal(after.kv_bytes_read - before.kv_bytes_read, 2 * 2 * 64 * 4);
	assert_int_equal(after.kv_bytes_alone - before.kv_bytes_alone, 3 * 2 * 2 * 64 * 4);
	assert_true(after.busy_ns > before.busy_ns);
	backend_cpu.close(b);
}

static void test_a_batch_of_a_refused_shape_starts_nothing(void **state)
{
	struct backend *b = open_small();
	struct backend_job job;
	struct backend_batch batch = {&job, 1};
	struct backend_io io = {0};
	uint64_t id = 77;
	struct probe p;

	(void)state;
	probe_init(&p);
	p.shape.head_dim = 72;
	job = (struct backend_job){&p.shape, &p.tree, &p.list, &io, 0};
	assert_int_equal(backend_cpu.submit(b, &batch, &id), -EINVAL);
	assert_int_equal(id, 77);
	assert_int_equal(backend_cpu.completed(b, &id), 0);
	assert_int_equal(id, 0);
	backend_cpu.close(b);
}

static void test_a_query_without_output_is_only_appended(void **state)
{
	struct backend *b = open_small();
	struct work_slice slot = {0, 9, 1};
	struct backend_io io;
	struct probe p;

	(void)state;
	probe_init(&p);
	assert_int_equal(backend_cpu.extent_commit(b, 0), 0);
	io = (struct backend_io){.k = (uintptr_t)p.k, .v = (uintptr_t)p.v, .slots = &slot};
	io.n_slots = 1;
	for (uint32_t i = 0; i < 128; i++)
		p.v[i / 64][i % 64] = (float)i;
	p.piece = (struct work_piece){0, 9, 1, 9, 9, 0, 1};
	probe_submit(&p, b, &p.list, &io, 0);
	assert_row(&p, b, 0, 0, 9, 0);
	backend_cpu.close(b);
}

static struct backend_cost cost_of(uint32_t n_threads, uint32_t n_cores)
{
	const struct backend_config config = {8 * MIB, 2 * MIB, n_threads, NULL};
	const struct work_shape shape = shape_small();
	struct backend_cost cost;
	struct backend *b;

	played_cores = n_cores;
	assert_int_equal(backend_cpu.open(&config, &b, NULL, 0), 0);
	backend_cpu.cost(b, &shape, &cost);
	assert_true(backend_cpu.tile_rows(b, &shape) >= 16);
	backend_cpu.close(b);
	played_cores = 0;
	return cost;
}

static void assert_times(struct backend_cost one, struct backend_cost some, double times)
{
	assert_true(one.fixed_ns > 0 && one.fixed_ns == some.fixed_ns);
	assert_true(fabs(one.kv_ns_per_byte / some.kv_ns_per_byte / times - 1) < 1e-9);
	assert_true(fabs(one.row_ns_per_byte / some.row_ns_per_byte / times - 1) < 1e-9);
}

/* From the fewest that the key takes to the most, which cores are needed for, too: of threads that
 * have none of their own nothing is faster. */
static void test_the_cost_falls_with_threads_that_have_cores(void **state)
{
	const struct backend_cost one = cost_of(1, MOST_THREADS);

	(void)state;
	assert_times(one, cost_of(2, MOST_THREADS), 2);
	assert_times(one, cost_of(MOST_THREADS, MOST_THREADS), MOST_THREADS);
	assert_times(one, cost_of(1, 1), 1);
	assert_times(one, cost_of(MOST_THREADS, 2), 2);
	assert_times(one, cost_of(MOST_THREADS, 1), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_refuses_odd_sizes_in_a_sentence),
		cmocka_unit_test(test_open_refuses_an_unknown_instruction_set),
		cmocka_unit_test(test_page_bytes_refuses_in_a_sentence_what_it_cannot_do),
		cmocka_unit_test(test_page_bytes_are_those_of_all_layers_and_heads),
		cmocka_unit_test(test_extents_are_committed_once_and_only_where_they_are),
		cmocka_unit_test(test_nobody_waits_for_all_of_others_weights),
		cmocka_unit_test(test_weights_take_memory_as_they_are_put),
		cmocka_unit_test(test_closing_nothing_is_fine),
		cmocka_unit_test(test_an_appended_row_is_read_back_from_any_page_of_any_extent),
		cmocka_unit_test(test_jobs_of_two_shapes_have_each_their_own_pages),
		cmocka_unit_test(test_subnormal_numbers_are_zero_where_they_may_take_long),
		cmocka_unit_test(test_moves_are_done_in_order_for_all_layers),
		cmocka_unit_test(test_moved_keys_score_as_they_did),
		cmocka_unit_test(test_a_released_extent_comes_back_zeroed),
		cmocka_unit_test(test_counters_count_batches_rows_and_bytes),
		cmocka_unit_test(test_a_batch_of_a_refused_shape_starts_nothing),
		cmocka_unit_test(test_a_query_without_output_is_only_appended),
		cmocka_unit_test(test_the_cost_falls_with_threads_that_have_cores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
