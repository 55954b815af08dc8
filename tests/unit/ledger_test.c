/*
 * ledger_test.c - KV and weights have the memory of what computes together: neither is given what
 * the other has, and what goes of one is room for both.
 */
#include "sched_harness.h"
#include "weights_fixture.h"

#include "proto/clock.h"
#include "daemon/config/quota.h"
#include "daemon/program/held_program.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define EXTENT (2 * MIB)

static void both_have_what_there_is_and_the_pool_its_size(void **state)
{
	struct ledger ledger;

	(void)state;
	ledger_init(&ledger, 60, 0, 20, 1000);
	assert_int_equal(ledger.max_bytes, 80);
	ledger_init(&ledger, 800, 0, 250, 1000);
	assert_int_equal(ledger.max_bytes, 950);
	ledger_init(&ledger, 990, 0, 250, 1000);
	assert_int_equal(ledger.max_bytes, 990);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 900), 0);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 91), -ENOSPC);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, UINT64_MAX), -ENOSPC);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 90), 0);
	ledger_give(&ledger, LEDGER_KV, 100);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 100), 0);
	assert_int_equal(ledger.of[LEDGER_KV], 800);
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 190);
	assert_int_equal(ledger.all_bytes, 990);
}

/* Whatever KV has, but for its last. */
static void weights_leave_the_pools_last_to_newcomers(void **state)
{
	struct ledger ledger;

	(void)state;
	ledger_init(&ledger, 800, 80, 300, 1000);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 700), 0);
	assert_int_equal(ledger_left(&ledger), 250);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 171), -ENOSPC);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 160), 0);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 80), 0);
	assert_int_equal(ledger_left(&ledger), 10);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 1), -ENOSPC);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 10), 0);
	assert_int_equal(ledger_left(NULL), UINT64_MAX);
}

/* KV has 156 KiB of 256; what nobody has goes first. */
static void weights_are_not_given_what_kv_has(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * KIB};
	struct weights_table *table;
	struct weights *a, *b;
	int fd = fixture_open(fixture_file_of("b", 90));

	(void)state;
	fixture_ledger = &ledger;
	table = fixture_table_of(fixture_coppiced, 256 * KIB, 30000);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 156 * KIB), 0);
	a = fixture_load(table, ALICE, fixture_file_of("a", 100));
	fixture_expect_ready(a);
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -ENOSPC, "KV has");
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 100 * KIB);
	fixture_leave(a);
	b = fixture_load(table, BOB, fixture_path("b"));
	fixture_expect_ready(b);
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 90 * KIB);
	assert_int_equal(fixture_n_memories, 1);
	weights_unref(b);
	weights_table_free(table);
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 0);
	assert_int_equal(ledger.all_bytes, 156 * KIB);
	close(fd);
	fixture_ledger = NULL;
}

static void what_programs_take_counts(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * KIB};
	char why[WEIGHTS_WHY_BYTES];
	struct weights_table *table;
	struct weights *a;
	uint64_t until_ns = 0;

	(void)state;
	fixture_ledger = &ledger;
	table = fixture_table_of(fixture_coppiced, 300 * KIB, 30000);
	a = fixture_load(table, ALICE, fixture_file_of("a", 100));
	fixture_expect_ready(a);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 106 * KIB), 0);
	assert_int_equal(weights_take_scratch(a, 51 * KIB, &until_ns, why), -ENOSPC);
	assert_non_null(strstr(why, "The program's scratch takes 51K"));
	assert_non_null(strstr(why, "coppicectl evict"));
	assert_int_equal(weights_take_scratch(a, 50 * KIB, &until_ns, why), 0);
	assert_int_equal(weights_bytes(table), 150 * KIB);
	weights_give_scratch(a, 50 * KIB);
	assert_int_equal(ledger.all_bytes, 206 * KIB);
	weights_unref(a);
	weights_table_free(table);
	fixture_ledger = NULL;
}

/* Bob's idle weights go for Alice's program: whoever asks has not to give gigabytes back. Returns
 * how often she had to ask. */
