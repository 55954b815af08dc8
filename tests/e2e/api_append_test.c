/*
 * api_append_test.c - steps that append alone, through the library and against a real daemon: their
 * tokens are attended to as any others, and of the arena nothing but K and V is looked at. argv[1]
 * is the daemon's program.
 */
#include "api_fixture.h"

#include <stdlib.h>
#include <string.h>

#define TWICE_NEW (2 * N_NEW)
#define TWICE_ELEMENTS (TWICE_NEW * HEAD_DIM)

/* Rows of TWICE_NEW tokens of both layers, at the arena's start. */
static void *rows_of(struct fixture *f, uint32_t layer, uint32_t tensor)
{
	return element_at(coppice_arena_base(f->arena), (layer * 5 + tensor) * TWICE_ELEMENTS);
}

static void fill_at_random(struct fixture *f)
{
	unsigned random = 17;

	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		for (uint32_t i = 0; i < 3 * TWICE_ELEMENTS; i++)
			element_put(rows_of(f, layer, 0), i,
				    (float)(rand_r(&random) % 257) / 128 - 1);
	}
}

/* Tokens [first, first + n) in one layer; append alone: with no place for Q, O and LSE. */
static int step_rows(struct fixture *f, uint32_t layer, uint32_t first, uint32_t n, bool append)
{
	size_t at = first * HEAD_DIM;
	struct coppice_step_seq part = {
		.seq = f->seq,
		.n_new = n,
		.q = append ? NULL : element_at(rows_of(f, layer, 0), at),
		.k = element_at(rows_of(f, layer, 1), at),
		.v = element_at(rows_of(f, layer, 2), at),
		.o = append ? NULL : element_at(rows_of(f, layer, 3), at),
		.lse = append ? NULL : (float *)rows_of(f, layer, 4) + first,
	};
	struct coppice_step step = {.layer = layer,
				    .seqs = &part,
				    .n_seqs = 1,
				    .append_only = append};
	uint64_t ticket;

	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	return coppice_wait(f->lane, ticket, PATIENCE_NS);
}

static void extend_and_step(struct fixture *f, const uint32_t *ids, uint32_t first, uint32_t n,
			    bool append)
{
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(f->seq, ids + first, n, &ticket), 0);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		assert_int_equal(step_rows(f, layer, first, n, append), 0);
}

/* O and LSE of the later half of the tokens, both layers. */
struct later_half {
	float o[N_LAYERS][N_NEW * HEAD_DIM], lse[N_LAYERS][N_NEW];
};

static void take_later_half(struct fixture *f, struct later_half *ret)
{
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		void *o = rows_of(f, layer, 3);
		float *lse = (float *)rows_of(f, layer, 4) + N_NEW;

		for (uint32_t i = 0; i < N_NEW * HEAD_DIM; i++)
			ret->o[layer][i] = element_get(o, N_NEW * HEAD_DIM + i);
		memcpy(ret->lse[layer], lse, sizeof(ret->lse[layer]));
		memset(o, 0xff, TWICE_ELEMENTS * element_bytes()); /* NaN */
		memset(lse, 0xff, sizeof(ret->lse[layer]));
	}
}

/* The arena is afterwards as it was: O and LSE have no place in it. */
static void append_alone(struct fixture *f, const uint32_t *ids)
{
	size_t bytes = coppice_arena_bytes(f->arena);
	void *before = malloc(bytes);

	assert_non_null(before);
	memcpy(before, coppice_arena_base(f->arena), bytes);
	extend_and_step(f, ids, 0, N_NEW, true);
	assert_memory_equal(coppice_arena_base(f->arena), before, bytes);
	free(before);
}

/* The tokens that were appended alone come first, so that no page has them from elsewhere; the ids
 * differ, so that nothing is shared. */
static void what_was_appended_alone_is_attended_to_as_any_other(void **state)
{
	/* The same sums, in tiles of other rows; values are up to 1. A device rounds weights and
	 * output to fp16, each by up to 2^-11, in both runs. */
	const double tolerance = test_on_gpu() ? 2e-3 : 1e-6;
	struct fixture *f = *state;
	struct later_half appended, ordinary;

	fill_at_random(f);
	append_alone(f, f->ids + 1000);
	extend_and_step(f, f->ids + 1000, N_NEW, N_NEW, false);
	take_later_half(f, &appended);
	fixture_trim(f);
	extend_and_step(f, f->ids + 2000, 0, TWICE_NEW, false);
	take_later_half(f, &ordinary);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		for (uint32_t i = 0; i < N_NEW * HEAD_DIM; i++)
			assert_float_equal(appended.o[layer][i], ordinary.o[layer][i], tolerance);
		for (uint32_t i = 0; i < N_NEW; i++)
			assert_float_equal(appended.lse[layer][i], ordinary.lse[layer][i],
					   LSE_TOLERANCE);
	}
	fixture_trim(f);
	assert_usable(f);
}

/* Of new tokens one layer appends alone and the next attends: it has a plan of its own. */
static void a_layer_that_appends_alone_leaves_the_next_its_rows(void **state)
{
	struct fixture *f = *state;
	struct later_half appended, ordinary;
	uint64_t ticket;

	fill_at_random(f);
	for (int appends = 0; appends < 2; appends++) {
		const uint32_t *ids = f->ids + 1000 * (1 + appends);

		assert_int_equal(coppice_seq_extend(f->seq, ids, TWICE_NEW, &ticket), 0);
		for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
			bool alone = appends && layer % 2 == 0;

			assert_int_equal(step_rows(f, layer, 0, TWICE_NEW, alone), 0);
		}
		take_later_half(f, appends ? &appended : &ordinary);
		fixture_trim(f);
	}
	for (uint32_t layer = 1; layer < N_LAYERS; layer += 2) {
		assert_memory_equal(appended.o[layer], ordinary.o[layer],
				    sizeof(ordinary.o[layer]));
		assert_memory_equal(appended.lse[layer], ordinary.lse[layer],
				    sizeof(ordinary.lse[layer]));
	}
	assert_usable(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_appended_alone_is_attended_to_as_any_other),
		TEST(a_layer_that_appends_alone_leaves_the_next_its_rows),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
