/*
 * pass_foresee_test.c - plans of passes with prompts, made while the backend has the pass before:
 * who will be in them, and where their tokens will lie, is foreseen.
 */
#include "plan_school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Nobody waits for what follows a prompt of which nothing is wanted. */
static void nothing_is_foreseen_of_who_does_not_come_again(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);

	(void)state;
	stop_all(s);
	ask(reader, PROMPT);
	go_slowly_till_has(s, reader);
	assert_int_equal(n_made_ahead(), 0);
	school_free(s);
}

/* Each chunk but the first, none of which is as long as a page or begins with one. */
static void a_long_prompt_goes_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);
	uint64_t before;

	(void)state;
	stop_all(s);
	ask(reader, 5);
	go_slowly_till_has(s, reader);
	before = n_made_in_passes(s);
	ask(reader, 3 * MAX_ROWS + 100);
	go_slowly_till_has(s, reader);
	assert_int_equal(n_made_in_passes(s), before + 1);
	assert_int_equal(n_made_ahead(), 3);
	school_free(s);
}

#define LAYERS 256u /* a page of which fills an extent */
#define CHUNK_EXTENTS (MAX_ROWS / 64)

static struct {
	const struct school *of;
	uint32_t n, n_between, n_at_once;
	uint64_t round; /* of the last one that the backend has had a pass beside */
} commits;

static int commit(struct backend *b, uint32_t extent)
{
	const struct sched *sched = commits.of->h.sched;

	commits.n++;
	if (!sched->passes.in_flight) {
		commits.n_between++;
	} else {
		commits.n_at_once += commits.round == sched->rounds + 1;
		commits.round = sched->rounds + 1;
	}
	return backend_cpu.extent_commit(b, extent);
}

/* What a pass's tokens lie in has memory before the one before has ended, but for a prompt's
 * first; others who wait for the scheduler wait for one extent's. */
static void memory_is_there_before_a_long_prompts_tokens_are(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, LAYERS);

	(void)state;
	stop_all(s);
	commits.of = s;
	commits.n = commits.n_between = commits.n_at_once = 0;
	s->ops.extent_commit = commit;
	ask(reader, 3 * MAX_ROWS + 100);
	while (!has(reader))
		go_for(s, ROUND_NS);
	assert_true(commits.n > 3 * CHUNK_EXTENTS);
	assert_in_range(commits.n_between, 0, CHUNK_EXTENTS);
	assert_int_equal(commits.n_at_once, 0);
	school_free(s);
}

/* Those who decode come again for each of them. */
static void a_long_prompt_beside_others_goes_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);
	uint64_t before = n_made_in_passes(s), n_passes = world.n_passes;

	(void)state;
	ask(reader, 900);
	go_slowly_till_has(s, reader);
	assert_true(world.n_passes - n_passes >= 3);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* More than a pass has, of several who have come at once. */
static void prompts_of_many_go_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	uint64_t before, n_passes;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	n_passes = world.n_passes;
	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 200);
	for (uint32_t i = 0; i < N; i++)
		go_slowly_till_has(s, &s->pupils[i]);
	assert_in_range(world.n_passes - n_passes, 3, 4);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* A user has pages of his own. */
static void prompts_of_several_users_go_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_shares(100, 90);
	struct pupil *readers[4];
	uint64_t before, n_passes;

	(void)state;
	stop_all(s);
	for (uint32_t i = 0; i < 4; i++)
		readers[i] = join(s, 1 + i % 2, 0, 1);
	before = n_made_in_passes(s);
	n_passes = world.n_passes;
	for (uint32_t i = 0; i < 4; i++)
		ask(readers[i], 200);
	for (uint32_t i = 0; i < 4; i++)
		go_slowly_till_has(s, readers[i]);
	assert_in_range(world.n_passes - n_passes, 4, 5);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* It comes while the others' pass is under way. */
