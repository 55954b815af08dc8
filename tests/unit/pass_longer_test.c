/*
 * pass_longer_test.c - a prompt beside others has of a pass what it may, where passes take longer
 * than they are modelled to: decode's part of them, or the prompt's.
 */
#include "plan_school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PERCENT 50
#define DECODE_ROWS 1
#define PASSES 100u /* what passes take is known after so many */

static struct longer *longer_of(const struct pupil *p)
{
	return &p->c.session->models[p->c.model - 1]->longer;
}

/* One decodes, by passes of FIXED_NS; then a prompt comes, each of whose rows takes row_ns. */
static struct school *school_of_two(double row_ns, double modelled_fixed_ns, double modelled_row_ns)
{
	struct school *s = school_new(row_ns);
	struct pupil *decoder;
	struct backend_program_cost *cost;

	s->h.config.prompt_percent = PERCENT;
	school_start(s);
	decoder = join(s, 1, 1, 1);
	cost = &decoder->c.session->models[decoder->c.model - 1]->program->cost;
	cost->fixed_ns = modelled_fixed_ns;
	cost->hidden_row_ns = cost->row_ns = modelled_row_ns;
	go_passes(s, PASSES);
	join(s, 1, 20000, 1);
	go_passes(s, PASSES);
	return s;
}

/* Rows of the prompt in a pass that is longer by what it may be. */
static void assert_as_long_as_allowed(double row_ns)
{
	double decode_ns = FIXED_NS + DECODE_ROWS * row_ns;
	double most = decode_ns * PERCENT / 100 / row_ns;

	assert_in_range(world.n_rows - DECODE_ROWS, (uint32_t)(0.95 * most - 1),
			(uint32_t)(1.03 * most + 1));
}

static void a_prompts_rows_that_take_longer_are_fewer(void **state)
{
	struct school *s = school_of_two(0.06 * MS, FIXED_NS, 0.04 * MS);

	(void)state;
	assert_as_long_as_allowed(0.06 * MS);
	school_free(s);
}

static void a_prompts_rows_that_take_less_are_more(void **state)
{
	struct school *s = school_of_two(0.03 * MS, FIXED_NS, 0.05 * MS);

	(void)state;
	assert_as_long_as_allowed(0.03 * MS);
	school_free(s);
}

/* One factor for all of a pass would make of both what they are in the mean. */
static void decode_that_takes_less_leaves_less_to_prompts(void **state)
{
	struct school *s = school_of_two(0.05 * MS, 1.3 * FIXED_NS, 0.03 * MS);

	(void)state;
	assert_as_long_as_allowed(0.05 * MS);
	school_free(s);
}

#define GAP_NS (250 * US)

/* Who decodes asks for his next token a moment after he has had one, and is waited for. */
static void go_with_gaps(struct school *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		go_passes(s, 1);
		while (s->h.sched->passes.now->under_way)
			go_for(s, ROUND_NS);
		go_for(s, GAP_NS);
	}
}

/* A token is from a pass to the next: that is what prompts make longer by their part. */
static void what_comes_between_passes_counts(void **state)
{
	struct school *s = school_new(0.05 * MS);
	double most = (FIXED_NS + 0.05 * MS + (double)GAP_NS) / (0.05 * MS);

	(void)state;
	s->h.config.prompt_percent = 100;
	school_start(s);
	join(s, 1, 1, 1);
	go_with_gaps(s, PASSES);
	join(s, 1, 20000, 1);
	go_with_gaps(s, PASSES);
	assert_in_range(world.n_rows - DECODE_ROWS, (uint32_t)(0.98 * most),
			(uint32_t)(1.02 * most));
	school_free(s);
}

/* As long as factors follow what passes take, plans are made by those that rows are taken by. */
static void plans_of_what_was_foreseen_serve_while_factors_change(void **state)
{
	struct school *s = school_of_n(1000);
	struct pupil *reader = join(s, 1, 0, 1);
	uint64_t before = n_made_in_passes(s);

	(void)state;
	s->h.config.prompt_percent = 15;
	world.row_ns *= 5;
	ask(reader, 900);
	go_slowly_till_has(s, reader);
	assert_true(longer_of(reader)->prompts > 1.1);
	/* the first chunk's, and the last one's where it is no longer than what decode may be */
	assert_in_range(n_made_in_passes(s), before + 1, before + 2);
	school_free(s);
}

/* A pass that took ten times as long is a moment's pause, not what passes take. */
static void one_slow_pass_says_little(void **state)
{
	struct longer longer = LONGER_NONE;
	const struct longer_parts decode = {100, 0}, both = {100, 50};

	(void)state;
	for (uint32_t i = 0; i < PASSES; i++) {
		longer_learn(&longer, &decode, 120);
		longer_learn(&longer, &both, 120 + 40);
	}
	longer_use_learned(&longer);
	assert_true(fabs(longer_prompts_ns(&longer, 100, 0.5) - 0.5 * 120 / 0.8) < 1);
	longer_learn(&longer, &decode, 1200);
	longer_learn(&longer, &both, 1600);
	longer_use_learned(&longer);
	assert_true(fabs(longer.decode - 1.2) < 0.05);
	assert_true(fabs(longer.prompts - 0.8) < 0.05);
}

/* Prompts alone, and what is too little beside decode to be told from it. */
static void what_tells_nothing_is_not_learned(void **state)
{
	struct longer longer = LONGER_NONE;

	(void)state;
	longer_learn(&longer, &(struct longer_parts){0, 100}, 400);
	longer_learn(&longer, &(struct longer_parts){100, 5}, 400);
	longer_use_learned(&longer);
	assert_true(longer.decode == 1 && longer.prompts == 1);
	assert_true(longer_prompts_ns(&longer, 100, 0.5) == 50);
}

