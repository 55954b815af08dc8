/* schedule_cut_test.c - where strips are cut into work tiles, and how many rows these have. */
#include "cut_fixture.h"
#include "proto/arith.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct schedule_expect expect_agents(uint32_t n_heads, uint32_t tail,
					    struct schedule_choice choice)
{
	struct workload_spec spec = spec_of(n_heads, n_heads);
	struct schedule_expect e;
	struct cut c;

	cut_make(&c, &spec, (uint32_t[]){1, 64}, (uint32_t[]){2048, tail}, choice);
	e = c.schedule.expect;
	cut_done(&c);
	return e;
}

/* Is what was chosen less than others of so many tokens by some parts in a thousand? Returns how
 * many others there are. */
static uint32_t expect_better(const struct schedule_expect *chosen, uint32_t n_heads, uint32_t tail)
{
	uint32_t n = 0;

	for (uint32_t tokens = 64; tokens > chosen->work_tile_tokens; tokens /= 2)
		for (uint32_t i = 0; i < SCHEDULE_N_SHARES; i++, n++) {
			struct schedule_choice choice = {tokens, schedule_shares[i]};
			double other = expect_agents(n_heads, tail, choice).all_ns;

			assert_false(chosen->all_ns > 0.9975 * other && chosen->all_ns <= other);
		}
	return n;
}

/* The same agents, whose strips read KV again where these have fewer rows. */
static void test_narrower_strips_are_better_by_more_than_nothing(void **state)
{
	uint32_t n_wider = 0;

	(void)state;
	for (uint32_t n_heads = 24; n_heads < 64; n_heads++)
		for (uint32_t tail = 64; tail < 320; tail += 16) {
			struct schedule_expect chosen =
				expect_agents(n_heads, tail, (struct schedule_choice){0});

			n_wider += expect_better(&chosen, n_heads, tail);
		}
	assert_true(n_wider > 100);
}

/* By how many us 64 rows are expected to take longer on so many wide tiles if those by turns take
 * twice as long. Reading takes nothing. */
static double expect_turns(uint32_t n_wide)
{
	struct workload_spec spec = spec_of(16, 1);
	struct fit_card card = {BLOCKS, CODE_WGMMA};
	struct costs costs = *costs_find(CODE_WGMMA);
	double us[2];
	struct cut c;

	cut_make(&c, &spec, (uint32_t[]){1, 4}, (uint32_t[]){n_wide * 128, 1},
		 (struct schedule_choice){4, 0});
	c.experiment.choice = (struct schedule_choice){4, 0};
	costs.read_ns_per_kb = costs.copy_ns = costs.memory_ns_per_kb = costs.flush_ns_per_kb = 0;
	for (uint32_t i = 0; i < 2; i++) {
		costs.turned_times = 1 + i;
		assert_int_equal(fit_expect(&c.experiment, &card, &costs, &us[i]), 0);
	}
	cut_done(&c);
	return us[1] - us[0];
}

/* Of two there is one for each warp group: nobody waits for a turn. */
static void test_the_first_two_wide_tiles_take_no_turns(void **state)
{
	(void)state;
	assert_float_equal(expect_turns(1), 0, 1e-9);
	assert_float_equal(expect_turns(2), 0, 1e-9);
	assert_true(expect_turns(3) > 0);
	assert_float_equal(expect_turns(10), 8 * expect_turns(3), 1e-6);
}

/* Of strips that are cut, whose partials take time. */
static void test_a_schedules_time_is_that_of_its_parts(void **state)
{
	struct schedule_expect e;
	struct cut c;

	(void)state;
	cut_init(&c, 16, (uint32_t[]){1, 64}, (uint32_t[]){20000, 1}, 8);
	e = c.schedule.expect;
	assert_true(e.n_cut > 0 && e.kv_blocks_ns > 0 && e.work_tiles_ns > 0 && e.parts_ns > 0);
	assert_true(e.idle_ns >= 0 && e.memory_ns >= 0 && e.merge_ns > 0);
	assert_float_equal(e.all_ns,
			   e.launch_ns + e.kv_blocks_ns + e.work_tiles_ns + e.parts_ns + e.idle_ns +
				   e.memory_ns + e.merge_ns,
			   1);
	assert_true(e.parts_ns > 10);
	cut_done(&c);
}