static void a_newcomers_prompt_goes_by_a_plan_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;
	struct pupil *newcomer = join(s, 1, 0, 1);
	uint64_t before;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 1);
	while (!s->h.sched->passes.in_flight)
		go_for(s, ROUND_NS);
	ask(newcomer, PROMPT);
	go_for(s, 3 * ROUND_NS);
	assert_true(s->h.sched->passes.in_flight);
	while (plan_ahead_is_making(ahead))
		usleep(100);
	for (uint32_t i = 0; i < N; i++)
		s->pupils[i].again = 1;
	go_slowly_till_has(s, newcomer);
	assert_int_equal(n_made_in_passes(s), before);
	school_free(s);
}

/* Its first pass is under way. */
static void begin_prompt(struct school *s, struct pupil *p, uint32_t n)
{
	ask(p, n);
	while (!s->h.sched->passes.in_flight)
		go_for(s, ROUND_NS);
}

/* While a long prompt's pass is under way, of which more is left, and plans are made. */
static void look_ahead(struct school *s)
{
	for (uint32_t i = 0; i < 3; i++) {
		go_for(s, ROUND_NS);
		while (plan_ahead_is_making(&s->h.sched->passes.plans->ahead))
			usleep(100);
	}
	assert_true(s->h.sched->passes.in_flight);
}

/* A pass is foreseen some times only, whoever comes: of those who come then it waits for a plan. */
static void who_trickles_in_is_not_looked_at_each_time(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *more[8];
	uint64_t before;

	(void)state;
	stop_all(s);
	for (uint32_t i = 0; i < 8; i++)
		more[i] = join(s, 1, 0, 1);
	begin_prompt(s, reader, 3 * MAX_ROWS);
	look_ahead(s);
	before = s->h.sched->passes.plans->n_trees;
	for (uint32_t i = 0; i < 8; i++) {
		ask(more[i], 1);
		look_ahead(s);
	}
	assert_int_equal(s->h.sched->passes.plans->n_trees - before, 2 * 2);
	go_slowly_till_has(s, reader);
	go_for_all(s);
	school_free(s);
}

/* As many wait as did before. */
static void who_comes_as_another_goes_is_foreseen(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *first = join(s, 1, 0, 1),
		     *next = join(s, 1, 0, 1);
	uint64_t before;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	begin_prompt(s, reader, 2 * MAX_ROWS);
	ask(first, PROMPT);
	look_ahead(s);
	ask(next, PROMPT);
	assert_int_equal(client_close(&first->c, first->seq), 0);
	look_ahead(s);
	go_slowly_till_has(s, reader);
	go_slowly_till_has(s, next);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* Another one leaves its path behind each token. */
static void make_nodes(struct school *s, const struct pupil *p, uint32_t n)
{
	struct store_seq *seq = handle_seq(&s->h.sched->core.seqs, p->seq)->store, *other;
	uint32_t mine = (uint32_t)p->seq, others = 0;

	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(store_seq_fork(seq, world.now_ns, &other), 0);
		assert_int_equal(store_seq_extend(seq, &mine, 1, false, world.now_ns), 0);
		assert_int_equal(store_seq_publish(seq, world.now_ns), 0);
		assert_int_equal(store_seq_extend(other, &others, 1, false, world.now_ns), 0);
		assert_int_equal(store_seq_publish(other, world.now_ns), 0);
		store_seq_close(other, world.now_ns);
	}
}

/* While so many wait, each behind 500 nodes. Returns how many plans are made. */
static uint32_t look_ahead_at_paths(uint32_t n)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *more[9];
	uint32_t n_made, before;

	stop_all(s);
	for (uint32_t i = 0; i < n; i++) {
		more[i] = join(s, 1, 0, 1);
		make_nodes(s, more[i], 500);
	}
	before = n_made_ahead();
	begin_prompt(s, reader, 2 * MAX_ROWS);
	look_ahead(s);
	for (uint32_t i = 0; i < n; i++)
		ask(more[i], 1);
	look_ahead(s);
	n_made = n_made_ahead() - before;
	go_for_all(s);
	school_free(s);
	return n_made;
}

/* 4096 in all. */
static void of_many_nodes_nothing_is_foreseen(void **state)
{
	(void)state;
	assert_int_equal(look_ahead_at_paths(7), 2);
	assert_int_equal(look_ahead_at_paths(9), 1);
}

