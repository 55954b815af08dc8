/*
 * tier_models_test.c - models in a tier file's journal: they last as long as they have pages there,
 * and no user's keep others out.
 */
#include "tier_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MANY 6000u /* models: their records are far more than a small journal holds */
#define BIG_PAGE_TOKENS 2000u /* whose ids take 8 KB of the journal */

struct any_image {
	struct tier_image image;
	uint32_t tokens[4];
};

static struct tier_model model_of(uint32_t i)
{
	struct tier_model model = {.page_bytes = WORLD_PAGE_BYTES, .page_tokens = 4};

	snprintf(model.name, sizeof(model.name), "model %u", i);
	return model;
}

static int keep_one(struct tier_catalog *c, uint32_t i, uint32_t *ret_place)
{
	struct any_image any = {
		.image = {.domain = 1 + i % 3, .before = TIER_NONE, .n_tokens = 4, .checksum = i}};
	struct tier_model model = model_of(i);
	int r = tier_catalog_model(c, &model, &any.image.model);

	if (r)
		return r;
	any.image.place = tier_room_take(&c->room, WORLD_PAGE_UNITS);
	*ret_place = any.image.place;
	return tier_catalog_keep(c, &any.image);
}

static struct tier_file *file_of(struct fixture *f)
{
	struct tier_file_config config = {f->path, 0, WORLD_UNIT_BYTES, WORLD_CHUNK_UNITS, 4};
	struct tier_file *file;

	assert_int_equal(tier_file_open(&config, &file, f->error, sizeof(f->error)), 0);
	return file;
}

static void test_models_without_pages_make_room(void **state)
{
	struct fixture *f = *state;
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});
	uint32_t first, place;

	tier_world_close(w);
	struct tier_file *file = file_of(f);
	struct tier_catalog *c = tier_file_catalog(file);
	assert_int_equal(keep_one(c, MANY, &first), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		assert_int_equal(keep_one(c, i, &place), 0);
		assert_int_equal(c->n_kept_models, 2);
		if (i < MANY - 1)
			assert_true(tier_catalog_unref(c, place));
	}
	assert_true(c->n_models <= 3);
	tier_file_close(file);
	file = file_of(f);
	c = tier_file_catalog(file);
	assert_int_equal(c->report.n_images, 2);
	assert_int_equal(c->report.n_models, 2);
	assert_string_equal(c->models[c->images[place]->model - 1].model.name, "model 5999");
	assert_string_equal(c->models[c->images[first]->model - 1].model.name, "model 6000");
	tier_file_close(file);
}

/* A number that goes from model to model says what it said when each image was kept. */
static void test_records_are_charged_to_who_keeps_images(void **state)
{
	struct fixture *f = *state;
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});
	uint32_t places[9];

	tier_world_close(w);
	struct tier_file *file = file_of(f);
	struct tier_catalog *c = tier_file_catalog(file);
	uint64_t each = tier_catalog_bytes(1, 4);
	for (uint32_t i = 0; i < 9; i++)
		assert_int_equal(keep_one(c, i, &places[i]), 0);
	assert_int_equal(tier_shares_of(&c->shares, 1), 3 * each);
	assert_true(tier_catalog_unref(c, places[0]));
	assert_int_equal(tier_shares_of(&c->shares, 1), 2 * each);
	assert_int_equal(tier_shares_of(&c->shares, 2), 3 * each);
	assert_int_equal(c->shares.bytes, 8 * each);
	tier_file_close(file);
	file = file_of(f);
	c = tier_file_catalog(file);
	assert_int_equal(c->shares.bytes, 8 * each);
	assert_int_equal(tier_shares_of(&c->shares, 1), 2 * each);
	tier_file_close(file);
}

static struct store_model *big_model(struct tier_world *w)
{
	struct store_model_info info = {.name = "big",
					.page_tokens = BIG_PAGE_TOKENS,
					.page_bytes = WORLD_PAGE_BYTES};
	struct store_model *m;

	assert_int_equal(store_model_open(w->store, &info, &m), 0);
	return m;
}

