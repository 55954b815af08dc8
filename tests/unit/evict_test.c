/* evict_test.c - LRU order, used and pinned paths, quotas, room taken from others. */
#include "store_fixture.h"

#include <errno.h>

static void test_the_least_recently_used_leaf_goes_first(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "aaaa");
	fixture_leave(&f, "bbbb");
	fixture_leave(&f, "cccc");
	fixture_cached(&f, "aaaa#");
	assert_int_equal(store_evict(f.store, "m", 1, 10), 1);
	assert_int_equal(fixture_cached(&f, "bbbb#"), 0);
	assert_int_equal(store_evict(f.store, "m", 1, 10), 1);
	assert_int_equal(fixture_cached(&f, "cccc#"), 0);
	assert_int_equal(fixture_cached(&f, "aaaa#"), 4);
	fixture_done(&f);
}

static void test_leaves_go_before_their_parents(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "aaaa1111");
	fixture_leave(&f, "aaaa2222");
	assert_int_equal(store_evict(f.store, NULL, 1, 10), 1);
	assert_int_equal(fixture_cached(&f, "aaaa1111#"), 4);
	assert_int_equal(store_evict(f.store, NULL, 1, 10), 1);
	assert_int_equal(fixture_cached(&f, "aaaa2222#"), 4);
	assert_int_equal(store_evict(f.store, NULL, 1, 10), 1);
	assert_int_equal(fixture_stats(&f).n_namespaces, 0);
	fixture_done(&f);
}

static void test_used_paths_stay(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	fixture_leave(&f, "aaaacccc");
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	assert_int_equal(fixture_cached(&f, "aaaabbbb#"), 8);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	fixture_done(&f);
}

static void test_what_goes_may_free_no_page(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "aab");
	fixture_leave(&f, "aac");
	assert_int_equal(store_evict(f.store, NULL, 100, 1), 0); /* "aa" is in its page */
	assert_true(store_has_idle(f.store, "m") && !store_has_idle(f.store, "other"));
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	assert_false(store_has_idle(f.store, NULL));
	fixture_done(&f);
}

static void test_evict_keeps_to_its_bounds(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	for (char c = 'a'; c < 'k'; c++)
		fixture_leave(&f, (char[]){c, c, c, c, 0});
	assert_int_equal(store_evict(f.store, "other", 100, 100), 0);
	assert_int_equal(store_evict(f.store, NULL, 3, 100), 3);
	assert_int_equal(store_evict(f.store, NULL, 100, 2), 2);
	assert_int_equal(store_evict(f.store, "m", 100, 100), 5);
	store_model_unref(other);
	fixture_done(&f);
}

/* Each model keeps an empty extent for itself. */
static void test_as_many_empty_extents_are_given_as_are_asked_for(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	struct store_seq *q = fixture_open_in(&f, other, 1, 0, "bbbb", NULL);
	fixture_publish(&f, q, "bbbb");
	fixture_close(&f, q);
	fixture_leave(&f, "aaaa");
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	for (uint32_t n_left = 2; n_left > 0; n_left--) {
		assert_int_equal(f.n_committed, n_left);
		assert_int_equal(store_give(f.store, 1, 1), 0);
	}
	assert_int_equal(f.n_committed, 0);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_a_name_is_all_models_of_it_open_or_not(void **state)
{
	struct fixture f;
	struct store_model *m;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "aaaa");
	for (uint64_t print = 1; print <= 3; print++) {
		struct store_model_info info = {
			.name = "other",
			.fingerprint = {print},
			.page_tokens = 4,
			.page_bytes = 100,
		};
		assert_int_equal(store_model_open(f.store, &info, &m), 0);
		struct store_seq *q = fixture_open_in(&f, m, 1, 0, "bbbb", NULL);
		fixture_publish(&f, q, "bbbb");
		fixture_close(&f, q);
		store_model_unref(m);
	}
	assert_true(store_has_model(f.store, "other"));
	assert_int_equal(store_evict(f.store, "other", 100, 100), 3);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).n_models, 1);
	assert_false(store_has_model(f.store, "other"));
	assert_int_equal(store_evict(f.store, "other", 100, 100), 0);
	assert_int_equal(fixture_cached(&f, "aaaa#"), 4);
	fixture_done(&f);
}

