/*
 * tail_test.c - paths that are longer than the device has room for: what they leave, where it is,
 * and that all of it is right. Pages have 4 tokens.
 */
#include "tier_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LONGEST 120u
#define N_SEQS 5u
#define OPERATIONS 4000u

static const struct tier_world_key any;

static struct tier_world *world(void **state, uint32_t device_pages, uint32_t host_pages)
{
	struct tier_world *w = calloc(1, sizeof(*w));
	struct tier_world_options options = {.device_pages = device_pages,
					     .host_pages = host_pages,
					     .long_paths = true};
	char error[256];

	assert_non_null(w);
	assert_int_equal(tier_world_open(w, options, error, sizeof(error)), 0);
	*state = w;
	return w;
}

static int tear_down(void **state)
{
	tier_world_close(*state);
	free(*state);
	return 0;
}

static void text_fill(char *text, uint32_t n, uint32_t number)
{
	for (uint32_t i = 0; i < n; i++)
		text[i] = (char)('a' + (i * 7 + number * 3 + i / 9) % 26);
	text[n] = 0;
}

/* Publishes the text from where the sequence stands, so many tokens at a time. */
static void grow(struct tier_world *w, struct store_seq *q, const char *text, uint32_t step)
{
	char part[LONGEST + 1];
	uint32_t n = (uint32_t)strlen(text);

	for (uint32_t at = store_seq_n_tokens(q); at < n; at = store_seq_n_tokens(q)) {
		uint32_t end = at + step < n ? at + step : n;
		memcpy(part, text, end);
		part[end] = 0;
		assert_int_equal(tier_world_publish(w, q, part), 0);
		assert_int_equal(store_seq_n_tokens(q), end);
		assert_true(tier_world_right_anywhere(w, q, text));
		store_tiers_poll(w->store, ++w->now_ns);
		tier_world_check(w);
	}
}

/* A sequence at the end of a text of n tokens; 6 pages of device. */
static struct store_seq *long_seq(struct tier_world *w, char *text, uint32_t n, uint32_t step)
{
	struct store_seq *q;

	text_fill(text, n, 0);
	q = tier_world_seq(w, any, text, NULL);
	grow(w, q, text, step);
	return q;
}

static void test_a_path_may_be_longer_than_the_device(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1];
	struct store_seq *q = long_seq(w, text, 100, 7);

	assert_false(store_seq_is_resident(q));
	store_seq_close(q, w->now_ns);
	tier_world_settle(w);
}

/* Nobody plans what follows a path of which the device lacks a part, though there is room. */
static void test_nothing_is_foreseen_of_it(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1];
	struct store_seq *q = long_seq(w, text, 97, 7);
	struct store_foresight foresight = {0};
	struct store_slice slots[2];
	uint32_t id = 'a';

	assert_int_equal(store_seq_extend(q, &id, 1, false, w->now_ns), 0);
	assert_int_equal(store_seq_foresee(q, 1, &foresight, slots), 0);
	store_seq_close(q, w->now_ns);
	tier_world_settle(w);
}

static void test_it_may_grow_token_by_token(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1];
	struct store_seq *q = long_seq(w, text, 100, 1);

	store_seq_close(q, w->now_ns);
	tier_world_settle(w);
}

static void test_it_is_found_again(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1];

	store_seq_close(long_seq(w, text, 100, 8), w->now_ns);
	struct store_seq *q = tier_world_seq(w, any, text, NULL);
	assert_int_equal(tier_world_wait(w, q).cached, 99);
	assert_int_equal(store_seq_n_tokens(q), 99);
	assert_true(tier_world_right_anywhere(w, q, text));
	grow(w, q, text, 1);
	store_seq_close(q, w->now_ns);
}

static void test_a_fork_shares_it(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1], other[LONGEST + 1];
	struct store_seq *q = long_seq(w, text, 90, 5), *fork;

	assert_int_equal(store_seq_fork(q, w->now_ns, &fork), 0);
	tier_world_check(w);
	assert_int_equal(store_seq_n_tokens(fork), 90);
	strcpy(other, text);
	strcat(other, "ANOTHER");
	strcat(text, "andon");
	grow(w, fork, other, 2);
	grow(w, q, text, 3);
	assert_true(tier_world_right_anywhere(w, fork, other));
	store_seq_close(q, w->now_ns);
	store_seq_close(fork, w->now_ns);
	tier_world_settle(w);
}