static struct store_seq *big_open(struct tier_world *w, struct store_model *m, uint64_t domain,
				  uint32_t number, struct store_match *ret)
{
	static uint32_t ids[BIG_PAGE_TOKENS + 1];
	struct store_open open = {.model = m,
				  .domain = domain,
				  .tokens = ids,
				  .n_tokens = BIG_PAGE_TOKENS + 1};
	struct store_seq *q;

	for (uint32_t i = 0; i <= BIG_PAGE_TOKENS; i++)
		ids[i] = number + i;
	assert_int_equal(store_seq_open(w->store, &open, w->now_ns, &q, ret), 0);
	return q;
}

/* A document of one page, written to the file. */
static struct store_seq *big_leave(struct tier_world *w, struct store_model *m, uint64_t domain,
				   uint32_t number)
{
	struct store_match match;
	struct store_seq *q = big_open(w, m, domain, number, &match);
	uint32_t ids[BIG_PAGE_TOKENS];

	for (uint32_t i = 0; i < BIG_PAGE_TOKENS; i++)
		ids[i] = number + i;
	assert_int_equal(store_seq_extend(q, ids, BIG_PAGE_TOKENS, false, w->now_ns), 0);
	assert_int_equal(store_seq_publish(q, w->now_ns), 0);
	store_tiers_flush(w->store);
	tier_world_settle(w);
	return q;
}

static bool big_is_backed(struct tier_world *w, struct store_model *m, uint64_t domain,
			  uint32_t number)
{
	struct store_match match;
	struct store_seq *q = big_open(w, m, domain, number, &match);
	const struct store_node *n = store_seq_node(q);
	bool backed = match.cached == BIG_PAGE_TOKENS && n->residency &&
		      n->residency->n_backed == n->n_slices;

	store_seq_close(q, w->now_ns);
	return backed;
}

static void test_the_oldest_goes_where_the_journal_is_full(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){32, 16, 64});
	struct store_model *m = big_model(w);

	for (uint32_t i = 0; i < 30; i++)
		store_seq_close(big_leave(w, m, 1, i << 16), w->now_ns);
	struct store_tiers_stats stats = tier_world_stats(w);
	assert_true(stats.journal_evicted > 0);
	assert_true(stats.journal_bytes <= stats.journal_capacity);
	assert_int_equal(stats.n_file_models, 1);
	assert_false(big_is_backed(w, m, 1, 0));
	assert_true(big_is_backed(w, m, 1, 29 << 16));
	tier_world_check(w);
	store_model_unref(m);
}

/* What is used never leaves the file; so a user must not have all of the journal by it. */
static void test_a_user_leaves_others_room_in_the_journal(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){32, 16, 64});
	struct store_model *m = big_model(w);
	struct store_seq *held[20];
	uint32_t n_backed = 0;

	for (uint32_t i = 0; i < 20; i++)
		held[i] = big_leave(w, m, 1, i << 16);
	for (uint32_t i = 0; i < 20; i++)
		n_backed += big_is_backed(w, m, 1, i << 16);
	assert_in_range(n_backed, 2, 19);
	store_seq_close(big_leave(w, m, 2, 40 << 16), w->now_ns);
	assert_true(big_is_backed(w, m, 2, 40 << 16));
	for (uint32_t i = 0; i < 20; i++)
		store_seq_close(held[i], w->now_ns);
	store_model_unref(m);
}

/* Who takes most of the journal gives way, however old what others have there is. */
static void test_who_takes_most_of_the_journal_gives_way(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){32, 16, 64});
	struct store_model *m = big_model(w);

	store_seq_close(big_leave(w, m, 2, 40 << 16), w->now_ns);
	for (uint32_t i = 0; i < 25; i++)
		store_seq_close(big_leave(w, m, 1, i << 16), w->now_ns);
	assert_true(big_is_backed(w, m, 2, 40 << 16));
	assert_true(big_is_backed(w, m, 1, 24 << 16));
	store_model_unref(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tier_set_up, tier_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_models_without_pages_make_room),
		TEST(test_records_are_charged_to_who_keeps_images),
		TEST(test_the_oldest_goes_where_the_journal_is_full),
		TEST(test_a_user_leaves_others_room_in_the_journal),
		TEST(test_who_takes_most_of_the_journal_gives_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
