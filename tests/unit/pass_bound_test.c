/*
 * pass_bound_test.c - the longest pass that any accepted input can make, at the limits of each key
 * that it depends on, as daemon/README.md says. What is asserted is modelled time: of rows, and of
 * the attention of a layer.
 */
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof(*(array)))
#define WRITERS 24u
#define WRITTEN 16u /* tokens of an entry that is no prompt, at most */
#define READERS 6u
#define ROWS_IN_TIME 10.0 /* of the longer of budget and weights */
#define PASSES 12u
#define PARTS 5.25 /* of that: decode four, prompts a fourth beside it, and the weights */
#define PARTS_BESIDE 2.25 /* another program's tokens */
#define DEEP 3000u

struct limits {
	uint32_t budget_ms, prompt_percent;
	double fixed_ns; /* up to max_token_ms: 1 at least */
	bool beside; /* another program is asked for, too */
};

static double longer_ns(const struct limits *l)
{
	return l->budget_ms * MS > l->fixed_ns ? l->budget_ms * MS : l->fixed_ns;
}

static struct school *crowd(const struct limits *l)
{
	struct school *s = school_new(longer_ns(l) / ROWS_IN_TIME);

	world.fixed_ns = l->fixed_ns;
	s->h.config.batch_budget_ms = l->budget_ms;
	s->h.config.prompt_percent = l->prompt_percent;
	school_start(s);
	if (l->beside)
		join(s, 1, 1, 2);
	for (uint32_t i = 0; i < WRITERS; i++)
		join(s, 2 + i % 3, WRITTEN, 1);
	for (uint32_t i = 0; i < READERS; i++)
		join(s, 2 + i, 10000, 1);
	return s;
}

/* All want all that they may have of a pass. One row goes beyond, whatever it takes. */
static void pass_within(const struct limits *l)
{
	struct school *s = crowd(l);
	double row_ns = world.row_ns, parts = l->beside ? PARTS_BESIDE : PARTS;
	double most_ns = parts * longer_ns(l) + 2 * row_ns;

	go_passes(s, PASSES);
	if (world.longest_ns > most_ns || world.longest_ns < longer_ns(l))
		fail_msg("budget %u ms, prompts %u %%, weights %.1f ms%s: %.1f ms, not %.1f",
			 l->budget_ms, l->prompt_percent, l->fixed_ns / MS,
			 l->beside ? ", beside another" : "", world.longest_ns / MS, most_ns / MS);
	school_free(s);
}

/* Each with each. */
static void no_pass_is_longer_at_the_limits_of_the_keys(void **state)
{
	static const uint32_t budgets[] = {1, 30, 60000}, percents[] = {1, 50, 1000};
	static const double fixed_ns[] = {0.1 * MS, 1 * MS, 30 * MS, 2000 * MS};

	(void)state;
	for (uint32_t i = 0; i < N_OF(budgets) * N_OF(percents) * N_OF(fixed_ns) * 2; i++) {
		const struct limits l = {
			.budget_ms = budgets[i % 3],
			.prompt_percent = percents[i / 3 % 3],
			.fixed_ns = fixed_ns[i / 9 % 4],
			.beside = i / 36,
		};

		pass_within(&l);
	}
}

static void finish_all(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		while (!has(&s->pupils[i]))
			go_round(s);
}

/* Rows at the end of long paths, of a device that does not cut attention: that of a layer takes no
 * longer than a batch, or than one row; and one of the first prompt goes beside these, whatever it
 * takes. */
static void attention_within(uint32_t budget_ms, double rows_in_budget, uint32_t n_rows)
{
	struct school *s = school_new(0.0001 * MS);
	struct sched_model *model;
	double row_ns = budget_ms * MS / rows_in_budget, most_ns;

	s->h.config.batch_budget_ms = budget_ms;
	school_start(s);
	for (uint32_t i = 0; i < 3; i++) {
		join(s, 1 + i, 0, 1);
		ask(&s->pupils[i], DEEP);
	}
	finish_all(s);
	model = s->pupils[0].c.session->models[s->pupils[0].c.model - 1];
	model->pair_ns = row_ns / DEEP;
	world.longest_attend_ns = 0;
	for (uint32_t i = 0; i < 3; i++)
		ask(&s->pupils[i], n_rows);
	finish_all(s);
	row_ns *= (double)(DEEP + n_rows) / DEEP;
	most_ns = (budget_ms * MS > row_ns ? budget_ms * MS : row_ns) + row_ns;
	if (world.longest_attend_ns > 1.01 * most_ns || world.longest_attend_ns < 0.9 * row_ns)
		fail_msg("%u rows, of which %.2f fit %u ms: %.1f ms", n_rows, rows_in_budget,
			 budget_ms, world.longest_attend_ns / MS);
	school_free(s);
}

static void no_attention_of_a_layer_is_longer_at_the_limits_of_the_keys(void **state)
{
	static const uint32_t budgets[] = {1, 30, 60000}, rows[] = {1, 16, 200};
	static const double in_budget[] = {0.1, 1, 40};

	(void)state;
	for (uint32_t i = 0; i < N_OF(budgets) * N_OF(rows) * N_OF(in_budget); i++)
		attention_within(budgets[i % 3], in_budget[i / 9], rows[i / 3 % 3]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_pass_is_longer_at_the_limits_of_the_keys),
		cmocka_unit_test(no_attention_of_a_layer_is_longer_at_the_limits_of_the_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
