/*
 * pass_rows_test.c - how many rows of a prompt a pass has, as its products go together.
 */
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/sched_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t multiple_of_64(uint32_t n_rows)
{
	return (n_rows + 63) / 64 * 64;
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

/* Beside a row of decode, whose products are those of 64: half of its pass is enough for 63 more, but not
 * for products of 128. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_left_out_where_the_others_are_sooner_without),
		cmocka_unit_test(products_of_all_rows_are_in_the_time_that_a_prompt_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