/* 128 rows on a root alone: but for the last, work tiles end where a wide tile does. */
static void test_wide_work_tiles_have_whole_wide_tiles(void **state)
{
	uint32_t n_odd = 0;
	struct cut c;

	(void)state;
	cut_init(&c, 16, (uint32_t[]){1, 64}, (uint32_t[]){20000, 1}, 8);
	for (uint32_t i = 0; i < c.schedule.n[SCHEDULE_WORK_TILES]; i++) {
		const struct device_work_tile *work_tile =
			(const struct device_work_tile *)c.schedule.arrays[SCHEDULE_WORK_TILES].at +
			i;

		assert_true(work_tile->flags & DEVICE_WORK_TILE_WIDE);
		n_odd += work_tile->n_kv_tiles % DEVICE_WIDE_KV_TILES != 0;
	}
	assert_true(n_odd <= 8); /* a strip's last, of 8 strips */
	assert_true(c.schedule.n[SCHEDULE_WORK_TILES] > 100);
	cut_done(&c);
}

/* 64 leaves on a root that all share: no work tile has the leaves of many to itself. With 4 heads
 * parts are too short to be mixed, and a strip's last one may be a rest. */
static void test_wide_work_tiles_share_the_leaves(void **state)
{
	static const uint32_t rows_of[] = {4, 16};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		const struct device_work_tile *work_tiles;
		uint32_t least = UINT32_MAX, most = 0, n, n_rests = 0;
		struct cut c;

		cut_init(&c, rows_of[i], (uint32_t[]){1, 64}, (uint32_t[]){32768, 128},
			 DEVICE_WORK_TILE_ROWS / rows_of[i]);
		work_tiles = c.schedule.arrays[SCHEDULE_WORK_TILES].at;
		n = c.schedule.n[SCHEDULE_WORK_TILES];
		for (uint32_t t = 0; t < n; t++)
			most = max_u32(most, work_tiles[t].n_kv_tiles);
		for (uint32_t t = 0; t < n; t++) {
			uint32_t n_kv_tiles = work_tiles[t].n_kv_tiles;
			bool is_rest = rows_of[i] == 4 && n_kv_tiles <= DEVICE_WIDE_KV_TILES &&
				       work_tiles[t].n_rows == 1;

			n_rests += is_rest;
			least = is_rest ? least : min_u32(least, n_kv_tiles);
		}
		assert_in_range(most - least, 0, 2 * DEVICE_WIDE_KV_TILES);
		assert_in_range(n_rests, 0, 2); /* of two strips */
		cut_done(&c);
	}
}

/* A root and ten leaves, for each block less than two turns of the warps: work tiles have two, but
 * for those of leaves alone at a strip's end. */
static void test_short_work_tiles_have_whole_turns(void **state)
{
	(void)state;
	for (uint32_t blocks = 1; blocks <= 2; blocks++) {
		uint32_t n_odd = 0;
		struct cut c;

		cut_init(&c, 16, (uint32_t[]){1, 10}, (uint32_t[]){4000, 400}, blocks);
		for (uint32_t i = 0; i < c.schedule.n[SCHEDULE_WORK_TILES]; i++) {
			const struct device_work_tile *work_tile =
				(const struct device_work_tile *)c.schedule
					.arrays[SCHEDULE_WORK_TILES]
					.at +
				i;

			n_odd += work_tile->n_kv_tiles * blocks != 2 * DEVICE_WARPS;
		}
		assert_true(n_odd <= 10);
		assert_in_range(c.schedule.n[SCHEDULE_WORK_TILES], 90, BLOCKS);
		cut_done(&c);
	}
}

