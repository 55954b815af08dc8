/*
 * legs_test.c - attention over a path of which a leg sees a part at a time, against attention
 * over all of it at once: the CPU's backend, or with argv[1], the GPU's module, that one's. Without
 * a device the program says so and exits with 77.
 */
#include "device_ops.h"
#include "kernels/plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N_TOKENS 1000u
#define N_ROWS_MAX 200u
#define PAGE_TOKENS 32u
#define N_Q_HEADS 4u
#define N_KV_HEADS 2u
#define HEAD_DIM 64u
#define CASES 40u

static const struct backend_ops *ops = &backend_cpu;

struct fixture {
	struct backend *backend;
	struct work_shape shape;
	uint16_t *memory; /* K, V of all tokens, Q of the last, and two O and LSE */
	uint64_t base;
	struct work_slice slices[N_TOKENS / PAGE_TOKENS + 1];
	uint32_t n_slices;
};

/* Offsets in the arena. */
enum {
	Q_ROW = N_Q_HEADS * HEAD_DIM * 2,
	K_ROW = N_KV_HEADS * HEAD_DIM * 2,
	K_AT = 0,
	V_AT = K_AT + N_TOKENS * K_ROW,
	Q_AT = V_AT + N_TOKENS * K_ROW,
	O_AT = Q_AT + N_ROWS_MAX * Q_ROW,
	OTHER_O_AT = O_AT + N_ROWS_MAX * Q_ROW,
	LSE_AT = OTHER_O_AT + N_ROWS_MAX * Q_ROW,
	OTHER_LSE_AT = LSE_AT + N_ROWS_MAX * N_Q_HEADS * 4,
	ARENA_BYTES = OTHER_LSE_AT + N_ROWS_MAX * N_Q_HEADS * 4,
};

