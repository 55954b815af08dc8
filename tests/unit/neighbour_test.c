/*
 * neighbour_test.c - a step that takes seconds, by the CPU backend, and the steps of another user
 * meanwhile. What is asserted are parts of the time that the long step takes, so that it holds on
 * slow machines too. A crowded one may hold up a thread for as long now and then; a scheduler that
 * does not cut holds up others each time.
 */
#include "proto/clock.h"
#include "sched_fixture.h"
#include "tests/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PATH 8192u
#define CHUNK 4096u
#define ROWS 16u
/* A sanitizer makes a step several times longer. There it is a quarter of it, in batches a quarter
 * as long: as many are waited for, and they take what they take without. */
#define FORKS ROUNDS(60u, 15u)
#define BUDGET_MS ROUNDS(30, 8)
#define PART 4 /* of the long step's time, that nobody else may wait */
#define TRIES 4

static const struct work_shape wide = {.n_layers = 1,
				       .n_q_heads = 32,
				       .n_kv_heads = 1,
				       .head_dim = 128,
				       .page_tokens = 64,
				       .dtype = WORK_FP32};

/* All rows have their tensors in one place. */
static struct abi_step_seq one_place(const struct client *c, uint64_t seq, uint32_t n)
{
	struct abi_step_seq rec = client_step_seq(c, seq, 1);

	rec.q_stride = rec.k_stride = rec.v_stride = rec.o_stride = 0;
	rec.n_new = n;
	return rec;
}

/* Appended, and attended to by nobody. */
static void append_path(struct client *c, uint64_t seq)
{
	static const uint32_t ids[CHUNK];
	const struct abi_entry step = {.kind = ABI_STEP, .count = 1, .flags = ABI_STEP_APPEND_ONLY};
	struct abi_step_seq rec = one_place(c, seq, CHUNK);

	for (uint32_t n = 0; n < PATH; n += CHUNK) {
		assert_ends(client_extend(c, seq, ids, CHUNK), 0, ABI_OK);
		assert_ends(client_do(c, step, &rec, sizeof(rec)), 0, ABI_OK);
	}
}

/* Returns the ticket of a step that takes long. */
static uint64_t ask_for_much(struct client *c)
{
	const uint32_t ids[ROWS] = {1};
	struct abi_step_seq recs[FORKS];
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(c, ids, 1, &seq, &match), 0);
	append_path(c, seq);
	for (uint32_t i = 0; i < FORKS; i++) {
		const struct abi_entry fork = {.kind = ABI_FORK, .seq = seq};
		uint64_t twin = client_do(c, fork, NULL, 0).value;

		assert_ends(client_extend(c, twin, ids, ROWS), 0, ABI_OK);
		recs[i] = one_place(c, twin, ROWS);
	}
	return client_submit(c, (struct abi_entry){.kind = ABI_STEP, .count = FORKS}, recs,
			     sizeof(recs));
}

static void start(struct harness *h, struct client *c, uint32_t budget_ms)
{
	harness_init(h);
	h->config.pool_bytes = 128u << 20;
	h->config.batch_budget_ms = budget_ms;
	harness_start(h);
	client_start(c, h, 1, &wide, 1u << 20);
}

static void end(struct harness *h, struct client *c)
{
	client_end(c);
	harness_stop(h);
}

/* Another's steps, beside it. */
static bool steps_wait_for_it(void)
{
	struct harness h;
	struct client c, other;
	struct store_match match;
	uint64_t seq, ticket, begun_ns, took_ns, longest_ns = 0;

	start(&h, &c, BUDGET_MS);
	client_start(&other, &h, 2, &fixture_shape, 1u << 20);
	assert_int_equal(client_open(&other, fixture_ids, 4, &seq, &match), 0);
	client_compute(&other, seq, fixture_ids, 4);
	ticket = ask_for_much(&c);
	begun_ns = clock_now_ns();
	while (ring_done(c.lane) < ticket) {
		uint64_t since_ns = clock_now_ns();

		client_compute(&other, seq, fixture_ids, 1);
		took_ns = clock_now_ns() - since_ns;
		longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
	}
	took_ns = clock_now_ns() - begun_ns;
	assert_ends(client_wait(&c, ticket), 0, ABI_OK);
	print_message("%.0f ms; another's longest token meanwhile: %.0f ms\n",
		      (double)took_ns * 1e-6, (double)longest_ns * 1e-6);
	client_end(&other);
	end(&h, &c);
	return longest_ns >= took_ns / PART;
}

static void another_users_steps_do_not_wait_for_it(void **state)
{
	int tries = 0;

	(void)state;
	while (steps_wait_for_it())
		assert_true(++tries < TRIES);
}

/* What feeds the watchdog, uncut. */
static bool it_seems_to_stand_still(void)
{
	struct harness h;
	struct client c;
	uint64_t ticket, begun_ns, took_ns, moved_ns, progress, longest_ns = 0;

	start(&h, &c, 60000);
	ticket = ask_for_much(&c);
	begun_ns = moved_ns = clock_now_ns();
	progress = sched_progress(h.sched);
	while (ring_done(c.lane) < ticket) {
		uint64_t now_ns = clock_now_ns();

		longest_ns = now_ns - moved_ns > longest_ns ? now_ns - moved_ns : longest_ns;
		if (sched_progress(h.sched) != progress) {
			progress = sched_progress(h.sched);
			moved_ns = now_ns;
		}
	}
	assert_ends(client_wait(&c, ticket), 0, ABI_OK);
	took_ns = clock_now_ns() - begun_ns;
	assert_int_equal(harness_status(&h).steps_cut, 0);
	end(&h, &c);
	return longest_ns >= took_ns / PART;
}

static void it_is_seen_to_move_even_if_nothing_cuts_it(void **state)
{
	int tries = 0;

	(void)state;
	while (it_seems_to_stand_still())
		assert_true(++tries < TRIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_users_steps_do_not_wait_for_it),
		cmocka_unit_test(it_is_seen_to_move_even_if_nothing_cuts_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