/* However many there were: of batches nobody has seen anything yet. */
static void passes_say_nothing_of_batches(void **state)
{
	struct school *s = school_new(0.01 * MS);
	struct sched_core *core;

	(void)state;
	s->ops.unseen = 2.4;
	school_start(s);
	core = &s->h.sched->core;
	assert_true(budget_ns(core) * 2.4 < 1.001 * BUDGET_NS);
	assert_true(pass_budget_ns(core) * 2.4 < 1.001 * BUDGET_NS);
	join(s, 1, 1, 1);
	go_passes(s, PASSES);
	assert_true(pass_budget_ns(core) > 0.99 * BUDGET_NS);
	assert_true(budget_ns(core) * 2.4 < 1.001 * BUDGET_NS);
	school_free(s);
}

#define UNSEEN 2.4
static int take_long_to_advance(struct backend *b, const struct backend_job *job)
{
	(void)b;
	(void)job;
	world.now_ns += (uint64_t)(2 * FIXED_NS);
	return 0;
}

static void what_plans_take_makes_no_pass_seem_slow(void **state)
{
	struct school *s = school_new(0.05 * MS);
	uint64_t before_ns;

	(void)state;
	s->ops.advance = take_long_to_advance;
	school_start(s);
	join(s, 1, 1, 1);
	before_ns = world.now_ns;
	go_passes(s, PASSES);
	assert_true((double)(world.now_ns - before_ns) > PASSES * 2 * FIXED_NS);
	assert_true(s->h.sched->core.passes.times < 1.01);
	school_free(s);
}

#define DEEP 3000u /* tokens before the rows that attend */
#define ATTEND_NS (0.5 * MS) /* each */
#define ATTEND_ROWS 20u

/* Of a backend that may take longer than modelled, of which only weights were seen. From now on
 * rows have attention, as modelled. */
static struct school *school_of_attention(void)
{
	struct school *s = school_new(0.0001 * MS);
	struct pupil *p;

	s->ops.unseen = UNSEEN;
	s->program.holds = true;
	world.n_places = 100;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask(p, DEEP);
	go_till_all_have(s);
	p->c.session->models[p->c.model - 1]->pair_ns = ATTEND_NS / DEEP;
	world.row_ns = ATTEND_NS;
	assert_true(s->h.sched->core.passes.times < 1.01 && !s->h.sched->core.attention.seen);
	return s;
}

/* So many rows with attention. Somewhere in their pass others have the backend for so long. */
static void attend(struct school *s, double pause_ns)
{
	uint32_t n_before = world.n_passes;

	ask(&s->pupils[0], ATTEND_ROWS);
	go_round(s);
	world.now_ns += (uint64_t)pause_ns;
	while (!has(&s->pupils[0]))
		go_round(s);
	assert_int_equal(world.n_passes, n_before + 1);
}

/* Whatever it takes: of others' rows a pass has as many as before, and of attention no fewer than
 * on a machine of which nobody has seen anything. */
static void a_pause_in_the_first_attention_is_no_pace(void **state)
{
	static const double pauses[] = {0.2, 0.85, 4, 100};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct school *s = school_of_attention();
		struct sched_core *core = &s->h.sched->core;
		double budget_ns = pass_budget_ns(core), pass_ns = FIXED_NS + 20 * ATTEND_NS;

		attend(s, pauses[i] * pass_ns);
		assert_true(core->attention.times <= 1.001 * UNSEEN);
		if (pauses[i] < 1)
			assert_true(pass_budget_ns(core) > 0.99 * budget_ns);
		assert_true(pass_budget_ns(core) > 0.5 * budget_ns);
		for (uint32_t k = 0; k < 20; k++)
			attend(s, 0);
		assert_true(core->attention.seen && core->attention.times < 1.15);
		school_free(s);
	}
}

/* What ran twice is no slowness: the next one tells. */
static void the_first_attention_that_began_anew_says_nothing(void **state)
{
	struct school *s = school_of_attention();
	struct sched_core *core = &s->h.sched->core;

	(void)state;
	ask(&s->pupils[0], ATTEND_ROWS);
	while (!s->h.sched->passes.now->under_way || world.next == 0)
		go_round(s);
	world.stale_at = world.next;
	while (!has(&s->pupils[0]))
		go_round(s);
	assert_int_equal(world.stale_at, 0);
	assert_false(core->attention.seen);
	attend(s, 0);
	assert_true(core->attention.seen && core->attention.times < 1.01);
	assert_true(core->passes.times < 1.01);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompts_rows_that_take_longer_are_fewer),
		cmocka_unit_test(a_prompts_rows_that_take_less_are_more),
		cmocka_unit_test(decode_that_takes_less_leaves_less_to_prompts),
		cmocka_unit_test(what_comes_between_passes_counts),
		cmocka_unit_test(plans_of_what_was_foreseen_serve_while_factors_change),
		cmocka_unit_test(one_slow_pass_says_little),
		cmocka_unit_test(what_tells_nothing_is_not_learned),
		cmocka_unit_test(passes_say_nothing_of_batches),
		cmocka_unit_test(what_plans_take_makes_no_pass_seem_slow),
		cmocka_unit_test(a_pause_in_the_first_attention_is_no_pace),
		cmocka_unit_test(the_first_attention_that_began_anew_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