static void test_a_trim_takes_back_what_is_anywhere(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	char text[LONGEST + 1];
	struct store_seq *q = long_seq(w, text, 90, 6);

	for (uint32_t n = 89; n > 3; n -= 3) {
		assert_int_equal(store_seq_trim(q, n, w->now_ns), 0);
		tier_world_check(w);
		assert_int_equal(store_seq_n_tokens(q), n);
		assert_true(tier_world_right_anywhere(w, q, text));
	}
	grow(w, q, text, 4);
	store_seq_close(q, w->now_ns);
}

static void test_without_room_in_host_memory_an_extension_fails(void **state)
{
	struct tier_world *w = world(state, 6, 8);
	char text[LONGEST + 1], part[LONGEST + 1];
	struct store_seq *q;
	uint32_t n = 8;
	int r;

	text_fill(text, LONGEST, 0);
	q = tier_world_seq(w, any, text, NULL);
	do {
		memcpy(part, text, n);
		part[n] = 0;
		r = tier_world_publish(w, q, part);
		n += r ? 0 : 8;
	} while (!r && n < LONGEST);
	assert_int_equal(r, -ENOSPC);
	assert_true(n > 6 * 4);
	assert_true(tier_world_right_anywhere(w, q, text));
	store_seq_close(q, w->now_ns);
}

static void test_what_another_domain_uses_stays(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	const struct tier_world_key other = {.domain = 2};
	char text[LONGEST + 1], theirs[LONGEST + 1];
	struct store_seq *q, *of_others;

	text_fill(text, 24, 0);
	q = tier_world_seq(w, any, text, NULL);
	grow(w, q, text, 8);
	text_fill(theirs, 8, 1);
	of_others = tier_world_seq(w, other, theirs, NULL);
	assert_int_equal(tier_world_publish(w, of_others, theirs), -ENOSPC);
	assert_true(store_seq_is_resident(q));
	store_seq_close(of_others, w->now_ns);
	of_others = tier_world_seq(w, any, theirs, NULL);
	grow(w, of_others, theirs, 4);
	assert_false(store_seq_is_resident(q));
	assert_true(tier_world_right_anywhere(w, q, text));
	store_seq_close(of_others, w->now_ns);
	store_seq_close(q, w->now_ns);
}

/* A prompt that waits for what others bring to the device meanwhile, and go on from there. */
static void test_what_came_to_host_memory_alone_may_be_on_the_device_by_now(void **state)
{
	struct tier_world *w = world(state, 6, 64);
	const struct tier_world_key others = {.domain = 2};
	char text[LONGEST + 1];
	struct store_match match;
	struct store_seq *q, *of_others;

	tier_world_leave(w, "abcdefghijklmnop");
	store_evict(w->store, NULL, 6, 6);
	tier_world_settle(w);
	text_fill(text, 24, 0);
	of_others = tier_world_seq(w, others, text, NULL);
	assert_int_equal(tier_world_publish(w, of_others, text), 0);
	q = tier_world_seq(w, any, "abcdefghijABCDE", &match);
	assert_true(store_seq_is_promoted(q) && match.pending == 10);
	tier_world_settle(w);
	store_seq_close(of_others, w->now_ns);
	store_evict(w->store, NULL, 6, 6);
	tier_world_leave(w, "abcdefghijABCDEFG");
	match = tier_world_wait(w, q);
	assert_int_equal(match.cached, 14);
	assert_true(store_seq_is_resident(q));
	assert_true(tier_world_right(w, q, "abcdefghijABCDE"));
	store_seq_close(q, w->now_ns);
}

/* ---- at random ------------------------------------------------------------------------------ */

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

struct held {
	struct store_seq *q; /* NULL: none */
	char text[LONGEST + 1]; /* of its path, and what was asked for behind it */
};

