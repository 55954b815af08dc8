/*
 * sampler_test.c - which token comes next.
 */
#include "client/agent/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct sampler make(double temperature, uint32_t top_k, double top_p, uint64_t seed,
			   uint32_t n_vocab)
{
	struct sampler sampler;
	assert_int_equal(sampler_init(&sampler,
				      &(struct sampler_config){temperature, top_k, top_p, seed},
				      n_vocab),
			 0);
	return sampler;
}

static void greedy_takes_the_largest_and_the_lowest_id_of_equals(void **state)
{
	(void)state;
	const float logits[] = {0, 3, -1, 3, 2};
	struct sampler sampler = make(0, 0, 1, 1, 5);
	const struct sampler_choice choice = sampler_pick(&sampler, logits);
	assert_int_equal(choice.id, 1);
	assert_int_equal(choice.other_id, 3);
	assert_true(choice.logprob == choice.other_logprob);
	sampler_done(&sampler);
}

static void logprobs_are_those_of_the_plain_softmax(void **state)
{
	(void)state;
	const float logits[] = {1, 2, 3};
	struct sampler sampler = make(0, 0, 1, 1, 3);
	const struct sampler_choice choice = sampler_pick(&sampler, logits);
	const double all = log(exp(1) + exp(2) + exp(3));
	assert_true(fabs(choice.logprob - (3 - all)) < 1e-12);
	assert_true(fabs(choice.other_logprob - (2 - all)) < 1e-12);
	sampler_done(&sampler);
}

static void a_seed_repeats_its_draws_and_another_differs(void **state)
{
	(void)state;
	float logits[50] = {0};
	struct sampler a = make(1, 0, 1, 7, 50), b = make(1, 0, 1, 7, 50), c = make(1, 0, 1, 8, 50);
	int differ = 0;
	for (int i = 0; i < 100; i++) {
		const uint32_t id = sampler_pick(&a, logits).id;
		assert_int_equal(id, sampler_pick(&b, logits).id);
		differ += id != sampler_pick(&c, logits).id;
	}
	assert_true(differ > 50);
	sampler_done(&a);
	sampler_done(&b);
	sampler_done(&c);
}

/* 40,000 draws of probability p: the share's standard deviation is at most 0.0025, five of them
 * 0.0125. */
static void draws_follow_the_tempered_softmax(void **state)
{
	(void)state;
	const float logits[] = {0, 1, 2, -1};
	const double temperature = 0.7;
	enum { N = 40000 };
	struct sampler sampler = make(temperature, 0, 1, 3, 4);
	uint32_t counts[4] = {0};
	double sum = 0;
	for (int i = 0; i < N; i++)
		counts[sampler_pick(&sampler, logits).id]++;
	for (int i = 0; i < 4; i++)
		sum += exp(logits[i] / temperature);
	for (int i = 0; i < 4; i++)
		assert_true(fabs((double)counts[i] / N - exp(logits[i] / temperature) / sum) <
			    0.0125);
	sampler_done(&sampler);
}

static void top_k_draws_from_the_k_largest_lower_ids_first(void **state)
{
	(void)state;
	const float logits[] = {5, 1, 5, 5, 0};
	struct sampler sampler = make(1, 2, 1, 5, 5);
	uint32_t seen = 0;
	for (int i = 0; i < 500; i++)
		seen |= 1u << sampler_pick(&sampler, logits).id;
	assert_int_equal(seen, 1 << 0 | 1 << 2);
	sampler_done(&sampler);
}

static void top_p_draws_from_the_fewest_that_reach_p(void **state)
{
	(void)state;
	/* Probabilities 0.5, 0.3, 0.15, 0.05. */
	const float logits[] = {logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f)};
	struct sampler sampler = make(1, 0, 0.7, 5, 4);
	uint32_t seen = 0;
	for (int i = 0; i < 500; i++)
		seen |= 1u << sampler_pick(&sampler, logits).id;
	assert_int_equal(seen, 1 << 0 | 1 << 1);
	sampler_done(&sampler);
}

static void a_low_top_p_keeps_the_likeliest(void **state)
{
	(void)state;
	const float logits[] = {0, 1, 2};
	struct sampler sampler = make(1, 0, 1e-9, 5, 3);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sampler_pick(&sampler, logits).id, 2);
	sampler_done(&sampler);
}

static void a_vocabulary_of_one_has_one_choice(void **state)
{
	(void)state;
	const float logits[] = {-3};
	struct sampler sampler = make(1, 0, 1, 5, 1);
	const struct sampler_choice choice = sampler_pick(&sampler, logits);
	assert_int_equal(choice.id, 0);
	assert_true(choice.logprob == 0);
	sampler_done(&sampler);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_id_of_equals),
		cmocka_unit_test(logprobs_are_those_of_the_plain_softmax),
		cmocka_unit_test(a_seed_repeats_its_draws_and_another_differs),
		cmocka_unit_test(draws_follow_the_tempered_softmax),
		cmocka_unit_test(top_k_draws_from_the_k_largest_lower_ids_first),
		cmocka_unit_test(top_p_draws_from_the_fewest_that_reach_p),
		cmocka_unit_test(a_low_top_p_keeps_the_likeliest),
		cmocka_unit_test(a_vocabulary_of_one_has_one_choice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