static void test_a_pin_holds_a_path_until_its_time(void **state)
{
	struct fixture f;
	uint64_t pin, later;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	assert_int_equal(store_seq_pin(q, 500, &pin), 0);
	assert_int_equal(store_seq_pin(q, 300, &later), 0);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 0);
	assert_int_equal(store_tick(f.store, 299), 300);
	assert_int_equal(store_tick(f.store, 300), 500);
	fixture_check(&f);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 0);
	assert_true(store_tick(f.store, 500) == UINT64_MAX);
	fixture_check(&f);
	assert_int_equal(store_unpin(f.store, pin, UINT64_MAX, 500), -ENOENT);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	fixture_done(&f);
}

static void test_a_domain_has_so_many_pins_and_ends_its_own_alone(void **state)
{
	struct fixture f;
	uint64_t pin, second;
	(void)state;

	fixture_init(&f, (struct fixture_options){.max_domain_pins = 1});
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	assert_int_equal(store_seq_pin(q, 500, &pin), 0);
	assert_int_equal(store_seq_pin(q, 500, &second), -EUSERS);
	assert_int_equal(store_unpin(f.store, pin, 2, 0), -ENOENT);
	assert_int_equal(store_unpin(f.store, pin, 1, 0), 0);
	assert_int_equal(store_seq_pin(q, 500, &second), 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_pin_holds_no_more_than_its_path(void **state)
{
	struct fixture f;
	uint64_t pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	assert_int_equal(store_seq_trim(q, 4, 0), 0);
	assert_int_equal(store_seq_pin(q, 500, &pin), 0);
	fixture_publish(&f, q, "cccc");
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	assert_int_equal(fixture_cached(&f, "aaaabbbb"), 4);
	assert_int_equal(store_unpin(f.store, pin, UINT64_MAX, 0), 0);
	fixture_check(&f);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	fixture_done(&f);
}

static void test_a_node_is_pinned_by_its_id(void **state)
{
	struct fixture f;
	struct store_node_info info[4];
	uint64_t cursor = 0, pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "aaaa");
	fixture_leave(&f, "bbbb");
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 4), 3);
	uint64_t id = info[1].id;
	bool is_a = info[1].head[0] == 'a';
	assert_int_equal(store_node_pin(f.store, id, 1000, &pin), 0);
	fixture_check(&f);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	assert_int_equal(fixture_cached(&f, is_a ? "aaaa#" : "bbbb#"), 4);
	assert_int_equal(store_unpin(f.store, pin, UINT64_MAX, 0), 0);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	assert_int_equal(store_node_pin(f.store, id, 1000, &pin), -ENOENT);
	assert_int_equal(store_node_pin(f.store, 0, 1000, &pin), -ENOENT);
	assert_int_equal(store_node_pin(f.store, 12345678, 1000, &pin), -ENOENT);
	fixture_done(&f);
}

static void test_room_is_made_of_the_own_oldest(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 1, .extent_pages = 4});
	fixture_leave(&f, "aaaa");
	fixture_leave(&f, "bbbb");
	fixture_leave(&f, "cccc");
	struct store_seq *q = fixture_compute(&f, "dddd####");
	assert_int_equal(fixture_cached(&f, "aaaa#"), 0);
	assert_int_equal(fixture_cached(&f, "bbbb#"), 4);
	assert_int_equal(fixture_stats(&f).pages_evicted, 1);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_room_is_made_of_others_when_the_own_is_used(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 2, .extent_pages = 2});
	struct store_model *other = fixture_model(&f, "other", 4, 50);
	fixture_leave(&f, "aaaabbbb");
	struct store_seq *q = fixture_open_in(&f, other, 2, 0, "0123456789abcdef", NULL);
	fixture_publish(&f, q, "0123456789abcdef");
	assert_int_equal(fixture_stats(&f).nodes_evicted, 0);
	fixture_publish(&f, q, "more");
	assert_int_equal(fixture_stats(&f).nodes_evicted, 1);
	assert_int_equal(fixture_cached(&f, "aaaabbbb"), 0);
	fixture_close(&f, q);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_no_room_changes_nothing(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 1, .extent_pages = 4});
	fixture_leave(&f, "aaaabbbb");
	struct store_seq *q = fixture_open(&f, "aaaab#", NULL);
	assert_int_equal(fixture_extend(&f, q, "0123456789abcdef", false), -ENOSPC);
	assert_int_equal(store_seq_n_live(q), 0);
	assert_int_equal(fixture_stats(&f).nodes_evicted, 0);
	assert_int_equal(fixture_stats(&f).nodes_split, 0);
	assert_int_equal(fixture_extend(&f, q, "#######", false), 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

/* The idle node was all that could go, and its extent has a used one too. */
static void test_room_made_in_vain_costs_idle_nodes_and_no_sequence(void **state)
{
	struct fixture f;
	uint32_t n;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 2, .extent_pages = 4});
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	struct store_seq *used = fixture_open_in(&f, other, 2, 0, "aaaa", NULL);
	fixture_publish(&f, used, "aaaa");
	struct store_seq *idle = fixture_open_in(&f, other, 2, 0, "bbbb", NULL);
	fixture_publish(&f, idle, "bbbb");
	fixture_close(&f, idle);
	struct store_seq *q = fixture_compute(&f, "cccccccc");
	struct store_node *node = store_seq_node(q);
	assert_int_equal(fixture_extend(&f, q, "0123456789ab", false), -ENOSPC);
	assert_int_equal(fixture_stats(&f).nodes_evicted, 1);
	assert_int_equal(store_seq_n_tokens(q), 8);
	assert_int_equal(store_seq_n_live(q), 0);
	assert_ptr_equal(store_seq_node(q), node);
	store_seq_slots(q, &n);
	assert_int_equal(n, 0);
	assert_int_equal(fixture_extend(&f, q, "01234567", false), 0);
	fixture_close(&f, q);
	fixture_close(&f, used);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_a_domain_evicts_its_own_for_its_limit(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_bytes = 300});
	fixture_close(&f, fixture_open_in(&f, f.model, 2, 0, "zzzz", NULL));
	fixture_leave(&f, "aaaa");
	fixture_leave(&f, "bbbb");
	struct store_seq *q = fixture_open_in(&f, f.model, 2, 0, "zzzz", NULL);
	fixture_publish(&f, q, "zzzz");
	fixture_close(&f, q);
	struct store_seq *r = fixture_compute(&f, "ccccdddd");
	assert_int_equal(fixture_cached(&f, "aaaa#"), 0);
	assert_int_equal(fixture_cached(&f, "bbbb#"), 4);
	fixture_close(&f, fixture_open_in(&f, f.model, 2, 0, "zzzz#", &match));
	assert_int_equal(match.cached, 4);
	fixture_close(&f, r);
	fixture_done(&f);
}

