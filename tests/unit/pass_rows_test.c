/*
 * pass_rows_test.c - how many rows of a prompt a pass has: of one that nobody is beside, and as its
 * products go together.
 */
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/run/slice.h"
#include "daemon/sched/round.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)
#define HIDDEN_ROWS 50u
#define ALONE_ROWS (4 * HIDDEN_ROWS)
#define TOKENS 20000u

/* The budget is enough for 100 rows. */
static struct school *school_of_a_reader(double row_ns, struct pupil **ret_reader)
{
	struct school *s = school_new(row_ns);

	world.hidden_rows = HIDDEN_ROWS;
	school_start(s);
	*ret_reader = join(s, 1, 0, 1);
	ask(*ret_reader, TOKENS);
	return s;
}

/* Of a pass behind those that may have begun. */
static uint32_t next_rows(struct school *s)
{
	go_passes(s, 3);
	return world.n_rows;
}

static void nobody_else_for_a_second_makes_passes_longer(void **state)
{
	struct pupil *reader;
	struct school *s = school_of_a_reader(0.3 * MS, &reader);

	(void)state;
	assert_int_equal(next_rows(s), ALONE_ROWS);
	assert_true(world.longest_ns <= FIXED_NS + 0.31 * MS * ALONE_ROWS);
	school_free(s);
}

static void who_opens_a_sequence_is_there_for_a_second(void **state)
{
	struct pupil *reader;
	struct school *s = school_of_a_reader(0.3 * MS, &reader);

	(void)state;
	go_passes(s, 2);
	join(s, 1, 0, 1);
	assert_in_range(next_rows(s), 95, 100);
	go_for(s, 600 * 1000 * US);
	assert_in_range(next_rows(s), 95, 100);
	go_for(s, 400 * 1000 * US);
	assert_int_equal(next_rows(s), ALONE_ROWS);
	school_free(s);
}

static void who_has_asked_is_there_for_a_second(void **state)
{
	struct pupil *reader, *other;
	struct school *s = school_of_a_reader(0.3 * MS, &reader);

	(void)state;
	other = join(s, 2, 0, 1);
	go_for(s, 2 * SECOND_NS);
	assert_int_equal(next_rows(s), ALONE_ROWS);
	ask(other, 1);
	go_passes(s, 3);
	assert_true(has(other));
	assert_in_range(world.n_rows, 95, 100);
	go_for(s, 600 * 1000 * US);
	assert_in_range(next_rows(s), 95, 100);
	go_for(s, 400 * 1000 * US);
	assert_int_equal(next_rows(s), ALONE_ROWS);
	school_free(s);
}

/* From when he has what he has asked for. */
static void who_has_had_a_long_prompt_is_there_for_a_second(void **state)
{
	struct pupil *reader, *other;
	struct school *s = school_of_a_reader(0.3 * MS, &reader);

	(void)state;
	other = join(s, 2, 0, 1);
	ask(other, TOKENS / 4);
	while (!has(other))
		go_passes(s, 1);
	assert_true(world.now_ns > 2 * SECOND_NS);
	assert_in_range(next_rows(s), 95, 100);
	go_for(s, 600 * 1000 * US);
	assert_in_range(next_rows(s), 95, 100);
	go_for(s, 400 * 1000 * US);
	assert_int_equal(next_rows(s), ALONE_ROWS);
	school_free(s);
}

/* Two prompts, each of which waits for the other's passes. */
static void two_prompts_are_not_alone(void **state)
{
	struct pupil *reader, *other;
	struct school *s = school_of_a_reader(0.3 * MS, &reader);

	(void)state;
	other = join(s, 2, 0, 1);
	ask(other, TOKENS);
	go_for(s, 2 * SECOND_NS);
	assert_in_range(next_rows(s), 95, 100);
	school_free(s);
}

static void no_pass_is_longer_than_some_budgets(void **state)
{
	struct pupil *reader;
	struct school *s = school_of_a_reader(MS, &reader);

	(void)state;
	assert_in_range(next_rows(s), 115, 120);
	assert_true(world.longest_ns <= FIXED_NS + 4 * BUDGET_NS + MS);
	school_free(s);
}

static uint32_t multiple_of_64(uint32_t n_rows)
{
	return ceil_div(n_rows, 64) * 64;
}