static float bf16_value(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

static uint32_t seed(void)
{
	const char *text = getenv("COPPICE_SEED");
	uint32_t value = text ? (uint32_t)strtoul(text, NULL, 0) : (uint32_t)time(NULL);

	print_message("seed %u\n", value);
	return value;
}

static uint32_t draw(uint32_t *random)
{
	*random = *random * 1664525 + 1013904223;
	return *random >> 8;
}

/* In (-2, 2), as bf16. */
static void fill(struct fixture *f, uint32_t *random)
{
	for (uint32_t i = 0; i < O_AT / 2; i++) {
		float value = (float)draw(random) / (float)(1 << 22) - 2;
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		f->memory[i] = (uint16_t)(bits >> 16);
	}
}

struct view {
	uint32_t begin, end; /* tokens of the path */
	uint32_t n_rows; /* the last of it, whatever the view */
	struct backend_io io;
};

static int run(struct fixture *f, const struct view *v, const struct backend_leg *leg)
{
	struct work_slice slices[N_TOKENS / PAGE_TOKENS + 1];
	struct work_node node = {.parent = WORK_NONE,
				 .pos = v->begin,
				 .n_tokens = v->end - v->begin};
	struct work_query query = {.pos = N_TOKENS - v->n_rows, .n_rows = v->n_rows};
	struct work_tree tree = {&node, slices, &query, 1, 0, 1};
	struct work_list list = {0};
	struct plan_config config;
	uint64_t id = 0, done = 0;

	for (uint32_t at = v->begin; at < v->end; tree.n_slices++) {
		uint32_t first = at % PAGE_TOKENS, count = PAGE_TOKENS - first;

		count = count < v->end - at ? count : v->end - at;
		slices[tree.n_slices] = (struct work_slice){f->slices[at / PAGE_TOKENS].page,
							    (uint16_t)first, (uint16_t)count};
		at += count;
	}
	node.n_slices = tree.n_slices;
	plan_config_init(&config, PLAN_AUTO, &f->shape, 4);
	config.tile_rows = ops->tile_rows(f->backend, &f->shape);
	assert_int_equal(plan_make(&config, &tree, &list), 0);
	const struct backend_job job = {
		.shape = &f->shape, .tree = &tree, .list = &list, .io = &v->io, .layer = 1};
	const struct backend_batch batch = {&job, 1};
	int r = leg ? ops->tier->leg(f->backend, &batch, leg, &id)
		    : ops->submit(f->backend, &batch, &id);

	while (!r && done < id)
		r = ops->completed(f->backend, &done);
	plan_list_done(&list);
	return r;
}

static struct backend_io io_of(const struct fixture *f, uint64_t o_at, uint64_t lse_at)
{
	return (struct backend_io){.q = f->base + Q_AT,
				   .o = f->base + o_at,
				   .lse = f->base + lse_at,
				   .q_stride = Q_ROW,
				   .o_stride = Q_ROW,
				   .lse_stride = N_Q_HEADS * 4};
}

/* All tokens go to their pages. */
static void append(struct fixture *f)
{
	struct view v = {.end = N_TOKENS, .n_rows = N_TOKENS};

	v.io = (struct backend_io){.k = f->base + K_AT,
				   .v = f->base + V_AT,
				   .k_stride = K_ROW,
				   .v_stride = K_ROW,
				   .slots = f->slices,
				   .n_slots = f->n_slices};
	assert_int_equal(run(f, &v, NULL), 0);
}

static int setup(void **state)
{
	const struct backend_config config = {.pool_bytes = 16 * MIB, .extent_bytes = 2 * MIB};
	struct fixture *f = calloc(1, sizeof(*f));
	char error[400] = "";

	f->shape = (struct work_shape){.n_layers = 2,
				       .n_q_heads = N_Q_HEADS,
				       .n_kv_heads = N_KV_HEADS,
				       .head_dim = HEAD_DIM,
				       .page_tokens = PAGE_TOKENS,
				       .dtype = WORK_BF16,
				       .scale = 0.125f};
	if (ops->open(&config, &f->backend, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(ops->extent_commit(f->backend, i), 0);
	f->memory =
		mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(ops->arena_attach(f->backend, f->memory, ARENA_BYTES, &f->base), 0);
	for (uint32_t at = 0; at < N_TOKENS; at += PAGE_TOKENS, f->n_slices++)
		f->slices[f->n_slices] =
			(struct work_slice){.page = f->n_slices * 5 % 37,
					    .count = (uint16_t)(N_TOKENS - at < PAGE_TOKENS
									? N_TOKENS - at
									: PAGE_TOKENS)};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ops->arena_detach(f->backend, f->base, ARENA_BYTES);
	munmap(f->memory, ARENA_BYTES);
	ops->close(f->backend);
	free(f);
	return 0;
}

/* Norm of the difference over the norm: rounding to bf16 twice, once a leg and once in the end, is
 * 2^-9 each at most. */
static double difference(const struct fixture *f, uint32_t n_rows)
{
	const uint16_t *a = f->memory + O_AT / 2, *b = f->memory + OTHER_O_AT / 2;
	double sum = 0, norm = 0;

	for (uint32_t i = 0; i < n_rows * N_Q_HEADS * HEAD_DIM; i++) {
		double x = (double)bf16_value(a[i]), y = (double)bf16_value(b[i]);
		sum += (x - y) * (x - y);
		norm += x * x;
	}
	return sqrt(sum / norm);
}

static double lse_difference(const struct fixture *f, uint32_t n_rows)
{
	const float *a = (const float *)(const void *)(f->memory + LSE_AT / 2);
	const float *b = (const float *)(const void *)(f->memory + OTHER_LSE_AT / 2);
	double most = 0;

	for (uint32_t i = 0; i < n_rows * N_Q_HEADS; i++)
		most = fmax(most, fabs((double)a[i] - (double)b[i]));
	return most;
}

static void legs_give_what_one_go_gives(void **state)
{
	struct fixture *f = *state;
	uint32_t random = seed();

	fill(f, &random);
	append(f);
	for (uint32_t i = 0; i < CASES; i++) {
		uint32_t n_rows = 1 + draw(&random) % N_ROWS_MAX, old = N_TOKENS - n_rows;
		struct view whole = {0, N_TOKENS, n_rows, io_of(f, O_AT, LSE_AT)};
		struct view part = {0, 0, n_rows, io_of(f, OTHER_O_AT, OTHER_LSE_AT)};
		struct backend_leg leg = {.n_rows = n_rows, .first = true};

		assert_int_equal(run(f, &whole, NULL), 0);
		/* few legs, or more than are folded at once */
		uint32_t most = draw(&random) % 2 ? 400 : 60;
		bool early = old > 0 && draw(&random) % 2; /* the rows' own KV comes first */

		if (early) {
			part.begin = old;
			part.end = N_TOKENS;
			assert_int_equal(run(f, &part, &leg), 0);
			part.end = 0;
			leg.first = false;
		}
		while (part.end < (early ? old : N_TOKENS)) {
			uint32_t n = 1 + draw(&random) % most;
			part.begin = part.end;
			part.end = part.begin + n < old ? part.begin + n : early ? old : N_TOKENS;
			leg.last = part.end == (early ? old : N_TOKENS);
			assert_int_equal(run(f, &part, &leg), 0);
			leg.first = false;
		}
		double error = difference(f, n_rows), lse = lse_difference(f, n_rows);
		if (error > 4e-3 || lse > 2e-4)
			fail_msg("case %u, %u rows: %g, LSE %g", i, n_rows, error, lse);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(legs_give_what_one_go_gives, setup, teardown),
	};
	int r = argc > 1 ? device_ops(argv[1], &ops) : 0;

	return r ? r : cmocka_run_group_tests_name("legs", tests, NULL, NULL);
}