static void test_a_domain_at_its_limit_is_refused(void **state)
{
	struct fixture f;
	uint64_t pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_bytes = 300});
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	assert_int_equal(store_seq_pin(q, 1000, &pin), 0);
	assert_int_equal(fixture_extend(&f, q, "ccccd", false), -EDQUOT);
	assert_int_equal(store_seq_n_live(q), 0);
	fixture_publish(&f, q, "cccc");
	assert_int_equal(fixture_extend(&f, q, "d", false), -EDQUOT);
	fixture_close(&f, q);
	fixture_done(&f);
}

/* A page keeps a whole extent from others. */
static void test_many_models_do_not_get_a_domain_past_its_limit(void **state)
{
	struct fixture f;
	struct store_model *models[5];
	struct store_seq *seqs[5];
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_bytes = 2 * 1600 - 1});
	for (int i = 0; i < 5; i++) {
		models[i] = fixture_model(&f, (char[]){(char)('a' + i), 0}, 4, 100);
		seqs[i] = fixture_open_in(&f, models[i], 1, 0, "x", NULL);
		assert_int_equal(fixture_extend(&f, seqs[i], "x", false), i < 2 ? 0 : -EDQUOT);
	}
	assert_int_equal(fixture_stats(&f).n_extents_used, 2);
	struct store_seq *other = fixture_open_in(&f, models[4], 2, 0, "x", NULL);
	assert_int_equal(fixture_extend(&f, other, "x", false), 0);
	store_seq_void(seqs[0], 0);
	assert_int_equal(fixture_extend(&f, seqs[4], "x", false), 0);
	assert_int_equal(fixture_extend(&f, seqs[0], "x", false), -EDQUOT);
	fixture_close(&f, other);
	for (int i = 0; i < 5; i++) {
		fixture_close(&f, seqs[i]);
		store_model_unref(models[i]);
	}
	fixture_done(&f);
}

