/*
 * pass_cancel_test.c - a program's tokens of which their client does not want the rest any more.
 */
#include "school.h"

#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PROMPT 5000u /* in some forty passes */

static struct school *school_that_reads(void)
{
	struct school *s = school_new(0.2 * MS);

	school_start(s);
	join(s, 1, 0, 1);
	return s;
}

static void go_until_has(struct school *s, const struct pupil *p)
{
	while (!has(p))
		go_round(s);
}

static void is_cancelled(const struct pupil *p, uint64_t n_published)
{
	struct abi_completion end = end_of(p);

	assert_int_equal(end.status, -ECANCELED);
	assert_int_equal(end.reason, ABI_CANCELLED);
	assert_int_equal(end.cause, 0);
	assert_int_equal(end.published, n_published);
}

/* And can go on at once. */
static void a_prompt_keeps_what_was_published(void **state)
{
	struct school *s = school_that_reads();
	struct pupil *p = &s->pupils[0];
	uint64_t n_tokens;

	(void)state;
	ask(p, PROMPT);
	go_passes(s, 5);
	assert_true(s->h.sched->passes.in_flight);
	ring_cancel(p->c.lane, p->c.ticket);
	go_until_has(s, p);
	assert_int_equal(world.n_passes, 5);
	n_tokens = p->c.session->tokens_computed;
	assert_in_range(n_tokens, 5, PROMPT - 1);
	is_cancelled(p, n_tokens);
	ask(p, 10);
	go_until_has(s, p);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(end_of(p).value, 10);
	assert_int_equal(p->c.session->tokens_computed, n_tokens + 10);
	school_free(s);
}

/* Its last chunk is under way: there is no rest. */
static void who_is_nearly_done_is_done(void **state)
{
	struct school *s = school_that_reads();
	struct pupil *p = &s->pupils[0];

	(void)state;
	ask(p, 10);
	go_passes(s, 1);
	assert_true(s->h.sched->passes.in_flight);
	ring_cancel(p->c.lane, p->c.ticket);
	go_until_has(s, p);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(end_of(p).value, 10);
	school_free(s);
}

/* It is in the ring behind another one, whose client wants it. */
static void who_has_not_begun_does_not_begin(void **state)
{
	struct school *s = school_that_reads();
	struct pupil *p = &s->pupils[0];
	struct abi_completion first;

	(void)state;
	ask(p, 10);
	ask(p, 10);
	ring_cancel(p->c.lane, p->c.ticket);
	go_until_has(s, p);
	first = ring_completion(p->c.lane, p->c.ticket - 1);
	assert_int_equal(first.status, 0);
	assert_int_equal(first.value, 10);
	is_cancelled(p, 0);
	assert_int_equal(world.n_passes, 1);
	school_free(s);
}

/* Of two who wait for the same pass one does not want it any more; the other's goes at once. */
static void who_waits_for_company_ends_without_a_pass(void **state)
{
	struct school *s = school_that_reads();
	struct pupil *p = &s->pupils[0], *q = join(s, 1, 0, 1), *late = join(s, 1, 0, 1);

	(void)state;
	for (uint32_t i = 0; i < s->n; i++)
		ask(&s->pupils[i], 1);
	go_until_has(s, late);
	go_round(s);
	ask(p, 1);
	ask(q, 1);
	sched_round(s->h.sched);
	assert_false(s->h.sched->passes.in_flight);
	ring_cancel(p->c.lane, p->c.ticket);
	sched_round(s->h.sched);
	assert_true(has(p));
	is_cancelled(p, 0);
	go_until_has(s, q);
	assert_int_equal(end_of(q).status, 0);
	assert_int_equal(world.n_rows, 1);
	school_free(s);
}

/* Numbers that are not the decode's say nothing. */
static void nonsense_cancels_nothing(void **state)
{
	struct school *s = school_that_reads();
	struct pupil *p = &s->pupils[0];

	(void)state;
	ask(p, PROMPT);
	for (uint64_t i = 0; !has(p); i++) {
		p->c.lane->entries[ring_slot(p->c.ticket)].cancelled =
			i % 2 ? UINT64_MAX - i : p->c.ticket + 1 + i;
		go_round(s);
	}
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(end_of(p).value, PROMPT);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompt_keeps_what_was_published),
		cmocka_unit_test(who_is_nearly_done_is_done),
		cmocka_unit_test(who_has_not_begun_does_not_begin),
		cmocka_unit_test(who_waits_for_company_ends_without_a_pass),
		cmocka_unit_test(nonsense_cancels_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