/* Its sequence is one on the first tokens of the other's. */
static void stand_in_the_middle(struct pupil *p, const struct pupil *other, uint32_t n)
{
	uint32_t ids[100];
	struct store_match match;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = (i + (uint32_t)other->seq) % N_VOCAB;
	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_open(&p->c, ids, n, &p->seq, &match), 0);
	assert_int_equal(match.cached, n - 1);
}

/* What comes next leaves a path there that nobody has left before. */
static void a_path_that_ends_in_the_middle_of_anothers_is_planned_as_it_is(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *first = join(s, 1, 0, 1), *p = join(s, 1, 0, 1);

	(void)state;
	stop_all(s);
	ask(first, 100);
	go_slowly_till_has(s, first);
	stand_in_the_middle(p, first, 50);
	begin_prompt(s, reader, 2 * MAX_ROWS);
	ask(p, 40);
	look_ahead(s);
	go_slowly_till_has(s, reader);
	go_slowly_till_has(s, p);
	school_free(s);
}

/* Tokens that are all the next one behind the sequence. */
static void ask_for_a_draft(struct pupil *p, uint32_t n)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[2 * ABI_DECODE_DRAFT_MAX]; /* and parents */
	} body = {.seq = {.seq = p->seq, .n_new = n}};

	memset(body.ids + n, 0xff, n * sizeof(*body.ids));
	client_submit(&p->c,
		      (struct abi_entry){.kind = ABI_DECODE,
					 .flags = ABI_EXTEND_PARENTS,
					 .count = 1},
		      &body,
		      (uint32_t)(sizeof(body.head) + sizeof(body.seq) + 2 * n * sizeof(*body.ids)));
}

/* It comes while a long prompt is computed, of which more is left. */
static void a_draft_goes_by_no_plan_that_took_it_for_tokens(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *drafter = &s->pupils[0];

	(void)state;
	stop_all(s);
	begin_prompt(s, reader, 2 * MAX_ROWS);
	ask_for_a_draft(drafter, 4);
	look_ahead(s);
	go_slowly_till_has(s, reader);
	go_slowly_till_has(s, drafter);
	assert_int_equal(end_of(drafter).status, 0);
	school_free(s);
}

/* Another takes the pages where its next chunk was to lie. */
static void a_plan_whose_pages_another_has_is_made_anew(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *other = &s->pupils[0];
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;
	uint64_t before;
	struct store_seq *seq;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	ask(reader, 2 * MAX_ROWS);
	while (!s->h.sched->passes.in_flight)
		go_round(s);
	while (plan_ahead_is_making(ahead))
		usleep(100);
	assert_true(plan_ahead_is_made(ahead));
	seq = handle_seq(&s->h.sched->core.seqs, other->seq)->store;
	assert_int_equal(store_seq_extend(seq, (uint32_t[100]){0}, 100, false, world.now_ns), 0);
	go_slowly_till_has(s, reader);
	assert_int_equal(n_made_in_passes(s), before + 2);
	store_seq_void(seq, world.now_ns);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_foreseen_of_who_does_not_come_again),
		cmocka_unit_test(a_long_prompt_goes_by_plans_made_meanwhile),
		cmocka_unit_test(memory_is_there_before_a_long_prompts_tokens_are),
		cmocka_unit_test(a_long_prompt_beside_others_goes_by_plans_made_meanwhile),
		cmocka_unit_test(prompts_of_many_go_by_plans_made_meanwhile),
		cmocka_unit_test(prompts_of_several_users_go_by_plans_made_meanwhile),
		cmocka_unit_test(a_newcomers_prompt_goes_by_a_plan_made_meanwhile),
		cmocka_unit_test(who_trickles_in_is_not_looked_at_each_time),
		cmocka_unit_test(who_comes_as_another_goes_is_foreseen),
		cmocka_unit_test(of_many_nodes_nothing_is_foreseen),
		cmocka_unit_test(a_path_that_ends_in_the_middle_of_anothers_is_planned_as_it_is),
		cmocka_unit_test(a_draft_goes_by_no_plan_that_took_it_for_tokens),
		cmocka_unit_test(a_plan_whose_pages_another_has_is_made_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