static void test_a_domain_gives_up_an_idle_extent_for_its_limit(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_bytes = 1600});
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	struct store_seq *q = fixture_open_in(&f, f.model, 2, 0, "bbbb", NULL);
	fixture_publish(&f, q, "bbbb");
	fixture_close(&f, q);
	fixture_leave(&f, "aaaa");
	q = fixture_open_in(&f, other, 1, 0, "aaaa", NULL);
	fixture_publish(&f, q, "aaaa");
	assert_int_equal(fixture_stats(&f).nodes_evicted, 1);
	fixture_close(&f, q);
	fixture_close(&f, fixture_open_in(&f, f.model, 2, 0, "bbbb#", &match));
	assert_int_equal(match.cached, 4);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_limited_domains_share_no_extents(void **state)
{
	(void)state;
	for (uint64_t limit = 0; limit <= 1600; limit += 1600) {
		struct fixture f;
		fixture_init(&f, (struct fixture_options){.domain_bytes = limit});
		struct store_seq *a = fixture_open_in(&f, f.model, 1, 0, "aaaa", NULL);
		struct store_seq *b = fixture_open_in(&f, f.model, 2, 0, "aaaa", NULL);
		fixture_publish(&f, a, "aaaa");
		fixture_publish(&f, b, "aaaa");
		assert_int_equal(fixture_stats(&f).n_extents_used, limit ? 2 : 1);
		fixture_close(&f, a);
		fixture_close(&f, b);
		fixture_done(&f);
	}
}

#define OWNER 7

/* A page each of ever new sequences, in use; returns how many it got. */
static int hold_pages(struct fixture *f, uint64_t domain, struct store_seq *seqs[16 * 4 + 1],
		      struct store_model *m)
{
	for (int i = 0; i <= 16 * 4; i++) {
		seqs[i] = fixture_open_in(f, m, domain, (uint64_t)i, "x", NULL);
		if (fixture_extend(f, seqs[i], "x", false) == 0)
			continue;
		fixture_close(f, seqs[i]);
		return i;
	}
	return 16 * 4 + 1;
}

static void test_who_holds_all_it_may_leaves_an_extent_to_others(void **state)
{
	struct store_seq *seqs[16 * 4 + 1], *own, *root, *other;
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 4,
						  .domain_bytes = 2 * 1600,
						  .owner = OWNER});
	assert_int_equal(hold_pages(&f, 1, seqs, f.model), 2 * 16);
	/* A page stays in each extent: nobody else's may lie beside it, nor a third be had. */
	for (int i = 1; i < 16; i++) {
		fixture_close(&f, seqs[i]);
		fixture_close(&f, seqs[16 + i]);
	}
	assert_int_equal(fixture_stats(&f).n_extents_used, 2);
	own = fixture_open_in(&f, f.model, OWNER, 0, "x", NULL);
	root = fixture_open_in(&f, f.model, 0, 0, "x", NULL);
	other = fixture_open_in(&f, f.model, 2, 0, "x", NULL);
	assert_int_equal(fixture_extend(&f, own, "x", false), 0);
	assert_int_equal(fixture_extend(&f, root, "x", false), 0);
	assert_int_equal(fixture_stats(&f).n_extents_used, 3);
	assert_int_equal(fixture_extend(&f, other, "x", false), 0);
	assert_int_equal(store_domain_bytes(f.store, 1), 2 * 1600);
	assert_int_equal(store_domain_bytes(f.store, 2), 1600);
	assert_int_equal(store_domain_bytes(f.store, OWNER), 100);
	assert_int_equal(store_domain_bytes(f.store, 3), 0);
	struct store_model *more = fixture_model(&f, "more", 4, 100);
	struct store_seq *refused = fixture_open_in(&f, more, 1, 0, "x", NULL);
	assert_int_equal(fixture_extend(&f, refused, "x", false), -EDQUOT);
	fixture_close(&f, refused);
	store_model_unref(more);
	fixture_close(&f, own);
	fixture_close(&f, root);
	fixture_close(&f, other);
	fixture_close(&f, seqs[0]);
	fixture_close(&f, seqs[16]);
	fixture_done(&f);
}

/* One page more, which goes again. */
static bool may_extend(struct fixture *f, uint64_t domain)
{
	struct store_seq *q = fixture_open_in(f, f->model, domain, 1000, "x", NULL);
	int r = fixture_extend(f, q, "x", false);

	assert_true(r == 0 || r == -ENOSPC);
	fixture_close(f, q);
	return r == 0;
}

/* The last four of sixteen: for who has fewer than are left. */
static void test_each_who_comes_gets_half_of_what_is_left(void **state)
{
	static const int n_extents[] = {12, 2, 1, 1, 0};
	struct store_seq *seqs[5][16 * 4 + 1];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 16,
						  .extent_pages = 4,
						  .domain_bytes = 14 * 400,
						  .reserved_extents = 4,
						  .owner = OWNER});
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(hold_pages(&f, 1 + i, seqs[i], f.model), 4 * n_extents[i]);
	/* An extent of the first is idle: it is the fifth's, and no other's, who have more. */
	for (int i = 0; i < 4; i++) {
		assert_int_equal(store_seq_publish(seqs[0][i], ++f.now_ns), 0);
		fixture_close(&f, seqs[0][i]);
	}
	for (uint64_t domain = 2; domain < 5; domain++)
		assert_false(may_extend(&f, domain));
	assert_int_equal(fixture_stats(&f).pages_evicted, 0);
	assert_true(may_extend(&f, 5));
	assert_int_equal(fixture_stats(&f).pages_evicted, 4);
	for (int i = 0; i < 5; i++)
		for (int j = i == 0 ? 4 : 0; j < 4 * n_extents[i]; j++)
			fixture_close(&f, seqs[i][j]);
	fixture_done(&f);
}

