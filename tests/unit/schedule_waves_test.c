/* schedule_waves_test.c - how many work tiles there are for how many blocks: one each where that is
 * what cuts are for, and no wave of a few. */
#include "cut_fixture.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Trees that 132 blocks have about one work tile of each for, whatever the work tiles' rows. */
static void test_no_block_has_two_work_tiles_for_want_of_a_longer_one(void **state)
{
	static const uint32_t nodes[][2] = {{1, 64}, {1, 64}, {1, 10}, {1, 8}, {16, 64}};
	static const uint32_t tokens[][2] = {
		{8192, 512}, {4096, 1}, {4000, 400}, {16384, 64}, {1024, 32}};

	(void)state;
	for (uint32_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		for (uint32_t kv_block = 4; kv_block <= 16; kv_block *= 2) {
			for (uint32_t rows = 16; rows <= DEVICE_WORK_TILE_ROWS; rows *= 2) {
				struct cut c;

				cut_init(&c, kv_block, nodes[i], tokens[i], rows / kv_block);
				assert_in_range(c.schedule.n[SCHEDULE_WORK_TILES], BLOCKS / 4,
						BLOCKS);
				cut_done(&c);
			}
		}
	}
}

/* Eight agents that have said something, whatever each of them has said. */
static void test_no_more_work_tiles_than_blocks_where_a_block_each_was_planned(void **state)
{
	uint32_t n_planned = 0;

	(void)state;
	for (uint32_t tail = 64; tail < 256; tail += 2) {
		struct workload_spec spec = spec_of(32, 8);
		uint32_t planned;
		struct cut c;

		cut_make(&c, &spec, (uint32_t[]){1, 8}, (uint32_t[]){4096, tail},
			 (struct schedule_choice){0});
		planned = c.schedule.expect.n_work_tiles * 8;
		if (planned > BLOCKS / 2 && planned <= BLOCKS) {
			assert_in_range(c.schedule.n[SCHEDULE_WORK_TILES] * 8, BLOCKS / 2, BLOCKS);
			n_planned++;
		}
		cut_done(&c);
	}
	assert_true(n_planned > 64);
}

/* Sixty-four agents with a KV head for each query head: one work tile more for each head may be a
 * wave more. */
static void expect_waves_as_planned(uint32_t n_heads, double share)
{
	struct workload_spec spec = spec_of(n_heads, n_heads);
	uint32_t n_waves;
	struct cut c;

	cut_make(&c, &spec, (uint32_t[]){1, 64}, (uint32_t[]){2048, 128},
		 (struct schedule_choice){DEVICE_WORK_TILE_ROWS, share});
	n_waves = ceil_div(c.schedule.expect.n_work_tiles * n_heads, BLOCKS);
	if (n_waves <= 2)
		assert_in_range(c.schedule.n[SCHEDULE_WORK_TILES] * n_heads, n_heads,
				n_waves * BLOCKS);
	cut_done(&c);
}

static void test_there_are_no_more_waves_than_were_planned(void **state)
{
	(void)state;
	for (uint32_t n_heads = 32; n_heads < 64; n_heads++)
		for (uint32_t i = 0; i < SCHEDULE_N_SHARES; i++)
			expect_waves_as_planned(n_heads, schedule_shares[i]);
}

/* Sixty-four agents whose prefix is most of what they read: each
 * of its parts has as much of their own, and none is waited for, by the model either. */
static void test_parts_of_one_kind_are_expected_to_take_the_same(void **state)
{
	static const uint32_t own[] = {64, 128, 256, 512};

	(void)state;
	for (uint32_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		struct workload_spec spec = spec_of(32, 32);
		struct cut c;

		cut_make(&c, &spec, (uint32_t[]){1, 64}, (uint32_t[]){32768, own[i]},
			 (struct schedule_choice){DEVICE_WORK_TILE_ROWS, ONE_EACH});
		assert_int_equal(c.schedule.n[SCHEDULE_WORK_TILES], BLOCKS / 32);
		assert_true(c.schedule.expect.idle_ns < 0.05 * c.schedule.expect.all_ns);
		cut_done(&c);
	}
}

/* Half of what a block has to do, as near as it goes: 2.2 waves of work tiles would be three. */
static void test_where_work_tiles_nearly_do_in_two_waves_they_do(void **state)
{
	(void)state;
	for (uint32_t own = 64; own < 1500; own += 16) {
		struct workload_spec spec = spec_of(32, 8);
		struct cut c;

		cut_make(&c, &spec, (uint32_t[]){1, 64}, (uint32_t[]){8192, own},
			 (struct schedule_choice){DEVICE_WORK_TILE_ROWS / 8, 0.55});
		assert_in_range(c.schedule.expect.n_work_tiles * 8, BLOCKS + 1, 2 * BLOCKS);
		cut_done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_block_has_two_work_tiles_for_want_of_a_longer_one),
		cmocka_unit_test(
			test_no_more_work_tiles_than_blocks_where_a_block_each_was_planned),
		cmocka_unit_test(test_there_are_no_more_waves_than_were_planned),
		cmocka_unit_test(test_parts_of_one_kind_are_expected_to_take_the_same),
		cmocka_unit_test(test_where_work_tiles_nearly_do_in_two_waves_they_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