static uint32_t asks_for_scratch(uint64_t table_bytes)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, table_bytes, 30000);
	struct weights *a = fixture_load(table, ALICE, fixture_file_of("a", 100));
	struct weights *b = fixture_load(table, BOB, fixture_file_of("b", 90));
	char why[WEIGHTS_WHY_BYTES] = "nothing";
	uint64_t until_ns = 0;
	uint32_t n = 1;
	int r;

	fixture_expect_ready(a);
	fixture_expect_ready(b);
	fixture_leave(b);
	fixture_freed_by = pthread_self();
	while ((r = weights_take_scratch(a, 80 * KIB, &until_ns, why)) == -EAGAIN) {
		fixture_moment();
		n++;
	}
	assert_int_equal(r, 0);
	assert_string_equal(why, "nothing"); /* neither he who waits nor he who gets it */
	weights_table_end_loads(table);
	assert_int_equal(fixture_n_memories, 1);
	assert_false(pthread_equal(fixture_freed_by, pthread_self()));
	weights_give_scratch(a, 80 * KIB);
	weights_unref(a);
	weights_table_free(table);
	return n;
}

#define SCRATCH_BYTES (80 * KIB)

static uint32_t n_made;

static int program_made(struct backend *b, const struct program *p, struct backend_weights *weights,
			struct backend_program **ret, char why[PROGRAM_WHY_BYTES])
{
	(void)b;
	(void)p;
	(void)weights;
	(void)why;
	n_made++;
	*ret = NULL;
	return 0;
}

static void program_gone(struct backend *b, struct backend_program *program)
{
	(void)b;
	(void)program;
}

static double program_fixed_ns; /* what a token takes */

static void program_cost(struct backend *b, const struct backend_program *program,
			 struct backend_program_cost *ret)
{
	(void)b;
	(void)program;
	*ret = (struct backend_program_cost){.scratch_bytes = SCRATCH_BYTES,
					     .fixed_ns = program_fixed_ns};
}

static const struct backend_program_ops program_ops = {.program_new = program_made,
						       .program_free = program_gone,
						       .cost = program_cost};
static const struct backend_ops program_maker = {.program = &program_ops};
static const struct held_backend with = {.ops = &program_maker, .max_token_ms = 1};

/* However often it is asked again: a device's memory comes and goes with what runs waiting. */
static void a_program_that_waits_for_room_is_not_made_each_time(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * KIB};
	struct held_program held = {0};
	char why[PROGRAM_WHY_BYTES];

	(void)state;
	fixture_ledger = &ledger;
	struct weights_table *table = fixture_table_of(fixture_coppiced, 300 * KIB, 30000);

	held.weights = fixture_load(table, ALICE, fixture_file_of("a", 100));
	fixture_expect_ready(held.weights);
	/* others' are on their way back for so long */
	ledger_announce(&ledger, LEDGER_WEIGHTS, 90 * KIB);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 90 * KIB), 0);
	n_made = 0;
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(held_program_begin(&held, &with, why), -EAGAIN);
	ledger_give(&ledger, LEDGER_WEIGHTS, 90 * KIB);
	ledger_announce_no_more(&ledger, LEDGER_WEIGHTS, 90 * KIB);
	assert_int_equal(held_program_begin(&held, &with, why), 0);
	assert_in_range(n_made, 1, 2);
	weights_give_scratch(held.weights, SCRATCH_BYTES);
	weights_unref(held.weights);
	weights_table_free(table);
	assert_int_equal(ledger.all_bytes, 0);
	fixture_ledger = NULL;
}

/* Somebody's are on their way back whenever one looks: others, each time. */
static void a_program_does_not_wait_for_room_for_ever(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * KIB};
	struct held_program held = {0};
	char why[PROGRAM_WHY_BYTES];
	uint64_t now_ns = clock_now_ns();

	(void)state;
	fixture_ledger = &ledger;
	struct weights_table *table = fixture_table_of(fixture_coppiced, 300 * KIB, 30000);

	held.weights = fixture_load(table, ALICE, fixture_file_of("a", 100));
	fixture_expect_ready(held.weights);
	ledger_announce(&ledger, LEDGER_WEIGHTS, 90 * KIB);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 90 * KIB), 0);
	assert_int_equal(held_program_begin(&held, &with, why), -EAGAIN);
	assert_true(held.until_ns > now_ns);
	held.until_ns = now_ns;
	assert_int_equal(held_program_begin(&held, &with, why), -ENOSPC);
	assert_non_null(strstr(why, "The program's scratch takes 80K; KV has"));
	assert_int_equal(ledger.of[LEDGER_WEIGHTS], 190 * KIB);
	assert_int_equal(weights_bytes(table), 100 * KIB);
	ledger_announce_no_more(&ledger, LEDGER_WEIGHTS, 90 * KIB);
	weights_unref(held.weights);
	weights_table_free(table);
	fixture_ledger = NULL;
}

