/*
 * pass_claims_test.c - what is claimed by tokens of programs, which wait for others' passes for
 * longer than a lease is long.
 */
#include "school.h"

#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PLACES 200u
#define ROW_NS (0.3 * MS)
#define N_PROMPT 100u
#define CLAIM_MS 8u /* less than two segments */

/* Another sequence in place of its own, whose prompt begins with that id. */
static struct store_match open_anew(struct pupil *p, uint32_t first)
{
	struct store_match match;
	uint32_t ids[N_PROMPT];

	for (uint32_t i = 0; i < N_PROMPT; i++)
		ids[i] = (i + first) % N_VOCAB;
	world.instant = true;
	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_open(&p->c, ids, N_PROMPT, &p->seq, &match), 0);
	world.instant = false;
	return match;
}

/* A sequence whose prompt is what ask() will ask for: its place is the one before's. */
static struct pupil *join_with_prompt(struct school *s, uint64_t user)
{
	struct pupil *p = join(s, user, 0, (uint32_t)user);
	uint32_t first = (uint32_t)p->seq;

	assert_true(open_anew(p, first).claimed);
	assert_int_equal((uint32_t)p->seq, first);
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

static uint32_t n_tokens_of(const struct school *s, const struct pupil *p)
{
	return store_seq_n_tokens(handle_seq(&s->h.sched->core.seqs, p->seq)->store);
}

/* Tokens go behind the path as it was when they came, whatever others have published of the prompt
 * since. */
static void whose_tokens_are_on_their_way_waits_for_nobody(void **state)
{
	struct school *s = school_new(ROW_NS);
	struct seq_wait_call call = {.for_ns = UINT64_MAX};
	struct sched_request rq = {.serve = verb_seq_wait.serve, .room = &call};
	struct pupil *p, *q;

	(void)state;
	world.n_places = PLACES;
	school_start(s);
	p = join_with_prompt(s, 1);
	q = join(s, 1, 0, 1);
	assert_int_equal(open_anew(q, (uint32_t)p->seq).pending, N_PROMPT - 1);
	rq.session = q->c.session;
	call.seq = q->seq;
	sched_post(s->h.sched, &rq);
	ask(p, N_PROMPT);
	while (LIST_FIRST(&p->c.session->lanes)->state != STEP_IN_PASS)
		go_round(s);
	ask(q, N_PROMPT);
	while (!has(p) || !has(q))
		go_round(s);
	assert_ptr_equal(sched_reap(s->h.sched), &rq);
	assert_int_equal(rq.code, -EBUSY);
	assert_int_equal(n_tokens_of(s, q), N_PROMPT);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pass_that_is_aside_keeps_its_claims),
		cmocka_unit_test(who_waits_for_a_pass_to_end_keeps_his_claim),
		cmocka_unit_test(whose_tokens_are_on_their_way_waits_for_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