/* Eight that decode on a document, beside n_new rows of a prompt that is on another. */
static void cut_init_beside(struct cut *c, uint32_t before, uint32_t n_new)
{
	enum { N_DECODE = 8, N_NODES = N_DECODE + 3 };
	struct workload_spec spec = spec_of(32, 8);

	spec.parents = calloc(N_NODES, sizeof(*spec.parents));
	spec.tokens = calloc(N_NODES, sizeof(*spec.tokens));
	spec.n_nodes = N_NODES;
	spec.n_new = 1;
	spec.last_new = n_new;
	assert_true(spec.parents && spec.tokens);
	spec.parents[0] = spec.parents[N_DECODE + 1] = WORK_NONE;
	spec.parents[N_DECODE + 2] = N_DECODE + 1;
	spec.tokens[0] = 32768;
	for (uint32_t i = 1; i <= N_DECODE; i++)
		spec.tokens[i] = 64;
	spec.tokens[N_DECODE + 1] = before;
	spec.tokens[N_DECODE + 2] = n_new;
	cut_schedule(c, &spec, (struct schedule_choice){0});
}

/* Work tiles that have these rows of the schedule alone: how many, and of how many KV tiles. */
struct strip_seen {
	uint32_t row, n_rows, n, n_kv_tiles;
};

/* Strips of the prompt, which has the last n_new rows. */
static uint32_t find_strips(const struct cut *c, uint32_t n_new, struct strip_seen *ret)
{
	const struct device_work_tile *work_tiles = c->schedule.arrays[SCHEDULE_WORK_TILES].at;
	uint32_t n = 0, first = c->experiment.list.n_rows - n_new;

	for (uint32_t t = 0; t < c->schedule.n[SCHEDULE_WORK_TILES]; t++) {
		uint32_t i = 0;

		if (work_tiles[t].row < first)
			continue;
		while (i < n && ret[i].row != work_tiles[t].row)
			i++;
		if (i == n)
			ret[n++] = (struct strip_seen){work_tiles[t].row, work_tiles[t].n_rows};
		ret[i].n++;
		ret[i].n_kv_tiles = max_u32(ret[i].n_kv_tiles, work_tiles[t].n_kv_tiles);
	}
	return n;
}

/* All work tiles are there at once; strips of a prompt are as often cut, and as long. */
static void assert_in_step(uint32_t before, uint32_t n_new)
{
	struct strip_seen strips[DEVICE_WORK_TILE_ROWS];
	struct cut c;
	uint32_t n;

	cut_init_beside(&c, before, n_new);
	n = find_strips(&c, n_new, strips);
	assert_in_range(c.schedule.n[SCHEDULE_WORK_TILES] * 8, BLOCKS / 2, BLOCKS);
	assert_int_equal(n, ceil_div(n_new, 32));
	for (uint32_t k = 1; k < n; k++) {
		assert_int_equal(strips[k].n, strips[0].n);
		assert_in_range(strips[k].n_kv_tiles, strips[0].n_kv_tiles - 8,
				strips[0].n_kv_tiles + 8);
	}
	cut_done(&c);
}

/* In several waves, or one strip twice as fast as the others, a long prompt's KV would come from
 * memory with each of them. */
static void test_strips_of_a_prompt_beside_others_are_in_step(void **state)
{
	static const uint32_t befores[] = {12288, 20480, 28672}, rows[] = {56, 64, 88, 120, 128};

	(void)state;
	for (uint32_t i = 0; i < sizeof(befores) / sizeof(befores[0]); i++)
		for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
			assert_in_step(befores[i], rows[k]);
}

