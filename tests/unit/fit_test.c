/* fit_test.c - constants that times were made of are found again. */
#include "tests/bench/fit_model.h"
#include "oracle.h"
#include "proto/arith.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct fit_card card = {132, CODE_WGMMA};

/* Of the size of an H200's. */
static const struct costs first = {
	.launch_ns = 4000,
	.work_tile_ns = 4500,
	.row_ns_per_kb = 12,
	.read_ns_per_kb = 14,
	.copy_ns = 110,
	.kv_tile_ns_per_kb = 4,
	.kv_tile_ns = 36,
	.wide_tile_ns_per_kb = 2,
	.wide_tile_ns = 6,
	.turned_times = 1.6,
	.part_ns_per_kb = 20,
	.merge_ns = 3500,
	.memory_ns_per_kb = 0.24,
	.flush_ns_per_kb = 0.2,
	.cache_kb = 80000,
};

struct fixture {
	struct fit_experiment *experiments; /* owned */
	struct costs costs; /* that times are made of */
};

/* Times as the model has them, but for noise. */
static void fixture_init(struct fixture *f, struct oracle_random *random, double noise)
{
	f->experiments = calloc(fit_count(), sizeof(*f->experiments));
	assert_non_null(f->experiments);
	f->costs = first;
	for (uint32_t i = 0; i < FIT_CONSTANTS; i++)
		*fit_constant(&f->costs, i) *= 0.8 + 0.4 * oracle_below(random, 1000) / 1000;
	/* arithmetic must be what tiles take, in wide ones and of narrow head dims (kv_tile_ns) */
	f->costs.wide_tile_ns_per_kb =
		(f->costs.read_ns_per_kb + f->costs.copy_ns / 16) * 1.4 / DEVICE_WARPS;
	for (uint32_t i = 0; i < fit_count(); i++) {
		struct fit_experiment *e = &f->experiments[i];

		assert_int_equal(fit_experiment_init(e, i, &card), 0);
		assert_int_equal(fit_expect(e, &card, &f->costs, &e->us), 0);
		e->us *= 1 + noise * (2.0 * oracle_below(random, 1000) / 1000 - 1);
	}
}

static void fixture_done(struct fixture *f)
{
	for (uint32_t i = 0; i < fit_count(); i++)
		fit_experiment_done(&f->experiments[i]);
	free(f->experiments);
}

static void check_constants(struct fixture *f, double bound)
{
	struct costs found = first;

	assert_int_equal(fit_solve(f->experiments, fit_count(), &card, &found), 0);
	for (uint32_t i = 0; i < FIT_CONSTANTS; i++) {
		double want = *fit_constant(&f->costs, i), got = *fit_constant(&found, i);

		if (fabs(got / want - 1) > bound)
			fail_msg("%s is %g, found as %g", fit_constant_name(i), want, got);
	}
}

static void test_constants_that_times_are_made_of_are_found(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;

	(void)state;
	fixture_init(&f, &random, 0);
	check_constants(&f, 0.15);
	fixture_done(&f);
}

static void test_noise_of_one_in_a_thousand_moves_none_by_a_third(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;

	(void)state;
	fixture_init(&f, &random, 1e-3);
	check_constants(&f, 0.33);
	fixture_done(&f);
}

#define EVERY 8u

/* Every eighth designed workload under all cuts, one after the other; times are the first
 * constants'. */
static struct fit_experiment *make_choices(uint32_t *ret_n)
{
	uint32_t n = ceil_div(fit_count(), EVERY) * SCHEDULE_N_SHARES;
	struct fit_experiment *choices = calloc(n, sizeof(*choices));

	assert_non_null(choices);
	*ret_n = n;
	for (uint32_t i = 0; i < *ret_n; i++) {
		struct fit_experiment *e = &choices[i];

		assert_int_equal(fit_experiment_init(e, i / SCHEDULE_N_SHARES * EVERY, &card), 0);
		e->choice.share = schedule_shares[i % SCHEDULE_N_SHARES];
		assert_int_equal(fit_expect(e, &card, &first, &e->us), 0);
	}
	return choices;
}

/* What is lost by choosing with these constants, over all workloads: a sum of logarithms. */
static double lost(const struct fit_experiment *choices, uint32_t n, const struct costs *costs)
{
	double all = 0;

	for (uint32_t i = 0; i < n; i += SCHEDULE_N_SHARES) {
		double least = INFINITY, chosen = 0, best = INFINITY;

		for (uint32_t k = i; k < i + SCHEDULE_N_SHARES; k++) {
			double us;

			assert_int_equal(fit_expect(&choices[k], &card, costs, &us), 0);
			chosen = us < least ? choices[k].us : chosen;
			least = fmin(least, us);
			best = fmin(best, choices[k].us);
		}
		all += log(chosen / best);
	}
	return all;
}

static void test_constants_that_choose_badly_are_moved_until_they_do_not(void **state)
{
	struct costs costs = first;
	uint32_t n;
	struct fit_experiment *choices = make_choices(&n);
	double before;

	(void)state;
	costs.part_ns_per_kb *= 8;
	costs.merge_ns *= 8;
	before = lost(choices, n, &costs);
	assert_true(before > 0.1);
	assert_int_equal(fit_choose(choices, n, &card, &costs), 0);
	assert_true(lost(choices, n, &costs) < before / 20);
	for (uint32_t i = 0; i < n; i++)
		fit_experiment_done(&choices[i]);
	free(choices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constants_that_times_are_made_of_are_found),
		cmocka_unit_test(test_noise_of_one_in_a_thousand_moves_none_by_a_third),
		cmocka_unit_test(test_constants_that_choose_badly_are_moved_until_they_do_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