static void open_one(struct tier_world *w, struct held *h, uint64_t *random)
{
	uint32_t n = 1 + (uint32_t)(random_next(random) % (LONGEST - 20));

	text_fill(h->text, n, (uint32_t)(random_next(random) % 2));
	h->q = tier_world_seq(w, any, h->text, NULL);
	if (random_next(random) % 4)
		tier_world_wait(w, h->q);
}

static void extend_one(struct tier_world *w, struct held *h, uint64_t *random)
{
	uint32_t n = store_seq_n_tokens(h->q), n_new = 1 + (uint32_t)(random_next(random) % 9);
	int r;

	if (n + n_new > LONGEST)
		return;
	if (strlen(h->text) < n + n_new || random_next(random) % 8 == 0)
		for (uint32_t i = n; i < n + n_new; i++)
			h->text[i] = (char)('a' + random_next(random) % 2);
	h->text[n + n_new] = 0;
	r = tier_world_publish(w, h->q, h->text);
	assert_true(r == 0 || r == -ENOSPC);
}

static void fork_one(struct tier_world *w, struct held *h, struct held *to)
{
	int r = store_seq_fork(h->q, w->now_ns, &to->q);

	tier_world_check(w);
	if (r)
		to->q = NULL;
	assert_true(r == 0 || r == -ENOSPC);
	memcpy(to->text, h->text, sizeof(to->text));
}

static void close_one(struct tier_world *w, struct held *h)
{
	store_seq_close(h->q, w->now_ns);
	h->q = NULL;
}

static void operate(struct tier_world *w, struct held *held, uint64_t *random)
{
	struct held *h = &held[random_next(random) % N_SEQS];
	struct held *other = &held[random_next(random) % N_SEQS];
	uint32_t n_left;

	switch (h->q ? random_next(random) % 16 : 0) {
	case 0:
		if (h->q)
			close_one(w, h);
		else
			open_one(w, h, random);
		break;
	case 1:
		n_left = (uint32_t)(random_next(random) % (store_seq_n_tokens(h->q) + 1));
		assert_int_equal(store_seq_trim(h->q, n_left, w->now_ns), 0);
		break;
	case 2:
		if (!other->q)
			fork_one(w, h, other);
		break;
	case 3:
		store_evict(w->store, NULL, 3, 3);
		break;
	case 4:
	case 5:
	case 6:
		store_tiers_poll(w->store, ++w->now_ns);
		break;
	default:
		extend_one(w, h, random);
	}
	tier_world_check(w);
	if (h->q && random_next(random) % 4 == 0)
		assert_true(tier_world_right_anywhere(w, h->q, h->text));
}

static void test_sequences_at_random_are_right(void **state)
{
	const char *text = getenv("COPPICE_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
	uint64_t random = seed * 2 + 1;
	struct tier_world *w = world(state, 8, 48);
	struct held held[N_SEQS] = {0};
	uint32_t n_below = 0;

	printf("COPPICE_SEED=%lu\n", seed);
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		operate(w, held, &random);
		for (uint32_t j = 0; j < N_SEQS; j++)
			n_below += held[j].q && !store_seq_is_resident(held[j].q);
	}
	assert_true(n_below > 0);
	for (uint32_t i = 0; i < N_SEQS; i++)
		if (held[i].q)
			close_one(w, &held[i]);
	tier_world_settle(w);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_path_may_be_longer_than_the_device),
		TEST(test_nothing_is_foreseen_of_it),
		TEST(test_it_may_grow_token_by_token),
		TEST(test_it_is_found_again),
		TEST(test_a_fork_shares_it),
		TEST(test_a_trim_takes_back_what_is_anywhere),
		TEST(test_without_room_in_host_memory_an_extension_fails),
		TEST(test_what_another_domain_uses_stays),
		TEST(test_what_came_to_host_memory_alone_may_be_on_the_device_by_now),
		TEST(test_sequences_at_random_are_right),
	};

	return cmocka_run_group_tests_name("tails", tests, NULL, NULL);
}
