/* stripe_test.c - pages of one tree on several devices: paths are even, drafts stay together,
 * devices fill evenly. */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define PAGE_TOKENS 4u
#define RUN_TOKENS (STORE_RUN_PAGES * PAGE_TOKENS)
#define N_SEQS 16u
#define MOST_TOKENS 400u
#define DEVICES_MAX 4u

static void count_path(const struct store_seq *q, uint32_t n_devices, uint32_t n_tokens,
		       uint32_t *ret)
{
	for (uint32_t pos = 0; pos < n_tokens; pos++) {
		uint32_t page = 0, row;
		fixture_row(q, pos, &page, &row);
		ret[page % n_devices]++;
	}
}

/* What the path has on two devices differs by so much at most. */
static uint32_t spread(const struct store_seq *q, uint32_t n_devices, uint32_t n_tokens)
{
	uint32_t tokens[DEVICES_MAX] = {0}, least = UINT32_MAX, most = 0;

	count_path(q, n_devices, n_tokens, tokens);
	for (uint32_t i = 0; i < n_devices; i++) {
		least = tokens[i] < least ? tokens[i] : least;
		most = tokens[i] > most ? tokens[i] : most;
	}
	return most - least;
}

static struct store_seq *open_random(struct fixture *f, uint32_t *next_id)
{
	uint32_t id = (*next_id)++;
	struct store_open open = {.model = f->model, .domain = 1, .tokens = &id, .n_tokens = 1};
	struct store_match match;
	struct store_seq *q;

	assert_int_equal(store_seq_open(f->store, &open, f->now_ns, &q, &match), 0);
	return q;
}

/* Tokens that nobody else has: what is published is its own. */
static void extend_random(struct fixture *f, struct store_seq *q, uint32_t n, uint32_t *next_id)
{
	uint32_t ids[MOST_TOKENS];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = (*next_id)++;
	assert_int_equal(store_seq_extend(q, ids, n, false, f->now_ns), 0);
	assert_int_equal(store_seq_publish(q, f->now_ns), 0);
}

static void random_step(struct fixture *f, struct store_seq **seqs, uint32_t *next_id)
{
	struct store_seq **q = &seqs[(unsigned)rand() % N_SEQS];
	uint32_t n = *q ? store_seq_n_tokens(*q) : 0, r = (unsigned)rand() % 8;

	if (!*q && r < 4 && seqs[0] && q != seqs)
		assert_int_equal(store_seq_fork(seqs[0], f->now_ns, q), 0);
	else if (!*q)
		*q = open_random(f, next_id);
	else if (n > MOST_TOKENS || r == 0)
		(store_seq_close(*q, f->now_ns), *q = NULL);
	else if (r == 1)
		assert_int_equal(store_seq_trim(*q, (unsigned)rand() % (n + 1), f->now_ns), 0);
	else
		extend_random(f, *q, r < 5 ? 1 : 1 + (unsigned)rand() % 90, next_id);
}

static void run_random(uint32_t n_devices)
{
	struct store_seq *seqs[N_SEQS] = {0};
	struct fixture f;
	uint32_t next_id = 1;

	fixture_init(&f, (struct fixture_options){.n_extents = 64,
						  .extent_pages = 60,
						  .n_devices = n_devices});
	for (uint32_t i = 0; i < 4000; i++) {
		random_step(&f, seqs, &next_id);
		for (uint32_t s = 0; i % 50 == 0 && s < N_SEQS; s++)
			for (uint32_t n = 0; seqs[s] && n <= store_seq_n_tokens(seqs[s]); n += 7)
				assert_true(spread(seqs[s], n_devices, n) <= RUN_TOKENS);
		if (i % 50 == 0)
			fixture_check(&f);
	}
	for (uint32_t s = 0; s < N_SEQS; s++)
		store_seq_close(seqs[s], f.now_ns);
	fixture_done(&f);
}

static void test_every_path_is_even_to_within_a_run(void **state)
{
	const char *text = getenv("COPPICE_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : (unsigned)time(NULL);
	(void)state;

	printf("COPPICE_SEED=%u\n", seed);
	srand(seed);
	for (uint32_t n = 2; n <= DEVICES_MAX; n++)
		run_random(n);
}

static void test_leaves_of_one_place_go_to_all_devices(void **state)
{
	struct fixture f;
	struct store_seq *q[16];
	uint32_t tokens[4] = {0}, next_id = 1000;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_devices = 4});
	struct store_seq *shared = fixture_compute(&f, "aaaabbbbccccdddd");
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(store_seq_fork(shared, 0, &q[i]), 0);
		extend_random(&f, q[i], 4, &next_id);
		count_path(q[i], 4, 20, tokens);
	}
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(tokens[i], 16 * 20 / 4);
		assert_int_equal(store_device_bytes(f.store, i), (4 + 16) / 4 * 100);
	}
	for (uint32_t i = 0; i < 16; i++)
		store_seq_close(q[i], 0);
	fixture_close(&f, shared);
	fixture_done(&f);
}

