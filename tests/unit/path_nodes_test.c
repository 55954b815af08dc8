/*
 * path_nodes_test.c - no path has more nodes than it may, wherever it is left: who would make one
 * longer is refused, and nothing is changed.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOST 8u
#define TEXT "abcdefghijklmnopqrstuvwx"

static struct store_seq *start_with(struct fixture *f, const char *text)
{
	fixture_init(f, (struct fixture_options){.n_extents = 32, .max_path_nodes = MOST});
	return fixture_compute(f, text);
}

/* Leaves the text behind so many tokens of it, with a token of its own, and stays there. */
static int leave_at(struct fixture *f, uint32_t n, struct store_seq **ret)
{
	struct store_match match;
	char prompt[sizeof(TEXT) + 1] = TEXT;

	strcpy(prompt + n, "##");
	*ret = fixture_open(f, prompt, &match);
	assert_int_equal(match.cached, n);
	int r = fixture_extend(f, *ret, "##", false);
	if (r == 0)
		assert_int_equal(store_seq_publish(*ret, f->now_ns), 0);
	fixture_check(f);
	return r;
}

/* At n places, nearest to the end first: what is below each cut is not looked at by who cuts. */
static void leave_upwards(struct fixture *f, struct store_seq **seqs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(leave_at(f, 20 - i, &seqs[i]), 0);
}

static void evict_all(struct fixture *f)
{
	assert_true(store_evict(f->store, NULL, UINT32_MAX, UINT32_MAX) > 0);
	while (store_tick(f->store, f->now_ns) == f->now_ns)
		fixture_check(f);
}

static void end_with(struct fixture *f, struct store_seq *text)
{
	fixture_close(f, text);
	fixture_done(f);
}

static void close_all(struct fixture *f, struct store_seq **seqs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fixture_close(f, seqs[i]);
}

static void a_path_that_is_left_from_its_end_up_is_bounded(void **state)
{
	struct fixture f;
	struct store_seq *seqs[MOST], *text = start_with(&f, TEXT);
	(void)state;

	leave_upwards(&f, seqs, MOST - 1);
	uint64_t n_nodes = fixture_stats(&f).n_nodes;
	assert_int_equal(store_seq_most_nodes(text), MOST);
	assert_int_equal(leave_at(&f, 4, &seqs[MOST - 1]), -EMLINK);
	assert_int_equal(fixture_stats(&f).n_nodes, n_nodes);
	close_all(&f, seqs, MOST);
	end_with(&f, text);
}

static void a_path_that_is_left_from_its_root_down_is_bounded(void **state)
{
	struct fixture f;
	struct store_seq *seqs[MOST], *text = start_with(&f, TEXT);
	(void)state;

	for (uint32_t i = 0; i < MOST - 1; i++)
		assert_int_equal(leave_at(&f, 4 + i, &seqs[i]), 0);
	assert_int_equal(leave_at(&f, 20, &seqs[MOST - 1]), -EMLINK);
	close_all(&f, seqs, MOST);
	fixture_publish(&f, text, "the last node still grows");
	end_with(&f, text);
}

/* Two that go on from one end, again and again. */
static void a_path_of_forks_is_bounded(void **state)
{
	struct fixture f;
	struct store_seq *text, *forks[MOST];
	(void)state;

	text = start_with(&f, "a");
	for (uint32_t i = 0; i < MOST; i++) {
		assert_int_equal(store_seq_fork(text, f.now_ns, &forks[i]), 0);
		if (i < MOST - 1)
			fixture_publish(&f, text, "a");
	}
	assert_int_equal(fixture_extend(&f, text, "a", false), -EMLINK);
	assert_int_equal(fixture_extend(&f, text, "a", true), -EMLINK);
	assert_int_equal(store_seq_n_live(text), 0);
	close_all(&f, forks, MOST);
	fixture_publish(&f, text, "nobody stands there any more");
	end_with(&f, text);
}

/* Who was alone there when he began. */
static void who_comes_meanwhile_counts(void **state)
{
	struct fixture f;
	struct store_seq *text, *forks[MOST];
	(void)state;

	text = start_with(&f, "a");
	for (uint32_t i = 0; i < MOST - 1; i++) {
		assert_int_equal(store_seq_fork(text, f.now_ns, &forks[i]), 0);
		fixture_publish(&f, text, "a");
	}
	assert_int_equal(fixture_extend(&f, text, "a", false), 0);
	forks[MOST - 1] = fixture_open(&f, "aaaaaaaa#", NULL);
	assert_int_equal(store_seq_publish(text, f.now_ns), -EMLINK);
	fixture_check(&f);
	store_seq_void(text, f.now_ns);
	close_all(&f, forks, MOST);
	fixture_publish(&f, text, "nobody stands there any more");
	end_with(&f, text);
}

static void others_paths_are_as_long_as_they_may(void **state)
{
	struct fixture f;
	struct store_seq *text, *seqs[MOST], *other;
	(void)state;

	text = start_with(&f, TEXT);
	leave_upwards(&f, seqs, MOST - 1);
	other = fixture_compute(&f, "123456789");
	fixture_leave(&f, "1234#");
	assert_int_equal(leave_at(&f, 1, &seqs[MOST - 1]), -EMLINK);
	close_all(&f, seqs, MOST);
	fixture_close(&f, other);
	end_with(&f, text);
}