/* In the budget are products of 256 rows and attention of so many that not all of them go. */
static uint32_t rows_between(double fixed_ns)
{
	struct school *s = school_new(0.1 * MS);
	struct pupil *reader;

	s->program.rows_as = multiple_of_64;
	world.fixed_ns = fixed_ns;
	school_start(s);
	reader = join(s, 1, 0, 1);
	ask(reader, 500);
	go_till_all_have(s);
	reader->c.session->models[reader->c.model - 1]->pair_ns = 0.15 * MS / 500;
	ask(reader, 1000);
	go_passes(s, 1);
	school_free(s);
	return world.n_rows;
}

/* 114 rows have products of 128, which take as long as 14 rows more would: with 64 each has its
 * tokens sooner, unless reading the weights takes long. */
static void rows_are_left_out_where_the_others_are_sooner_without(void **state)
{
	(void)state;
	assert_int_equal(rows_between(0.1 * MS), 64);
	assert_in_range(rows_between(5 * MS), 112, 115);
}

/* Beside a row of decode, whose products are those of 64: half of its pass is enough for 63 more,
 * but not for products of 128. */
static void products_of_all_rows_are_in_the_time_that_a_prompt_has(void **state)
{
	struct school *s = school_new(0.09 * MS);

	(void)state;
	s->program.rows_as = multiple_of_64;
	s->h.config.prompt_percent = 50;
	school_start(s);
	join(s, 1, 1, 1);
	join(s, 1, 10000, 1);
	go_passes(s, 10);
	assert_int_equal(world.n_rows, 64);
	school_free(s);
}

/* As go_till_all_have, where passes are long: from the end of one to the next. */
static void finish_all(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		while (!has(&s->pupils[i]))
			go_round(s);
}

#define HEADS 3000u

/* Where attention is cut by time, a pass may have seconds of it; each row leaves something in each
 * segment of 2,048 tokens of its path, for each head. */
static void what_rows_leave_to_be_merged_has_its_room(void **state)
{
	struct school *s = school_new(0.001 * MS);
	struct sched_model *model;
	struct pupil *p, *q;
	double row_bytes = HEADS * (16 + 2) * 4.0, most;

	(void)state;
	s->program.holds = true;
	world.fixed_ns = 2000 * MS;
	s->h.config.pool_bytes = 64u << 20;
	school_start(s);
	p = join(s, 1, 0, 1);
	q = join(s, 1, 0, 1);
	ask(p, 20000);
	ask(q, 20000);
	finish_all(s);
	model = p->c.session->models[p->c.model - 1];
	model->shape.n_q_heads = HEADS;
	ask(p, 50);
	ask(q, 500);
	go_passes(s, 1);
	model->shape.n_q_heads = 1;
	most = (double)SLICE_PARTIALS_BYTES / (row_bytes * (20000 / 2048 + 2));
	assert_in_range(world.n_rows, (uint32_t)most - 1, (uint32_t)most);
	school_free(s);
}

#define READERS 20u
#define READER_TOKENS 20000u

/* A token each of two sequences of his. */
static void ask_of_two(struct pupil *p, uint64_t other)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seqs[2];
		uint32_t ids[2];
	} body = {.seqs = {{.seq = p->seq, .n_new = 1}, {.seq = other, .n_new = 1}}};

	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = 2}, &body,
		      sizeof(body));
}

/* Each at the end of a path of his own, reading which takes nothing, as modelled from now on. */
static struct school *school_of_readers(struct sched_model **ret)
{
	struct school *s = school_new(0);

	world.fixed_ns = 2000 * MS;
	s->h.config.batch_budget_ms = 1;
	school_start(s);
	for (uint32_t i = 0; i < READERS; i++) {
		join(s, 1 + i, 0, 1);
		ask(&s->pupils[i], READER_TOKENS);
		finish_all(s);
	}
	*ret = s->pupils[0].c.session->models[s->pupils[0].c.model - 1];
	(*ret)->token_ns = (*ret)->pair_ns = 0;
	for (uint32_t i = 0; i < READERS; i++)
		ask(&s->pupils[i], 1);
	return s;
}

/* Whose pages are small, so that a plan for all of them takes longer than to read them; it is made
 * in one piece, however long the pass. */
static void to_plan_a_pass_takes_no_longer_than_a_batch(void **state)
{
	struct sched_model *model;
	struct school *s = school_of_readers(&model);
	double plan_ns;

	(void)state;
	model->name_ns = PAGE_NS / 4;
	plan_ns = pages_ns(model, READER_TOKENS);
	assert_true(READERS * plan_ns > 1.5 * MS);
	go_passes(s, 1);
	assert_true(world.n_rows > 1);
	assert_true(world.n_rows * plan_ns <= 1 * MS);
	finish_all(s);
	school_free(s);
}