/* At the least and the most that the key takes. */
static void a_program_whose_token_takes_longer_than_it_may_is_refused(void **state)
{
	static const uint32_t some_ms[] = {1, 3600000};
	char why[PROGRAM_WHY_BYTES];

	(void)state;
	struct weights_table *table = fixture_table_of(fixture_coppiced, 300 * KIB, 30000);
	struct held_program held = {.weights =
					    fixture_load(table, ALICE, fixture_file_of("a", 100))};

	fixture_expect_ready(held.weights);
	for (uint32_t i = 0; i < sizeof(some_ms) / sizeof(*some_ms); i++) {
		const struct held_backend on = {.ops = &program_maker, .max_token_ms = some_ms[i]};

		program_fixed_ns = some_ms[i] * 1e6 + 1;
		assert_int_equal(held_program_begin(&held, &on, why), -E2BIG);
		assert_non_null(strstr(why, "max_token_ms"));
		program_fixed_ns = some_ms[i] * 1e6;
		held.cost = (struct backend_program_cost){0};
		assert_int_equal(held_program_begin(&held, &on, why), 0);
		weights_give_scratch(held.weights, SCRATCH_BYTES);
	}
	program_fixed_ns = 0;
	weights_unref(held.weights);
	weights_table_free(table);
}

static int program_made_beside_one(struct backend *b, const struct program *p,
				   struct backend_weights *weights, struct backend_program **ret,
				   char why[PROGRAM_WHY_BYTES])
{
	return fixture_n_memories > 1 ? -ENOMEM : program_made(b, p, weights, ret, why);
}

static uint64_t program_bytes(struct backend *b, const struct program *p)
{
	(void)b;
	(void)p;
	return SCRATCH_BYTES;
}

/* Its device is so before anything was booked for it. */
static void weights_that_nobody_uses_go_where_a_program_finds_its_device_full(void **state)
{
	static const struct backend_program_ops full_ops = {.program_new = program_made_beside_one,
							    .program_bytes = program_bytes,
							    .program_free = program_gone,
							    .cost = program_cost};
	static const struct backend_ops full = {.program = &full_ops};
	const struct held_backend on = {.ops = &full, .max_token_ms = 1};
	struct ledger ledger = {.max_bytes = 256 * KIB};
	struct held_program held = {0};
	char why[PROGRAM_WHY_BYTES];
	struct weights *b;
	int r;

	(void)state;
	fixture_ledger = &ledger;
	struct weights_table *table = fixture_table_of(fixture_coppiced, 300 * KIB, 30000);

	held.weights = fixture_load(table, ALICE, fixture_file_of("a", 100));
	b = fixture_load(table, BOB, fixture_file_of("b", 90));
	fixture_expect_ready(held.weights);
	fixture_expect_ready(b);
	assert_int_equal(held_program_begin(&held, &on, why), -ENOSPC);
	fixture_leave(b);
	held.cost.scratch_bytes = 0;
	while ((r = held_program_begin(&held, &on, why)) == -EAGAIN)
		fixture_moment();
	assert_int_equal(r, 0);
	assert_int_equal(ledger.all_bytes, 180 * KIB);
	weights_give_scratch(held.weights, SCRATCH_BYTES);
	weights_unref(held.weights);
	weights_table_free(table);
	assert_int_equal(ledger.all_bytes, 0);
	fixture_ledger = NULL;
}

static void who_asks_for_a_program_frees_nothing(void **state)
{
	struct ledger ledger = {.max_bytes = 256 * KIB};

	(void)state;
	assert_int_equal(asks_for_scratch(256 * KIB), 1);
	fixture_ledger = &ledger;
	assert_true(asks_for_scratch(300 * KIB) > 1);
	assert_int_equal(ledger.all_bytes, 0);
	fixture_ledger = NULL;
}

static const struct work_shape shape = {.n_layers = 1,
					.n_q_heads = 1,
					.n_kv_heads = 1,
					.head_dim = 64,
					.page_tokens = 32,
					.dtype = WORK_FP32};

#define EXTENT_TOKENS (EXTENT / (2 * 64 * sizeof(float)))
#define ARENA (8 * MIB)