/* What left the path is evicted, and its borders are of no use. */
static void there_is_room_again_when_who_left_is_gone(void **state)
{
	struct fixture f;
	struct store_seq *seqs[MOST], *text = start_with(&f, TEXT);
	(void)state;

	leave_upwards(&f, seqs, MOST - 1);
	close_all(&f, seqs, MOST - 1);
	evict_all(&f);
	assert_int_equal(fixture_stats(&f).n_nodes, 1);
	leave_upwards(&f, seqs, MOST - 1);
	close_all(&f, seqs, MOST - 1);
	end_with(&f, text);
}

/* Stay where the text has so many tokens. */
static void stay_beside(struct fixture *f, struct store_seq **seqs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const char prompt[] = {'a', 'b', 'c', 'd', (char)(0x80 + i), 0};
		seqs[i] = fixture_compute(f, prompt);
	}
}

/* The path of who stays has as many nodes as it may, and then two again. */
static void lengthen_and_go(struct fixture *f, struct store_seq **stay, uint32_t n_stay)
{
	struct store_seq *seqs[MOST];

	leave_upwards(f, seqs, MOST - 2);
	stay_beside(f, stay, n_stay);
	assert_int_equal(leave_at(f, 2, &seqs[MOST - 2]), -EMLINK);
	close_all(f, seqs, MOST - 1);
	evict_all(f);
	assert_int_equal(fixture_stats(f).n_nodes, 2 + n_stay);
}

static void there_is_room_again_beside_others_that_stay(void **state)
{
	struct fixture f;
	struct store_seq *text, *stay[2], *seq;
	(void)state;

	text = start_with(&f, TEXT);
	lengthen_and_go(&f, stay, 2);
	assert_int_equal(store_seq_most_nodes(text), 2);
	assert_int_equal(leave_at(&f, 2, &seq), 0);
	assert_int_equal(store_seq_most_nodes(text), 3);
	fixture_close(&f, seq);
	close_all(&f, stay, 2);
	end_with(&f, text);
}

/* So many that not all are looked at when one goes, but before a cut is refused. */
static void there_is_room_again_beside_many(void **state)
{
	struct fixture f;
	struct store_seq *text, *stay[100], *seqs[MOST];
	(void)state;

	text = start_with(&f, TEXT);
	lengthen_and_go(&f, stay, 100);
	assert_int_equal(store_seq_most_nodes(text), MOST);
	leave_upwards(&f, seqs, MOST - 2);
	assert_int_equal(store_seq_most_nodes(text), MOST);
	assert_int_equal(leave_at(&f, 2, &seqs[MOST - 2]), -EMLINK);
	close_all(&f, seqs, MOST - 1);
	close_all(&f, stay, 100);
	end_with(&f, text);
}

#define FAR 100u

/* Who is near to the root is not weighed as who is far from it. */
static void who_has_a_short_path_beside_a_long_one_is_told_so(void **state)
{
	struct fixture f;
	struct store_seq *seqs[FAR], *far, *near;
	char text[FAR + 2], prompt[FAR + 2];
	(void)state;

	for (uint32_t i = 0; i < FAR; i++)
		text[i] = (char)('a' + i % 26);
	text[FAR] = '\0';
	fixture_init(&f, (struct fixture_options){.n_extents = 64, .max_path_nodes = 2 * FAR});
	far = fixture_compute(&f, text);
	near = fixture_compute(&f, "#near");
	assert_int_equal(store_seq_most_nodes(near), 1);
	for (uint32_t n = 1; n < FAR; n++) {
		snprintf(prompt, sizeof(prompt), "%.*s#", (int)n, text);
		seqs[n] = fixture_compute(&f, prompt);
	}
	assert_int_equal(store_seq_most_nodes(far), FAR);
	assert_int_equal(store_seq_most_nodes(seqs[FAR - 1]), FAR);
	assert_int_equal(store_seq_most_nodes(near), 1);
	assert_int_equal(store_seq_most_nodes(seqs[1]), 2);
	close_all(&f, seqs + 1, FAR - 1);
	fixture_close(&f, near);
	end_with(&f, far);
}

static void heights_are_corrected_before_a_refusal(void **state)
{
	struct fixture f;
	struct store_seq *text, *stay[100], *seq;
	(void)state;

	text = start_with(&f, TEXT);
	lengthen_and_go(&f, stay, 100);
	assert_int_equal(store_seq_most_nodes(text), MOST);
	assert_int_equal(leave_at(&f, 2, &seq), 0);
	assert_int_equal(store_seq_most_nodes(text), 3);
	fixture_close(&f, seq);
	close_all(&f, stay, 100);
	end_with(&f, text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_that_is_left_from_its_end_up_is_bounded),
		cmocka_unit_test(a_path_that_is_left_from_its_root_down_is_bounded),
		cmocka_unit_test(a_path_of_forks_is_bounded),
		cmocka_unit_test(who_comes_meanwhile_counts),
		cmocka_unit_test(others_paths_are_as_long_as_they_may),
		cmocka_unit_test(there_is_room_again_when_who_left_is_gone),
		cmocka_unit_test(there_is_room_again_beside_others_that_stay),
		cmocka_unit_test(there_is_room_again_beside_many),
		cmocka_unit_test(who_has_a_short_path_beside_a_long_one_is_told_so),
		cmocka_unit_test(heights_are_corrected_before_a_refusal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