static void test_who_owns_the_store_may_have_all_of_it(void **state)
{
	struct store_seq *seqs[16 * 4 + 1];
	(void)state;

	for (uint64_t domain = 0; domain <= OWNER; domain += OWNER) {
		struct fixture f;

		fixture_init(&f, (struct fixture_options){.n_extents = 4,
							  .domain_bytes = 1600,
							  .owner = OWNER});
		assert_int_equal(hold_pages(&f, domain, seqs, f.model), 4 * 16);
		for (int i = 0; i < 4 * 16; i++)
			fixture_close(&f, seqs[i]);
		fixture_done(&f);
	}
}

static void test_salted_spaces_vanish_when_empty(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open_in(&f, f.model, 1, 77, "aaaa", NULL);
	assert_int_equal(fixture_stats(&f).n_namespaces, 1);
	fixture_publish(&f, q, "aaaa");
	fixture_close(&f, q);
	assert_int_equal(fixture_stats(&f).n_namespaces, 1);
	assert_int_equal(store_evict(f.store, NULL, 1, 1), 1);
	assert_int_equal(fixture_stats(&f).n_namespaces, 0);
	fixture_done(&f);
}

static void test_a_closed_model_keeps_its_kv_until_evicted(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *m = fixture_model(&f, "other", 4, 100);
	struct store_seq *q = fixture_open_in(&f, m, 1, 0, "aaaa", NULL);
	fixture_publish(&f, q, "aaaa");
	fixture_close(&f, q);
	store_model_unref(m);
	assert_int_equal(fixture_stats(&f).n_models, 2);
	m = fixture_model(&f, "other", 4, 100);
	fixture_close(&f, fixture_open_in(&f, m, 1, 0, "aaaa#", &match));
	assert_int_equal(match.cached, 4);
	store_model_unref(m);
	assert_int_equal(store_evict(f.store, NULL, 1, 1), 1);
	assert_int_equal(fixture_stats(&f).n_models, 1);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_least_recently_used_leaf_goes_first),
		cmocka_unit_test(test_leaves_go_before_their_parents),
		cmocka_unit_test(test_used_paths_stay),
		cmocka_unit_test(test_what_goes_may_free_no_page),
		cmocka_unit_test(test_evict_keeps_to_its_bounds),
		cmocka_unit_test(test_as_many_empty_extents_are_given_as_are_asked_for),
		cmocka_unit_test(test_a_name_is_all_models_of_it_open_or_not),
		cmocka_unit_test(test_a_pin_holds_a_path_until_its_time),
		cmocka_unit_test(test_a_domain_has_so_many_pins_and_ends_its_own_alone),
		cmocka_unit_test(test_a_pin_holds_no_more_than_its_path),
		cmocka_unit_test(test_a_node_is_pinned_by_its_id),
		cmocka_unit_test(test_room_is_made_of_the_own_oldest),
		cmocka_unit_test(test_room_is_made_of_others_when_the_own_is_used),
		cmocka_unit_test(test_no_room_changes_nothing),
		cmocka_unit_test(test_room_made_in_vain_costs_idle_nodes_and_no_sequence),
		cmocka_unit_test(test_a_domain_evicts_its_own_for_its_limit),
		cmocka_unit_test(test_a_domain_at_its_limit_is_refused),
		cmocka_unit_test(test_many_models_do_not_get_a_domain_past_its_limit),
		cmocka_unit_test(test_a_domain_gives_up_an_idle_extent_for_its_limit),
		cmocka_unit_test(test_limited_domains_share_no_extents),
		cmocka_unit_test(test_who_holds_all_it_may_leaves_an_extent_to_others),
		cmocka_unit_test(test_each_who_comes_gets_half_of_what_is_left),
		cmocka_unit_test(test_who_owns_the_store_may_have_all_of_it),
		cmocka_unit_test(test_salted_spaces_vanish_when_empty),
		cmocka_unit_test(test_a_closed_model_keeps_its_kv_until_evicted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
