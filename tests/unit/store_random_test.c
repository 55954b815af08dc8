/*
 * store_random_test.c - a million random operations against a naive model.
 *
 * The model is a flat table of sequences, each with all its token ids, and a shadow of the pages:
 * for every row what was last written there, as a hash of the token's whole prefix. Rows are
 * written at extend, copied by the moves of an accept, and lost when their extent goes back. After
 * each operation every token of the sequence's path must be in its row with the right prefix;
 * claims, matches, lengths and counts must be the table's.
 *
 * One run is done with plenty of room, the others with little, or with tight limits for the
 * domains, or with lower tiers so small that everything moves all the time. There the rows are real
 * bytes: copies end late, leave alone what they need not copy, bits flip in the file, and memory
 * runs short; restarts keep the file alone. Where paths may be longer than the pool, they are read
 * as attention in pieces reads them, also while others are at work. COPPICE_SEED repeats the runs,
 * COPPICE_OPS sets the operations of each.
 */
#include "store_world.h"
#include "tests/sanitized.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_OPS ROUNDS(400000u, 40000u)

static void op_poll(struct world *w)
{
	world_memory_is_short = w->room.short_memory;
	store_tiers_poll(w->f.store, w->f.now_ns);
	world_memory_is_short = false;
}

/* One bit of some page in the file, past the journal. */
static void op_flip(struct world *w)
{
	static _Alignas(WORLD_UNIT_BYTES) uint8_t block[WORLD_UNIT_BYTES];
	struct tier_head head;
	char why[128];
	int fd = open(w->path, O_RDWR | O_CLOEXEC),
	    direct = open(w->path, O_RDWR | O_DIRECT | O_CLOEXEC);

	assert_true(fd >= 0 && direct >= 0);
	assert_int_equal(tier_head_read(fd, UINT64_MAX, &head, why, sizeof(why)), 0);
	off_t at =
		(off_t)(head.data_at + world_below(w, (uint32_t)head.n_units) * WORLD_UNIT_BYTES);
	assert_int_equal(pread(direct, block, WORLD_UNIT_BYTES, at), WORLD_UNIT_BYTES);
	block[world_below(w, 104)] ^= (uint8_t)(1u << world_below(w, 8));
	assert_int_equal(pwrite(direct, block, WORLD_UNIT_BYTES, at), WORLD_UNIT_BYTES);
	close(fd);
	close(direct);
}

/* The file alone is left; now and then all of it was written first. */
static void op_restart(struct world *w)
{
	if (world_below(w, 2)) {
		store_tiers_flush(w->f.store);
		for (uint32_t i = 0; i < 50; i++)
			store_tiers_poll(w->f.store, w->f.now_ns);
	}
	world_close(w);
	world_open(w);
	w->n_restarts++;
	fixture_check(&w->f);
}

static void world_step(struct world *w)
{
	struct model_seq *m = &w->seqs[world_below(w, WORLD_SEQS)];
	const struct model_seq *other = &w->seqs[world_below(w, WORLD_SEQS)];
	uint32_t op = world_below(w, 100);

	if (w->room.host_units && world_below(w, 3) == 0)
		op_poll(w);
	if (w->room.flips && world_below(w, 200) == 0)
		op_flip(w);
	if (w->room.file_units && world_below(w, 3000) == 0)
		op_restart(w);
	if (w->held_by && (w->held_by == m || w->held_by == other))
		ops_let_go(w);
	if (op < 3)
		ops_tick(w);
	else if (op == 3)
		world_below(w, 2) ? ops_walk(w) : ops_pins(w);
	else if (op == 4)
		store_evict(w->f.store, world_below(w, 2) ? "a" : "b", world_below(w, 8),
			    world_below(w, 4));
	else if (m->q)
		ops_on_seq(w, m);
	else if (other->q && world_below(w, 4) == 0)
		ops_fork(w, (struct model_seq *)other, m);
	else
		ops_open(w, m);
	if (m->q && op >= 5)
		naive_check_path(w, m);
	if (world_below(w, 16) == 0)
		ops_hold(w, m);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void print_tiers(struct world *w)
{
	struct store_tiers_stats t;

	store_tiers_stats(w->f.store, &t);
	printf("promoting %lu times; since the last of %lu restarts: hits %lu + %lu, down %lu, up "
	       "%lu, "
	       "written %lu, read %lu, dropped %lu, bad %lu, failed %lu; restored %lu tokens; %s\n",
	       w->n_promoted, w->n_restarts, t.tiers[STORE_HOST].hits, t.tiers[STORE_FILE].hits,
	       t.tiers[STORE_HOST].bytes_in, t.tiers[STORE_HOST].bytes_out,
	       t.tiers[STORE_FILE].bytes_in, t.tiers[STORE_FILE].bytes_out, t.slices_dropped,
	       t.images_bad, t.wants_failed, w->n_restored, t.error ? t.error : "no error");
	if (w->room.long_paths)
		printf("below the device when looked at %lu times, with a tail %lu; held %lu\n",
		       w->n_below, w->n_tails, w->n_held);
}

static void run(struct room room)
{
	static struct world w;
	uint64_t seed = number_from("COPPICE_SEED", (uint64_t)time(NULL));
	uint64_t n_ops = number_from("COPPICE_OPS", DEFAULT_OPS);

	printf("COPPICE_SEED=%lu COPPICE_OPS=%lu\n", seed, n_ops);
	fflush(stdout);
	world_init(&w, seed, room);
	for (uint64_t i = 0; i < n_ops; i++) {
		world_step(&w);
		if (i % (room.host_units ? 20 : 200) == 0)
			naive_check_counts(&w);
	}
	naive_check_counts(&w);
	struct store_stats s = fixture_stats(&w.f);
	printf("matched %lu published %lu dropped %lu; nodes: split %lu collapsed %lu evicted %lu; "
	       "%lu without room, %lu over quota\n",
	       s.tokens_matched, s.tokens_published, s.tokens_dropped, s.nodes_split,
	       w.n_collapsed + s.nodes_collapsed, s.nodes_evicted, w.n_enospc, w.n_edquot);
	if (n_ops >= DEFAULT_OPS)
		assert_true(w.n_collapsed + s.nodes_collapsed > 0);
	if (room.host_units)
		print_tiers(&w);
	if (room.long_paths && n_ops >= DEFAULT_OPS)
		assert_true(w.n_below > 0 && w.n_tails > 0 && w.n_held > 0);
	world_done(&w);
}

static void test_with_plenty_of_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48});
}