/* Fills so many extents with a path of its own. */
static void compute_extents(struct client *c, uint32_t first, uint32_t n, uint64_t *ret_seq)
{
	static uint32_t ids[EXTENT_TOKENS];
	struct store_match match;

	for (uint32_t i = 0; i < EXTENT_TOKENS; i++)
		ids[i] = first + i;
	assert_int_equal(client_open(c, ids, 1, ret_seq, &match), 0);
	for (uint32_t i = 0; i < n * EXTENT_TOKENS; i += 1024)
		client_compute(c, *ret_seq, ids + i % EXTENT_TOKENS, 1024);
}

/* The pool has 32 extents, and weights leave it three. */
static void kv_is_not_given_what_weights_have(void **state)
{
	struct ledger ledger = {.max_bytes = 10 * EXTENT};
	struct abi_completion end;
	uint32_t ids[1024] = {0};
	struct harness h;
	struct client c;
	uint64_t seq, other;

	(void)state;
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 7 * EXTENT), 0);
	harness_init(&h);
	harness_start(&h);
	sched_share_ledger(h.sched, &ledger);
	client_start(&c, &h, 1, &shape, ARENA);
	compute_extents(&c, 0, 3, &seq);
	assert_int_equal(ledger.of[LEDGER_KV], 3 * EXTENT);
	end = client_extend(&c, seq, ids, 1024);
	assert_int_equal(end.reason, ABI_NO_ROOM);
	assert_int_equal(client_close(&c, seq), 0);
	compute_extents(&c, 7, 2, &other); /* in place of what is idle */
	assert_int_equal(ledger.of[LEDGER_KV], 3 * EXTENT);
	ledger_give(&ledger, LEDGER_WEIGHTS, EXTENT);
	compute_extents(&c, 9, 2, &seq);
	assert_int_equal(ledger.all_bytes, 10 * EXTENT);
	client_end(&c);
	harness_stop(&h);
	assert_int_equal(ledger.of[LEDGER_KV], 0);
}

/* Weights leave it ten of 32: a tenth of the pool is for who has fewer than are left, wherever the
 * memory has gone. */
static void of_what_weights_leave_newcomers_get_a_part(void **state)
{
	static const uint32_t n_extents[] = {6, 2, 1, 1, 0};
	struct ledger ledger = {.max_bytes = 10 * EXTENT};
	struct client clients[5];
	struct store_match match;
	struct harness h;
	uint64_t seq;

	(void)state;
	harness_init(&h);
	h.config.domain_percent = 90;
	harness_start(&h);
	sched_share_ledger(h.sched, &ledger);
	assert_int_equal(quota_reserved_extents(&h.config), 4);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t ids[1024] = {i};

		client_start(&clients[i], &h, 1 + i, &shape, ARENA);
		if (n_extents[i])
			compute_extents(&clients[i], i, n_extents[i], &seq);
		else
			assert_int_equal(client_open(&clients[i], ids, 1, &seq, &match), 0);
		assert_int_equal(client_extend(&clients[i], seq, ids, 1024).reason, ABI_NO_ROOM);
	}
	assert_int_equal(ledger_left(&ledger), 0);
	for (uint32_t i = 0; i < 5; i++)
		client_end(&clients[i]);
	harness_stop(&h);
}

/* ---- a scheduler and weights, of one ledger -------------------------------------------------- */

struct both {
	struct ledger ledger;
	struct weights_table *table;
	struct harness h;
	struct client c;
};

/* max_seqs 0: as many as usual. */
static void both_begin(struct both *b, uint32_t n_extents, uint32_t max_seqs)
{
	b->ledger = (struct ledger){.max_bytes = n_extents * EXTENT};
	fixture_ledger = &b->ledger;
	b->table = fixture_table_of(fixture_coppiced, 16 * MIB, 30000);
	harness_init(&b->h);
	if (max_seqs)
		b->h.config.max_seqs = max_seqs;
	harness_start(&b->h);
	sched_share_ledger(b->h.sched, &b->ledger);
	client_start(&b->c, &b->h, 1, &shape, ARENA);
}

static void both_end(struct both *b)
{
	client_end(&b->c);
	weights_table_end_loads(b->table);
	harness_stop(&b->h);
	weights_table_free(b->table);
	fixture_ledger = NULL;
}

