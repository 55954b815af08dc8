/*
 * sampler_test.c - which token comes next.
 */
#include "client/agent/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

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

static struct sampler_choice pick(struct sampler *sampler, const float *logits)
{
	return sampler_pick(sampler, &(struct sampler_scores){.logits = logits});
}

static void greedy_takes_the_largest_and_the_lowest_id_of_equals(void **state)
{
	(void)state;
	const float logits[] = {0, 3, -1, 3, 2};
	struct sampler sampler = make(0, 0, 1, 1, 5);
	const struct sampler_choice choice = pick(&sampler, logits);
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
	const struct sampler_choice choice = pick(&sampler, logits);
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
		const uint32_t id = pick(&a, logits).id;
		assert_int_equal(id, pick(&b, logits).id);
		differ += id != pick(&c, logits).id;
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
		counts[pick(&sampler, logits).id]++;
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
		seen |= 1u << pick(&sampler, logits).id;
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
		seen |= 1u << pick(&sampler, logits).id;
	assert_int_equal(seen, 1 << 0 | 1 << 1);
	sampler_done(&sampler);
}

static void a_low_top_p_keeps_the_likeliest(void **state)
{
	(void)state;
	const float logits[] = {0, 1, 2};
	struct sampler sampler = make(1, 0, 1e-9, 5, 3);
	for (int i = 0; i < 100; i++)
		assert_int_equal(pick(&sampler, logits).id, 2);
	sampler_done(&sampler);
}

static int likelier(const void *a, const void *b)
{
	const struct sampler_entry *x = a, *y = b;
	return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : (int)x->id - (int)y->id;
}

/* Logits of 500 tokens, many of them alike, and the same as the n likeliest of them. */
static void as_top(const float *logits, uint32_t n, struct sampler_entry *entries,
		   struct sampler_scores *ret)
{
	double sum = 0;
	for (uint32_t i = 0; i < 500; i++) {
		entries[i] = (struct sampler_entry){logits[i], i};
		sum += exp(logits[i]);
	}
	qsort(entries, 500, sizeof(*entries), likelier);
	*ret = (struct sampler_scores){.top = entries, .n_top = n, .log_sum = log(sum)};
}

static void the_likeliest_alone_give_the_same_draws_as_all(void **state)
{
	static const struct sampler_config configs[] = {
		{0, 0, 1, 3}, {0.8, 40, 1, 3}, {1.3, 64, 0.7, 3}, {0.6, 1, 1, 3}, {0, 1, 1, 3}};
	struct sampler_entry entries[500];
	struct sampler_scores top;
	float logits[500];
	(void)state;
	for (size_t c = 0; c < sizeof(configs) / sizeof(*configs); c++) {
		const struct sampler_config *o = &configs[c];
		struct sampler all = make(o->temperature, o->top_k, o->top_p, o->seed, 500);
		struct sampler few = make(o->temperature, o->top_k, o->top_p, o->seed, 500);
		for (int i = 0; i < 300; i++) {
			for (uint32_t k = 0; k < 500; k++)
				logits[k] = (float)(random() % 60) / 7;
			as_top(logits, sampler_n_top(o, 64), entries, &top);
			const struct sampler_choice a = pick(&all, logits),
						    b = sampler_pick(&few, &top);
			assert_int_equal(a.id, b.id);
			assert_int_equal(a.other_id, b.other_id);
			assert_true(fabs(a.logprob - b.logprob) < 1e-12);
			assert_true(fabs(a.other_logprob - b.other_logprob) < 1e-12);
		}
		sampler_done(&all);
		sampler_done(&few);
	}
}

static void what_the_likeliest_cannot_tell_is_drawn_from_all(void **state)
{
	(void)state;
	assert_int_equal(sampler_n_top(&(struct sampler_config){.temperature = 1, .top_p = 1}, 64),
			 0);
	assert_int_equal(sampler_n_top(&(struct sampler_config){.temperature = 1, .top_p = 0.5},
				       64),
			 0);
	assert_int_equal(sampler_n_top(&(struct sampler_config){1, 65, 1, 0}, 64), 0);
	assert_int_equal(sampler_n_top(&(struct sampler_config){1, 64, 1, 0}, 64), 64);
	assert_int_equal(sampler_n_top(&(struct sampler_config){0, 0, 1, 0}, 64), 2);
}

static void a_vocabulary_of_one_has_one_choice(void **state)
{
	(void)state;
	const float logits[] = {-3};
	struct sampler sampler = make(1, 0, 1, 5, 1);
	const struct sampler_choice choice = pick(&sampler, logits);
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
		cmocka_unit_test(the_likeliest_alone_give_the_same_draws_as_all),
		cmocka_unit_test(what_the_likeliest_cannot_tell_is_drawn_from_all),
		cmocka_unit_test(a_vocabulary_of_one_has_one_choice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
