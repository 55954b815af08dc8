/* program_cut_test.c - where strips are cut into units: a block each where that is what cuts are
 * for, and whole stages. */
#include "tests/bench/fit_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 132u
#define HEAD_DIM 128u
#define PAGE_TOKENS 32u
#define ONE_EACH 1.05 /* the share by which every block gets a unit */

struct cut {
	struct fit_experiment experiment;
	struct program program;
};

/* A root and leaves for one KV head, in units of so many tokens at most. */
static void cut_init(struct cut *c, uint32_t group, const uint32_t nodes[2],
		     const uint32_t tokens[2], uint32_t unit_tokens)
{
	struct workload_spec spec = {.shape = {.n_layers = 1,
					       .n_q_heads = group,
					       .n_kv_heads = 1,
					       .head_dim = HEAD_DIM,
					       .page_tokens = PAGE_TOKENS,
					       .dtype = WORK_FP16,
					       .scale = 1 / sqrtf(HEAD_DIM)}};
	uint64_t page_sources = PAGE_TOKENS * 4 * HEAD_DIM / KV_SOURCE_BYTES;

	*c = (struct cut){0};
	snprintf(spec.name, sizeof(spec.name), "cut");
	assert_int_equal(workload_spec_levels(&spec, nodes, tokens, 2), 0);
	assert_int_equal(fit_experiment_of(&c->experiment, &spec), 0);

	struct program_want want = {.shape = &c->experiment.spec.shape,
				    .list = &c->experiment.list,
				    .pages = {64, page_sources, 64 * page_sources},
				    .costs = costs_find(CODE_WGMMA),
				    .n_blocks = BLOCKS,
				    .code = CODE_WGMMA,
				    .choice = {unit_tokens, ONE_EACH}};

	assert_int_equal(program_make(&c->program, &want), 0);
}

static void cut_done(struct cut *c)
{
	program_done(&c->program);
	fit_experiment_done(&c->experiment);
}

/* Trees that 132 blocks have about one unit of each for, whatever the units' rows. */
static void test_no_block_has_two_units_for_want_of_a_longer_one(void **state)
{
	static const uint32_t nodes[][2] = {{1, 64}, {1, 64}, {1, 10}, {1, 8}, {16, 64}};
	static const uint32_t tokens[][2] = {
		{8192, 512}, {4096, 1}, {4000, 400}, {16384, 64}, {1024, 32}};

	(void)state;
	for (uint32_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		for (uint32_t group = 4; group <= 16; group *= 2) {
			for (uint32_t rows = 16; rows <= DEVICE_UNIT_ROWS; rows *= 2) {
				struct cut c;

				cut_init(&c, group, nodes[i], tokens[i], rows / group);
				assert_in_range(c.program.n[PROGRAM_UNITS], BLOCKS / 4, BLOCKS);
				cut_done(&c);
			}
		}
	}
}

/* 128 rows on a root alone: but for the last, units end where a stage does. */
static void test_wide_units_have_whole_stages(void **state)
{
	uint32_t n_odd = 0;
	struct cut c;

	(void)state;
	cut_init(&c, 16, (uint32_t[]){1, 64}, (uint32_t[]){20000, 1}, 8);
	for (uint32_t i = 0; i < c.program.n[PROGRAM_UNITS]; i++) {
		const struct device_unit *unit =
			(const struct device_unit *)c.program.arrays[PROGRAM_UNITS].at + i;

		assert_true(unit->flags & DEVICE_UNIT_WIDE);
		n_odd += unit->n_slots % DEVICE_STAGE_SLOTS != 0;
	}
	assert_true(n_odd <= 8); /* a strip's last, of 8 strips */
	assert_true(c.program.n[PROGRAM_UNITS] > 100);
	cut_done(&c);
}

/* A root and ten leaves, for each block less than two turns of the warps: units have two, but for
 * those of leaves alone at a strip's end. */
static void test_short_units_have_whole_turns(void **state)
{
	(void)state;
	for (uint32_t blocks = 1; blocks <= 2; blocks++) {
		uint32_t n_odd = 0;
		struct cut c;

		cut_init(&c, 16, (uint32_t[]){1, 10}, (uint32_t[]){4000, 400}, blocks);
		for (uint32_t i = 0; i < c.program.n[PROGRAM_UNITS]; i++) {
			const struct device_unit *unit =
				(const struct device_unit *)c.program.arrays[PROGRAM_UNITS].at + i;

			n_odd += unit->n_slots * blocks != 2 * DEVICE_WARPS;
		}
		assert_true(n_odd <= 10);
		assert_in_range(c.program.n[PROGRAM_UNITS], 90, BLOCKS);
		cut_done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_block_has_two_units_for_want_of_a_longer_one),
		cmocka_unit_test(test_wide_units_have_whole_stages),
		cmocka_unit_test(test_short_units_have_whole_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