static uint32_t tokens_of(const char *text, uint32_t *ret)
{
	uint32_t n = 0;

	for (; text[n]; n++)
		ret[n] = (unsigned char)text[n];
	return n;
}

static struct store_seq *open_at_home(struct fixture *f, const char *text, uint64_t salt,
				      uint32_t home)
{
	uint32_t ids[MOST_TOKENS];
	struct store_open open = {.model = f->model,
				  .domain = 1,
				  .salt = salt,
				  .tokens = ids,
				  .n_tokens = tokens_of(text, ids),
				  .at_home = true,
				  .home = home};
	struct store_match match;
	struct store_seq *q;

	assert_int_equal(store_seq_open(f->store, &open, 0, &q, &match), 0);
	return q;
}

static void test_a_namespace_with_a_home_has_its_pages_there(void **state)
{
	const char *text = "aaaabbbbccccddddeeeeffffgggghhhh";
	const uint32_t accepted[] = {0, 2};
	struct store_move room[2];
	struct store_moves moves = {.moves = room};
	struct store_seq *q[3];
	struct fixture f;
	uint32_t page = 0, row;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 8, .n_devices = 3});
	for (uint32_t home = 0; home < 3; home++) {
		q[home] = open_at_home(&f, text, 50 + home, home);
		fixture_publish(&f, q[home], text);
		assert_int_equal(fixture_extend(&f, q[home], "ijklmnop", true), 0);
		assert_int_equal(store_seq_accept(q[home], accepted, 2, 0, &moves), 0);
		fixture_check(&f);
		for (uint32_t pos = 0; pos < store_seq_n_tokens(q[home]); pos++) {
			fixture_row(q[home], pos, &page, &row);
			assert_int_equal(page % 3, home);
		}
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(store_device_bytes(f.store, i), 9 * 100);
		fixture_close(&f, q[i]);
	}
	fixture_done(&f);
}

/* The home of one is full, however much room there is elsewhere. */
static void test_a_home_is_not_left_for_lack_of_room(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f,
		     (struct fixture_options){.n_extents = 1, .extent_pages = 4, .n_devices = 2});
	struct store_seq *q = open_at_home(&f, "aaaabbbb", 7, 1);
	fixture_publish(&f, q, "aaaabbbb");
	assert_int_equal(fixture_extend(&f, q, "cccc", false), -ENOSPC);
	assert_int_equal(store_device_bytes(f.store, 0), 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

/* What idles elsewhere stays; what idles at home goes, its end first. */
static void test_room_at_home_is_made_at_home(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f,
		     (struct fixture_options){.n_extents = 1, .extent_pages = 4, .n_devices = 2});
	struct store_seq *q = open_at_home(&f, "aaaabbbb", 1, 0);
	fixture_publish(&f, q, "aaaabbbb");
	fixture_close(&f, q);
	q = open_at_home(&f, "ccccdddd", 2, 1);
	fixture_publish(&f, q, "ccccdddd");
	assert_int_equal(fixture_extend(&f, q, "eeee", false), -ENOSPC);
	assert_int_equal(store_device_bytes(f.store, 0), 2 * 100);
	fixture_close(&f, q);
	q = open_at_home(&f, "ffff", 3, 1);
	fixture_publish(&f, q, "ffff");
	assert_int_equal(store_device_bytes(f.store, 0), 2 * 100);
	assert_int_equal(store_device_bytes(f.store, 1), 2 * 100);
	fixture_close(&f, q);
	q = open_at_home(&f, "ccccdddd#", 2, 1);
	assert_int_equal(store_seq_n_tokens(q), 4);
	fixture_close(&f, q);
	fixture_done(&f);
}

/* What idles at home is found behind however much that idles elsewhere, and was used before. */
static void test_room_at_home_is_found_behind_many_others(void **state)
{
	const uint32_t n = 150;
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 1,
						  .extent_pages = 2 * n,
						  .n_devices = 2});
	for (uint32_t i = 0; i < 2 * n; i++) {
		struct store_seq *q = open_at_home(&f, "aaaa", i, i / n);

		fixture_publish(&f, q, "aaaa");
		fixture_close(&f, q);
	}
	struct store_seq *q = open_at_home(&f, "bbbb", 2 * n, 1);

	assert_int_equal(fixture_extend(&f, q, "bbbb", false), 0);
	assert_true(store_device_bytes(f.store, 0) > 0);
	fixture_check(&f);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_home_is_one_of_the_devices(void **state)
{
	uint32_t id = 1;
	struct store_match match;
	struct store_seq *q;
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_devices = 2});
	struct store_open open = {.model = f.model,
				  .domain = 1,
				  .tokens = &id,
				  .n_tokens = 1,
				  .at_home = true,
				  .home = 2};
	assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), -EINVAL);
	fixture_done(&f);
}

