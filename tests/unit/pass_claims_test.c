/*
 * pass_claims_test.c - what is claimed by tokens of programs, which wait for others' passes for
 * longer than a lease is long.
 */
#include "school.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PLACES 200u
#define ROW_NS (0.3 * MS)
#define N_PROMPT 100u
#define CLAIM_MS 8u /* less than two segments */

/* A sequence whose prompt is what ask() will ask for: its place is the one before's. */
static struct pupil *join_with_prompt(struct school *s, uint64_t user)
{
	struct pupil *p = join(s, user, 0, (uint32_t)user);
	struct store_match match;
	uint32_t ids[N_PROMPT];

	for (uint32_t i = 0; i < N_PROMPT; i++)
		ids[i] = (i + (uint32_t)p->seq) % N_VOCAB;
	world.instant = true;
	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_open(&p->c, ids, N_PROMPT, &p->seq, &match), 0);
	world.instant = false;
	assert_int_equal((uint32_t)p->seq + N_PROMPT - 1, ids[N_PROMPT - 1]);
	assert_true(match.claimed);
	return p;
}

/* Its own segments lie further apart than a lease is long. */
static void a_pass_that_is_aside_keeps_its_claims(void **state)
{
	struct school *s = school_new(ROW_NS);
	struct store_stats stats;
	struct pupil *p, *q;
	uint64_t begun_ns;

	(void)state;
	world.n_places = PLACES;
	s->h.config.claim_ms = CLAIM_MS;
	school_start(s);
	p = join_with_prompt(s, 1);
	q = join_with_prompt(s, 2);
	ask(p, N_PROMPT);
	ask(q, N_PROMPT);
	begun_ns = world.now_ns;
	while (!has(p) && !has(q)) {
		store_stats(s->h.sched->core.store, &stats);
		assert_int_equal(stats.n_claims, 2);
		go_round(s);
	}
	assert_true(world.now_ns > begun_ns + 4 * CLAIM_MS * MS);
	school_free(s);
}

/* Nor does he lose his claim for whom there is no room beside others' passes. */
static void who_waits_for_a_pass_to_end_keeps_his_claim(void **state)
{
	struct school *s = school_new(ROW_NS);
	struct store_stats stats;
	struct pupil *p;
	uint64_t begun_ns;

	(void)state;
	world.n_places = PLACES;
	s->h.config.claim_ms = CLAIM_MS;
	school_start(s);
	for (uint32_t user = 1; user <= BACKEND_PROGRAMS_AT_ONCE; user++)
		join(s, user, 10000, user);
	while (s->h.sched->passes.n_under_way < BACKEND_PROGRAMS_AT_ONCE)
		go_round(s);
	p = join_with_prompt(s, BACKEND_PROGRAMS_AT_ONCE + 1);
	ask(p, N_PROMPT);
	begun_ns = world.now_ns;
	while (LIST_FIRST(&p->c.session->lanes)->state != STEP_IN_PASS) {
		store_stats(s->h.sched->core.store, &stats);
		assert_int_equal(stats.n_claims, 1);
		go_round(s);
	}
	assert_true(world.now_ns > begun_ns + 2 * CLAIM_MS * MS);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pass_that_is_aside_keeps_its_claims),
		cmocka_unit_test(who_waits_for_a_pass_to_end_keeps_his_claim),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