/* Plans are made by the scheduler: of the device's time they take none. */
static void a_slow_device_makes_no_plan_longer(void **state)
{
	struct sched_model *model;
	struct school *s = school_of_readers(&model);

	(void)state;
	s->h.sched->core.passes.times = 8;
	assert_true(READERS * pages_ns(model, READER_TOKENS) > 1.5 * MS / 8);
	go_passes(s, 1);
	assert_int_equal(world.n_rows, READERS);
	finish_all(s);
	school_free(s);
}

/* What several read is planned once. */
static void a_path_of_several_is_planned_once(void **state)
{
	struct school *s = school_new(0);
	struct abi_entry fork;
	struct pupil *p;
	struct sched_model *model;

	(void)state;
	world.fixed_ns = 2000 * MS;
	s->h.config.batch_budget_ms = 1;
	school_start(s);
	p = join(s, 1, 0, 1);
	ask(p, READER_TOKENS);
	finish_all(s);
	fork = (struct abi_entry){.kind = ABI_FORK, .seq = p->seq};
	model = p->c.session->models[p->c.model - 1];
	ask_of_two(p, client_do(&p->c, fork, NULL, 0).value);
	model->token_ns = model->pair_ns = 0;
	model->name_ns = PAGE_NS;
	assert_true(pages_ns(model, READER_TOKENS) > 0.6 * MS);
	go_passes(s, 1);
	assert_int_equal(world.n_rows, 2);
	finish_all(s);
	school_free(s);
}

#define TILE 32u
#define DEEP 8000u

/* Rows of a prompt beside one that decodes, where half of a pass is 2.5 ms and a row's products and
 * attention take so long, as modelled: what is learned is forgotten. */
static uint32_t rows_by_tiles(double row_ns, double attend_ns)
{
	struct school *s = school_new(row_ns);
	struct pupil *reader;
	struct sched_model *model;
	uint32_t n_rows;

	s->h.config.prompt_percent = 50;
	school_start(s);
	join(s, 1, 1, 1);
	reader = join(s, 1, 0, 1);
	ask(reader, DEEP);
	while (!has(reader))
		go_passes(s, 1);
	model = reader->c.session->models[reader->c.model - 1];
	model->program->cost.attend_rows = TILE;
	model->pair_ns = attend_ns / DEEP;
	ask(reader, 2000);
	for (uint32_t i = 0; i < 8; i++) {
		model->longer = LONGER_NONE;
		go_passes(s, 1);
	}
	n_rows = world.n_rows;
	school_free(s);
	return n_rows - 1;
}

/* They are enough for 67 rows, with attention of 96: with 64 each has its tokens sooner. */
static void rows_behind_whole_tiles_are_left_out(void **state)
{
	(void)state;
	assert_int_equal(rows_by_tiles(0.0204 * MS, 0.0112 * MS), 2 * TILE);
}

/* 2.5 ms are enough for 60 rows, but not for the 64 whose attention takes as long. */
static void attention_of_all_rows_is_in_the_time_that_a_prompt_has(void **state)
{
	(void)state;
	assert_int_equal(rows_by_tiles(0.001 * MS, 0.04 * MS), TILE);
	assert_int_equal(rows_by_tiles(0.001 * MS, 0.036 * MS), 2 * TILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_else_for_a_second_makes_passes_longer),
		cmocka_unit_test(who_opens_a_sequence_is_there_for_a_second),
		cmocka_unit_test(who_has_asked_is_there_for_a_second),
		cmocka_unit_test(who_has_had_a_long_prompt_is_there_for_a_second),
		cmocka_unit_test(two_prompts_are_not_alone),
		cmocka_unit_test(no_pass_is_longer_than_some_budgets),
		cmocka_unit_test(rows_are_left_out_where_the_others_are_sooner_without),
		cmocka_unit_test(products_of_all_rows_are_in_the_time_that_a_prompt_has),
		cmocka_unit_test(what_rows_leave_to_be_merged_has_its_room),
		cmocka_unit_test(to_plan_a_pass_takes_no_longer_than_a_batch),
		cmocka_unit_test(a_slow_device_makes_no_plan_longer),
		cmocka_unit_test(a_path_of_several_is_planned_once),
		cmocka_unit_test(attention_of_all_rows_is_in_the_time_that_a_prompt_has),
		cmocka_unit_test(rows_behind_whole_tiles_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
