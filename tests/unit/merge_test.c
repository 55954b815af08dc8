/* merge_test.c - the one definition of merge: associative, commutative, and nothing is neutral. */
#include "kernels/merge.h"
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 32u

struct part {
	struct merge_state state;
	float o[DIM];
};

static struct part part_random(struct oracle_random *random)
{
	struct part p = {{oracle_normal(random) * 20, 1 + fabsf(oracle_normal(random))}, {0}};

	for (uint32_t i = 0; i < DIM; i++)
		p.o[i] = 5 + oracle_normal(random);
	return p;
}

static void part_fold(struct part *p, const struct part *q)
{
	merge_fold(&p->state, p->o, &q->state, q->o, DIM);
}

static void assert_parts_near(const struct part *p, const struct part *q)
{
	assert_true(p->state.max == q->state.max);
	assert_true(fabsf(p->state.sum - q->state.sum) <= 1e-6f * p->state.sum);
	for (uint32_t i = 0; i < DIM; i++)
		assert_true(fabsf(p->o[i] - q->o[i]) <= 2e-6f * fabsf(p->o[i]) + 1e-6f);
}

static void test_merge_is_associative_and_commutative_within_rounding(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct part a = part_random(&random), b = part_random(&random);
		struct part c = part_random(&random), left = a, right = b, other = b;

		part_fold(&left, &b);
		part_fold(&other, &a);
		assert_parts_near(&left, &other);
		part_fold(&left, &c);
		part_fold(&right, &c);
		part_fold(&a, &right);
		assert_parts_near(&left, &a);
	}
}

static void test_merge_with_nothing_changes_no_bit(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct part part = part_random(&random), before = part, nothing;

	(void)state;
	merge_empty(&nothing.state, nothing.o, DIM);
	assert_true(merge_scale(&nothing.state) == 0 && merge_lse(&nothing.state) == -INFINITY);
	part_fold(&part, &nothing);
	assert_memory_equal(&part, &before, sizeof(part));
	part_fold(&nothing, &part);
	assert_memory_equal(&nothing, &before, sizeof(part));
}

/* What was finished is merged as it was before: at LSEs up to 60, whose bits are worth 4e-6. */
static void test_an_output_and_its_lse_are_a_part_again(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct merge_state none = merge_of_lse(-INFINITY);

	(void)state;
	assert_true(none.max == -INFINITY && none.sum == 0);
	for (int i = 0; i < 1000; i++) {
		struct part parts[2] = {part_random(&random), part_random(&random)}, done[2];
		struct part whole = parts[0], again;

		part_fold(&whole, &parts[1]);
		for (int k = 0; k < 2; k++) {
			done[k].state = merge_of_lse(merge_lse(&parts[k].state));
			for (uint32_t j = 0; j < DIM; j++)
				done[k].o[j] = parts[k].o[j] * merge_scale(&parts[k].state);
		}
		again = done[0];
		part_fold(&again, &done[1]);
		assert_true(fabsf(merge_lse(&again.state) - merge_lse(&whole.state)) <= 2e-5f);
		for (uint32_t j = 0; j < DIM; j++)
			assert_true(fabsf(again.o[j] * merge_scale(&again.state) -
					  whole.o[j] * merge_scale(&whole.state)) <= 2e-4f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_merge_is_associative_and_commutative_within_rounding),
		cmocka_unit_test(test_merge_with_nothing_changes_no_bit),
		cmocka_unit_test(test_an_output_and_its_lse_are_a_part_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