static void check_draft(const struct store_seq *q, uint32_t n_devices)
{
	uint32_t n_slots;
	const struct store_slice *slots = store_seq_slots(q, &n_slots);

	for (uint32_t i = 1; i < n_slots; i++)
		assert_int_equal(slots[i].page % n_devices, slots[0].page % n_devices);
}

static void test_a_draft_is_on_one_device(void **state)
{
	const uint32_t accepted[] = {0, 2, 3, 5};
	struct store_move room[4];
	struct store_moves moves = {.moves = room};
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 60, .n_devices = 3});
	struct store_seq *q = fixture_compute(&f, "ab");
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(fixture_extend(&f, q, "cdefgh", true), 0);
		check_draft(q, 3);
		assert_int_equal(store_seq_accept(q, accepted, 4, 0, &moves), 0);
		for (uint32_t m = 0; m < moves.n; m++)
			assert_int_equal(room[m].from_page % 3, room[m].to_page % 3);
		fixture_check(&f);
		assert_true(spread(q, 3, store_seq_n_tokens(q)) <= RUN_TOKENS);
	}
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_full_device_is_made_room_on(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f,
		     (struct fixture_options){.n_extents = 1, .extent_pages = 4, .n_devices = 2});
	fixture_leave(&f, "aaaabbbbccccdddd");
	struct store_seq *q = fixture_compute(&f, "eeeeffff");
	assert_int_equal(store_device_bytes(f.store, 0), store_device_bytes(f.store, 1));
	assert_int_equal(fixture_extend(&f, q, "gggghhhhiiii", false), -ENOSPC);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_an_extent_has_as_many_pages_on_each_device(void **state)
{
	struct store_model_info info = {.name = "wide",
					.page_tokens = 4,
					.page_bytes = 300,
					.striped = true};
	struct store_model *m;
	struct fixture f;
	(void)state;

	/* 1000 bytes: 500 on each, a page there; all of it would have room for three */
	fixture_init(&f,
		     (struct fixture_options){.n_extents = 1, .extent_pages = 10, .n_devices = 2});
	assert_int_equal(store_model_open(f.store, &info, &m), 0);
	struct store_seq *q = fixture_open_in(&f, m, 1, 0, "aaaabbbbcccc", NULL);
	assert_int_equal(fixture_extend(&f, q, "aaaabbbbcccc", false), -ENOSPC);
	fixture_publish(&f, q, "aaaabbbb");
	fixture_close(&f, q);
	store_model_unref(m);
	info = (struct store_model_info){.name = "wider",
					 .page_tokens = 4,
					 .page_bytes = 600,
					 .striped = true};
	assert_int_equal(store_model_open(f.store, &info, &m), -EMSGSIZE);
	fixture_done(&f);
}

static void test_a_model_that_is_not_striped_is_on_all_devices_alike(void **state)
{
	struct store_model_info info = {.name = "heads", .page_tokens = 4, .page_bytes = 400};
	struct store_model *m;
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_devices = 4});
	assert_int_equal(store_model_open(f.store, &info, &m), 0);
	struct store_seq *q = fixture_open_in(&f, m, 1, 0, "aaaabb", NULL);
	fixture_publish(&f, q, "aaaabb");
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(store_device_bytes(f.store, i), 2 * 400 / 4);
	fixture_close(&f, q);
	store_model_unref(m);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_path_is_even_to_within_a_run),
		cmocka_unit_test(test_leaves_of_one_place_go_to_all_devices),
		cmocka_unit_test(test_a_namespace_with_a_home_has_its_pages_there),
		cmocka_unit_test(test_a_home_is_not_left_for_lack_of_room),
		cmocka_unit_test(test_room_at_home_is_made_at_home),
		cmocka_unit_test(test_room_at_home_is_found_behind_many_others),
		cmocka_unit_test(test_a_home_is_one_of_the_devices),
		cmocka_unit_test(test_a_draft_is_on_one_device),
		cmocka_unit_test(test_a_full_device_is_made_room_on),
		cmocka_unit_test(test_an_extent_has_as_many_pages_on_each_device),
		cmocka_unit_test(test_a_model_that_is_not_striped_is_on_all_devices_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
