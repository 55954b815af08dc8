/* plan_cache_test.c - which plan serves which sequences, and which makes room for a new one. */
#include "daemon/sched/run/plan_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N 2u

static struct sched_model models[2];

/* Of sequences first, first + 1, ... at so many tokens, each of which may take in the next. */
static struct plan_key key_of(struct plan_query queries[N], uint64_t first, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < N; i++)
		queries[i] = (struct plan_query){.handle = first + i,
						 .path_version = 7,
						 .n_tokens = n_tokens,
						 .n_new = 1,
						 .n_last = 100};
	return (struct plan_key){&models[0], queries, N};
}

/* As if its tree had been made and cut. */
static struct plan *plan_for(struct plan_cache *c, const struct plan_key *key)
{
	struct plan *plan = plan_cache_take_oldest(c);

	plan->model = (struct sched_model *)key->model;
	plan->planned = realloc(plan->planned, N * sizeof(*plan->planned));
	assert_non_null(plan->planned);
	for (uint32_t i = 0; i < N; i++)
		plan->planned[i] = key->queries[i];
	plan->n_planned = N;
	return plan;
}

static int setup(void **state)
{
	struct plan_cache *c = calloc(1, sizeof(*c));

	*state = c;
	return plan_cache_begin(c, 1);
}

static int teardown(void **state)
{
	plan_cache_done(*state);
	free(*state);
	return 0;
}

static void a_plan_serves_the_same_sequences_again(void **state)
{
	struct plan_cache *c = *state;
	struct plan_query q[N], others[N];
	struct plan_key key = key_of(q, 1, 50), other = key_of(others, 3, 50);
	struct plan *plan = plan_for(c, &key);
	uint32_t later;

	assert_null(plan_cache_get(c, &key, &later)); /* the batch under way has it */
	assert_int_equal(plan_cache_begin(c, 1), 0);
	assert_null(plan_cache_get(c, &other, &later));
	assert_ptr_equal(plan_cache_get(c, &key, &later), plan);
	assert_int_equal(later, 0);
}

static void a_plan_takes_in_one_token_of_each(void **state)
{
	struct plan_cache *c = *state;
	struct plan_query q[N];
	struct plan_key key = key_of(q, 1, 50);
	struct plan *plan = plan_for(c, &key);

	key_of(q, 1, 51);
	assert_int_equal(plan_fit(plan, &key, 1), 1);
	q[1].n_tokens = 50;
	assert_int_equal(plan_fit(plan, &key, 1), 1); /* one of them has none */
	q[1].n_tokens = 52;
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	assert_int_equal(plan_fit(plan, &key, 2), 2);
	key_of(q, 1, 52);
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	assert_int_equal(plan_fit(plan, &key, 2), 2);
	q[0].n_last = 1; /* the token before came in another node */
	assert_int_equal(plan_fit(plan, &key, 2), PLAN_FITS_NOT);
	key_of(q, 1, 49);
	assert_int_equal(plan_fit(plan, &key, 16), PLAN_FITS_NOT);
}

static void whatever_else_differs_wants_another_plan(void **state)
{
	struct plan_cache *c = *state;
	struct plan_query q[N];
	struct plan_key key = key_of(q, 1, 50);
	struct plan *plan = plan_for(c, &key);

	key.model = &models[1];
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	key = key_of(q, 1, 50);
	key.n_queries = 1;
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	key = key_of(q, 1, 50);
	q[1].path_version++;
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	key = key_of(q, 1, 50);
	q[0].n_new = 2;
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	key = key_of(q, 1, 50);
	q[0].only_appends = true;
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
	key = key_of(q, 1, 50);
	q[0].handle = 2;
	q[1].handle = 1; /* the same, in another order */
	assert_int_equal(plan_fit(plan, &key, 1), PLAN_FITS_NOT);
}

static void what_was_used_longest_ago_makes_room(void **state)
{
	struct plan_cache *c = *state;
	struct plan_query q[N];
	struct plan *plans[8], *again;
	uint32_t later;

	for (uint32_t i = 0; i < 8; i++) {
		struct plan_key key = key_of(q, 10 * i, 50);

		plans[i] = plan_for(c, &key);
	}
	assert_int_equal(plan_cache_begin(c, 1), 0);
	struct plan_key first = key_of(q, 0, 50);

	assert_ptr_equal(plan_cache_get(c, &first, &later), plans[0]);
	again = plan_cache_take_oldest(c);
	assert_ptr_equal(again, plans[1]);
	assert_int_equal(again->n_planned, 0);
	plan_drop(plans[5]);
	assert_ptr_equal(plan_cache_take_oldest(c), plans[5]); /* of no use to anybody */
}

static void a_model_that_goes_takes_its_plans(void **state)
{
	struct plan_cache *c = *state;
	struct plan_query q[N];
	struct plan_key key = key_of(q, 1, 50);
	uint32_t later;

	plan_for(c, &key);
	assert_int_equal(plan_cache_begin(c, 1), 0);
	plan_cache_forget_model(c, &models[0]);
	assert_null(plan_cache_get(c, &key, &later));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_plan_serves_the_same_sequences_again),
		TEST(a_plan_takes_in_one_token_of_each),
		TEST(whatever_else_differs_wants_another_plan),
		TEST(what_was_used_longest_ago_makes_room),
		TEST(a_model_that_goes_takes_its_plans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