/* Of eight MiB KV has six that nobody uses, and weights need three. */
static void kv_that_nobody_uses_makes_room_for_weights(void **state)
{
	struct weights *weights;
	struct both b;
	uint64_t seq;
	int fd;

	(void)state;
	both_begin(&b, 4, 0);
	compute_extents(&b.c, 0, 3, &seq);
	fd = fixture_open(fixture_file_of("a", 3072));
	fixture_expect_failure(fixture_begin(b.table, ALICE, &fd, 1), -ENOSPC, "KV has");
	assert_int_equal(b.ledger.of[LEDGER_KV], 3 * EXTENT);
	assert_int_equal(client_close(&b.c, seq), 0);
	weights = fixture_load(b.table, ALICE, fixture_path("a"));
	fixture_expect_ready(weights);
	assert_int_equal(b.ledger.of[LEDGER_WEIGHTS], 3 * MIB);
	assert_in_range(b.ledger.of[LEDGER_KV], 0, 2 * EXTENT);
	weights_unref(weights);
	close(fd);
	both_end(&b);
}

/* Of ten MiB KV has six in use and two idle; with those weights would have four. */
static void what_does_not_help_stays(void **state)
{
	static uint32_t ids[EXTENT_TOKENS];
	struct store_match match;
	struct both b;
	uint64_t used, idle;
	int fd;

	(void)state;
	both_begin(&b, 5, 0);
	compute_extents(&b.c, 0, 3, &used);
	compute_extents(&b.c, 7, 1, &idle);
	assert_int_equal(client_close(&b.c, idle), 0);
	fd = fixture_open(fixture_file_of("a", 5 * 1024));
	fixture_expect_failure(fixture_begin(b.table, ALICE, &fd, 1), -ENOSPC, "KV has");
	for (uint32_t i = 0; i < EXTENT_TOKENS; i++)
		ids[i] = 7 + i;
	assert_int_equal(client_open(&b.c, ids, EXTENT_TOKENS, &idle, &match), 0);
	assert_int_equal(match.cached, EXTENT_TOKENS - 1);
	close(fd);
	both_end(&b);
}

#define PAGE 32u
#define PARTS 70u /* more than go in a round */

/* A page, of which two tokens are in use and the rest, which is idle, frees nothing. */
static void leave_part_of_a_page(struct client *c, uint32_t first)
{
	uint32_t ids[PAGE];
	struct store_match match;
	uint64_t seq;

	for (uint32_t i = 0; i < PAGE; i++)
		ids[i] = first + i;
	assert_int_equal(client_open(c, ids, 1, &seq, &match), 0);
	client_compute(c, seq, ids, PAGE);
	assert_int_equal(client_close(c, seq), 0);
	ids[2]++;
	assert_int_equal(client_open(c, ids, 3, &seq, &match), 0);
	assert_int_equal(match.cached, 2);
	client_compute(c, seq, ids + 2, 1);
}

/* All of it is older than what frees extents. */
static void room_is_made_though_much_of_what_goes_frees_nothing(void **state)
{
	struct weights *weights;
	struct both b;
	uint64_t seq;

	(void)state;
	both_begin(&b, 5, PARTS + 1);
	for (uint32_t i = 0; i < PARTS; i++)
		leave_part_of_a_page(&b.c, 1000000 + 100 * i);
	compute_extents(&b.c, 0, 3, &seq);
	assert_int_equal(client_close(&b.c, seq), 0);
	assert_int_equal(b.ledger.of[LEDGER_KV], 5 * EXTENT);
	weights = fixture_load(b.table, ALICE, fixture_file_of("a", 3072));
	fixture_expect_ready(weights);
	weights_unref(weights);
	both_end(&b);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_have_what_there_is_and_the_pool_its_size),
		cmocka_unit_test(weights_leave_the_pools_last_to_newcomers),
		cmocka_unit_test(weights_are_not_given_what_kv_has),
		cmocka_unit_test(what_programs_take_counts),
		cmocka_unit_test(who_asks_for_a_program_frees_nothing),
		cmocka_unit_test(a_program_that_waits_for_room_is_not_made_each_time),
		cmocka_unit_test(a_program_does_not_wait_for_room_for_ever),
		cmocka_unit_test(a_program_whose_token_takes_longer_than_it_may_is_refused),
		cmocka_unit_test(weights_that_nobody_uses_go_where_a_program_finds_its_device_full),
		cmocka_unit_test(kv_is_not_given_what_weights_have),
		cmocka_unit_test(of_what_weights_leave_newcomers_get_a_part),
		cmocka_unit_test(kv_that_nobody_uses_makes_room_for_weights),
		cmocka_unit_test(what_does_not_help_stays),
		cmocka_unit_test(room_is_made_though_much_of_what_goes_frees_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	assert_int_equal(argc, 2);
	return fixture_run(argv[1], run);
}