static void test_with_little_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9});
}

static void test_with_limits_of_domains(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48, .domain_bytes = 3000});
}

static void test_with_little_room_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12, .n_reserved = 4, .domain_bytes = 5000});
}

static void test_with_little_room_and_an_owner_without_limit(void **state)
{
	(void)state;
	run((struct room){
		.n_extents = 12, .n_reserved = 3, .domain_bytes = 5000, .owner_is_free = true});
}

static void test_with_tiers_and_an_owner_without_limit(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9,
			  .domain_bytes = 4000,
			  .owner_is_free = true,
			  .host_units = 24,
			  .file_units = 100});
}

static void test_with_host_memory_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 40});
}

static void test_with_a_file_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 24, .file_units = 100});
}

static void test_with_a_roomy_file_below(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 12, .file_units = 1000});
}

static void test_with_tiers_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12,
			  .domain_bytes = 5000,
			  .host_units = 32,
			  .file_units = 100,
			  .domain_tier_bytes = 20 * WORLD_UNIT_BYTES});
}

static void test_with_a_file_whose_bits_flip(void **state)
{
	(void)state;
	run((struct room){.n_extents = 9, .host_units = 24, .file_units = 200, .flips = true});
}

static void test_with_tiers_and_short_memory(void **state)
{
	(void)state;
	run((struct room){
		.n_extents = 9, .host_units = 24, .file_units = 200, .short_memory = true});
}

static void test_with_paths_longer_than_the_pool(void **state)
{
	(void)state;
	run((struct room){.n_extents = 4, .host_units = 48, .file_units = 200, .long_paths = true});
}

static void test_with_longer_paths_and_short_memory(void **state)
{
	(void)state;
	run((struct room){.n_extents = 3,
			  .host_units = 24,
			  .file_units = 100,
			  .short_memory = true,
			  .long_paths = true});
}

static void test_with_two_devices(void **state)
{
	(void)state;
	run((struct room){.n_extents = 48, .n_devices = 2});
}

static void test_with_three_devices_and_little_room(void **state)
{
	(void)state;
	run((struct room){.n_extents = 12, .n_devices = 3});
}

static void test_with_four_devices_and_limits(void **state)
{
	(void)state;
	run((struct room){.n_extents = 24, .n_devices = 4, .domain_bytes = 9000});
}

static void test_with_four_devices_and_tiers(void **state)
{
	(void)state;
	run((struct room){.n_extents = 16, .n_devices = 4, .host_units = 24, .file_units = 200});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_plenty_of_room),
		cmocka_unit_test(test_with_little_room),
		cmocka_unit_test(test_with_limits_of_domains),
		cmocka_unit_test(test_with_little_room_and_limits),
		cmocka_unit_test(test_with_little_room_and_an_owner_without_limit),
		cmocka_unit_test(test_with_tiers_and_an_owner_without_limit),
		cmocka_unit_test(test_with_host_memory_below),
		cmocka_unit_test(test_with_a_file_below),
		cmocka_unit_test(test_with_a_roomy_file_below),
		cmocka_unit_test(test_with_tiers_and_limits),
		cmocka_unit_test(test_with_a_file_whose_bits_flip),
		cmocka_unit_test(test_with_tiers_and_short_memory),
		cmocka_unit_test(test_with_paths_longer_than_the_pool),
		cmocka_unit_test(test_with_longer_paths_and_short_memory),
		cmocka_unit_test(test_with_two_devices),
		cmocka_unit_test(test_with_three_devices_and_little_room),
		cmocka_unit_test(test_with_four_devices_and_limits),
		cmocka_unit_test(test_with_four_devices_and_tiers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