/* 105 rows are 27 and three times 26, not three times 32 and 9. */
static void test_strips_with_a_short_rest_are_evened_out(void **state)
{
	struct strip_seen strips[DEVICE_WORK_TILE_ROWS];
	struct cut c;

	(void)state;
	assert_in_step(28672, 97);
	assert_in_step(28672, 105);
	cut_init_beside(&c, 28672, 105);
	assert_int_equal(find_strips(&c, 105, strips), 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_in_range(strips[i].n_rows, 24, 27);
	cut_done(&c);
}

/* Of those that decode: none is a rest, which would leave the others as long as with one less. */
static void assert_no_rest(uint32_t before, uint32_t n_new)
{
	const struct device_work_tile *work_tiles;
	uint32_t least = UINT32_MAX, most = 0;
	struct cut c;

	cut_init_beside(&c, before, n_new);
	work_tiles = c.schedule.arrays[SCHEDULE_WORK_TILES].at;
	for (uint32_t t = 0; t < c.schedule.n[SCHEDULE_WORK_TILES]; t++) {
		if (work_tiles[t].row >= c.experiment.list.n_rows - n_new)
			continue;
		least = min_u32(least, work_tiles[t].n_kv_tiles);
		most = max_u32(most, work_tiles[t].n_kv_tiles);
	}
	assert_in_range(most, least, 2 * least);
	cut_done(&c);
}

static void test_no_part_is_a_rest_beside_a_prompt(void **state)
{
	static const uint32_t befores[] = {4096, 12288, 20480, 28672}, rows[] = {64, 96, 120, 128};

	(void)state;
	for (uint32_t i = 0; i < sizeof(befores) / sizeof(befores[0]); i++)
		for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
			assert_no_rest(befores[i], rows[k]);
}

/* Which partial each row of a work tile goes to; DEVICE_NONE: it goes to the output. Of a row's
 * partials each is made once, and a row without any is made once too. */
static void expect_each_dest_once(const struct schedule *p)
{
	const struct device_merge *merges = p->arrays[SCHEDULE_MERGES].at;
	const struct device_work_tile *tiles = p->arrays[SCHEDULE_WORK_TILES].at;
	const uint32_t *dests = p->arrays[SCHEDULE_DESTS].at;
	/* whose a partial is yet to be */
	uint32_t *rows = malloc((p->n_parts + 1) * sizeof(*rows));

	assert_non_null(rows);
	memset(rows, 0xff, (p->n_parts + 1) * sizeof(*rows));
	for (uint32_t i = 0; i < p->n[SCHEDULE_MERGES]; i++)
		for (uint32_t j = 0; j < merges[i].n_parts; j++)
			rows[merges[i].first + j] = merges[i].row;
	for (uint32_t i = 0; i < p->n[SCHEDULE_WORK_TILES]; i++)
		for (uint32_t j = 0; j < tiles[i].n_rows; j++) {
			uint32_t dest = dests[tiles[i].dest + j];
			if (dest == DEVICE_NONE || dest == DEVICE_DEST_NOTHING)
				continue;
			assert_in_range(dest, 0, p->n_parts - 1);
			assert_int_equal(rows[dest], tiles[i].row + j);
			rows[dest] = UINT32_MAX;
		}
	for (uint32_t i = 0; i < p->n_parts; i++)
		assert_int_equal(rows[i], UINT32_MAX);
	free(rows);
}

static void test_each_partial_is_made_once_and_by_its_row(void **state)
{
	(void)state;
	for (uint32_t n_leaves = 1; n_leaves <= 64; n_leaves *= 4) {
		struct cut c;

		cut_init(&c, 16, (uint32_t[]){1, n_leaves}, (uint32_t[]){4000, 400}, 8);
		assert_true(c.schedule.n_parts > n_leaves);
		expect_each_dest_once(&c.schedule);
		cut_done(&c);
	}
}

static const struct device_kv_tile *kv_tile_of(const struct schedule *p,
					       const struct device_work_tile *work_tile, uint32_t i)
{
	return (const struct device_kv_tile *)p->arrays[SCHEDULE_KV_TILES].at +
	       device_kv_tile_at(work_tile, i);
}

/* Where a run of wide tiles is over, of which the warp takes all, or none. */
static uint32_t walk_run(const struct schedule *p, const struct device_work_tile *work_tile,
			 uint32_t i, uint32_t warp)
{
	const struct device_kv_tile *kv_tile = kv_tile_of(p, work_tile, i);
	uint32_t mine = kv_tile->warps >> warp & 1;
	uint32_t end = i + device_run_at(work_tile, i, kv_tile->run) * DEVICE_WIDE_KV_TILES;

	assert_true(end > i && end <= work_tile->n_kv_tiles);
	for (; i < end; i++) {
		kv_tile = kv_tile_of(p, work_tile, i);
		assert_true(kv_tile->wide);
		assert_int_equal(kv_tile->warps >> warp & 1, mine);
	}
	return end;
}

/* As each warp of a block walks the work tile; adds the wide tiles' KV tiles. */
static void walk_work_tile(const struct schedule *p, uint32_t index, uint32_t *n_wide)
{
	const struct device_work_tile *work_tile =
		(const struct device_work_tile *)p->arrays[SCHEDULE_WORK_TILES].at + index;

	for (uint32_t warp = 0; warp < DEVICE_WARPS; warp++) {
		uint32_t i = 0;

		while (i < work_tile->n_kv_tiles) {
			bool wide = kv_tile_of(p, work_tile, i)->wide;
			uint32_t end = wide ? walk_run(p, work_tile, i, warp) : i + 1;

			*n_wide += wide ? end - i : 0;
			i = end;
		}
		assert_int_equal(i, work_tile->n_kv_tiles);
	}
}

/* 64 leaves on a long root, in work tiles of which one to eight warps share a row block. */
static void test_warps_walk_runs_of_wide_tiles_to_the_end(void **state)
{
	uint32_t n_wide = 0;

	(void)state;
	for (uint32_t rows = 16; rows <= DEVICE_WORK_TILE_ROWS; rows *= 2) {
		struct cut c;

		cut_init(&c, 16, (uint32_t[]){1, 64}, (uint32_t[]){32768, 128}, rows / 16);
		for (uint32_t i = 0; i < c.schedule.n[SCHEDULE_WORK_TILES]; i++)
			walk_work_tile(&c.schedule, i, &n_wide);
		cut_done(&c);
	}
	assert_true(n_wide > 0);
}

/* A root of whole wide tiles and n_rest tokens: how often a wide tile has no more of them than a KV
 * tile may have; and how many wide tiles there are. */
static uint32_t count_spared(uint32_t n_rest, uint32_t *ret_n_wide)
{
	uint32_t n = 0, n_wide = 0;
	struct cut c;

	cut_init(&c, 16, (uint32_t[]){1, 8}, (uint32_t[]){16384 + n_rest, 1}, 8);
	const struct device_kv_tile *kv_tiles = c.schedule.arrays[SCHEDULE_KV_TILES].at;
	const struct device_source *sources = c.schedule.arrays[SCHEDULE_SOURCES].at;

	for (uint32_t i = 0; i + 1 < c.schedule.n[SCHEDULE_KV_TILES]; i++) {
		if (kv_tiles[i].run == 0)
			continue;
		n_wide++;
		n += sources[i + 1].kv_blocks[0] == DEVICE_NONE;
	}
	cut_done(&c);
	*ret_n_wide = n_wide;
	return n;
}

/* They would take as long as all that it could have. */
static void test_no_wide_tile_is_for_what_a_kv_tile_has_room_for(void **state)
{
	uint32_t n_wide, n_wider;

	(void)state;
	for (uint32_t n = 1; n <= DEVICE_KV_TILE_BLOCKS; n++)
		assert_int_equal(count_spared(n * KV_BLOCK_TOKENS, &n_wide), 0);
	assert_int_equal(count_spared((DEVICE_KV_TILE_BLOCKS + 1) * KV_BLOCK_TOKENS, &n_wider), 0);
	assert_int_equal(n_wider, n_wide + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_two_wide_tiles_take_no_turns),
		cmocka_unit_test(test_narrower_strips_are_better_by_more_than_nothing),
		cmocka_unit_test(test_a_schedules_time_is_that_of_its_parts),
		cmocka_unit_test(test_wide_work_tiles_have_whole_wide_tiles),
		cmocka_unit_test(test_wide_work_tiles_share_the_leaves),
		cmocka_unit_test(test_each_partial_is_made_once_and_by_its_row),
		cmocka_unit_test(test_short_work_tiles_have_whole_turns),
		cmocka_unit_test(test_strips_of_a_prompt_beside_others_are_in_step),
		cmocka_unit_test(test_no_part_is_a_rest_beside_a_prompt),
		cmocka_unit_test(test_strips_with_a_short_rest_are_evened_out),
		cmocka_unit_test(test_warps_walk_runs_of_wide_tiles_to_the_end),
		cmocka_unit_test(test_no_wide_tile_is_for_what_a_kv_tile_has_room_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
