/* tier_restart_test.c - a file below host memory: what a restart finds in it, and what becomes of a
 * file that is not as it was. */
#include "tier_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct tier_world_key any;

static void publish_of(struct tier_world *w, uint64_t domain, const char *document)
{
	struct store_seq *q =
		tier_world_seq(w, (struct tier_world_key){.domain = domain}, document, NULL);

	assert_int_equal(tier_world_publish(w, q, document), 0);
	store_seq_close(q, 0);
}

static uint64_t n_in_file(const struct tier_world *w)
{
	return tier_world_stats(w).tiers[STORE_FILE].used_bytes / WORLD_PAGE_BYTES;
}

static void test_what_leaves_host_memory_comes_back_from_the_file(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){5, 8, 64});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	tier_world_settle(w);
	tier_world_leave(w, DOCUMENT_C);
	tier_world_settle(w);
	struct store_node_info a = tier_info_of(w, 'a');
	assert_true(a.n_pages_in[STORE_FILE] > 0);
	assert_int_equal(a.n_pages_backed, 5);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	struct store_tiers_stats stats = tier_world_stats(w);
	assert_true(stats.tiers[STORE_FILE].hits > 0 && stats.tiers[STORE_FILE].bytes_out > 0);
	assert_int_equal(stats.slices_dropped, 0);
}

static void test_a_restart_finds_documents_again(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, "abcdefXYZabc");
	tier_evict(w);
	tier_world_settle(w);
	w = tier_restart(state);
	assert_int_equal(w->found.n_tokens, 17 + 6);
	assert_int_equal(w->found.n_lost, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	assert_int_equal(tier_world_cached(w, any, "abcdefXYZabc"), 11);
}

static void test_a_restart_finds_nothing_for_others(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});
	struct store_model_info info = {
		.name = "m",
		.fingerprint = {1, 3}, /* other weights */
		.page_tokens = WORLD_PAGE_TOKENS,
		.page_bytes = WORLD_PAGE_BYTES,
	};
	struct store_model *other;

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	tier_world_settle(w);
	w = tier_restart(state);
	assert_int_equal(store_model_open(w->store, &info, &other), 0);
	assert_int_equal(tier_world_cached(w, (struct tier_world_key){.model = other}, DOCUMENT_A),
			 0);
	assert_int_equal(tier_world_cached(w, (struct tier_world_key){.domain = 2}, DOCUMENT_A), 0);
	assert_int_equal(tier_world_cached(w, (struct tier_world_key){.salt = 5}, DOCUMENT_A), 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	store_model_unref(other);
}

/* A pool whose extents are too small for a page of the other model's. */
static void test_a_model_that_does_not_fit_any_more_is_lost(void **state)
{
	struct fixture *f = *state;
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});
	struct tier_file_config config = {f->path, 0, WORLD_UNIT_BYTES, WORLD_CHUNK_UNITS, 4};
	struct tier_model model = {
		.page_bytes = 2 * WORLD_PAGE_BYTES,
		.page_tokens = 4,
		.name = "n",
	};
	struct {
		struct tier_image image;
		uint32_t tokens[4];
	} other = {.image = {.before = TIER_NONE, .n_tokens = 4}};
	struct tier_file *file;

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	tier_world_settle(w);
	tier_world_close(w);
	assert_int_equal(tier_file_open(&config, &file, f->error, sizeof(f->error)), 0);
	struct tier_catalog *c = tier_file_catalog(file);
	assert_int_equal(tier_catalog_model(c, &model, &other.image.model), 0);
	other.image.place = tier_room_take(&c->room, 2 * WORLD_PAGE_UNITS);
	assert_int_equal(tier_catalog_keep(c, &other.image), 0);
	tier_file_close(file);
	w = tier_world_of(state, (struct tier_world_options){8, 16, 64});
	assert_int_equal(w->found.n_lost, 1);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

/* 15 pages of domain 1 are found in the file, of three documents, and 4 of domain 2, which are the
 * oldest. */
static struct tier_world *restart_with_limit(void **state, uint32_t file_pages,
					     uint32_t domain_file_pages)
{
	struct tier_world_options options = {20, 40, file_pages};
	struct tier_world *w = tier_world_of(state, options);

	publish_of(w, 2, "#23456789+-*/=<");
	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	tier_world_leave(w, DOCUMENT_C);
	tier_evict(w);
	tier_world_settle(w);
	tier_world_close(w);
	options.domain_file_pages = domain_file_pages;
	w = tier_world_of(state, options);
	assert_int_equal(n_in_file(w), 19);
	return w;
}

/* Not all that is too much at once, in one turn of who serves everybody. */
static void test_of_more_than_a_domain_may_have_two_go_for_one(void **state)
{
	struct tier_world *w = restart_with_limit(state, 64, 8);
	uint64_t n_before = 19;

	for (uint32_t i = 0; i < 2; i++) {
		char document[] = {(char)('u' + i), '-', 'v', 'w', 'x', 0};
		publish_of(w, 1, document);
		tier_evict(w);
		tier_world_settle(w);
		assert_int_equal(n_in_file(w), n_before - 2);
		n_before -= 2;
	}
	assert_int_equal(tier_world_stats(w).tiers[STORE_FILE].share_evicted, 8);
	for (uint32_t i = 0; i < 4; i++) {
		char document[] = {(char)('0' + i), '.', 'v', 'w', 'x', 0};
		publish_of(w, 1, document);
		tier_evict(w);
		tier_world_settle(w);
	}
	assert_int_equal(n_in_file(w), 8 + 4);
}

/* Though it is not the oldest. */
static void test_what_a_domain_has_too_much_goes_for_others(void **state)
{
	struct tier_world *w = restart_with_limit(state, 20, 9);
	struct tier_world_key other = {.domain = 2};

	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	publish_of(w, 2, ".23456789+-*/=<");
	tier_evict(w);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, '#').n_pages_backed, 4);
	assert_int_equal(tier_info_of(w, '.').n_pages_backed, 4);
	assert_int_equal(n_in_file(w), 20);
	assert_int_equal(tier_world_stats(w).tiers[STORE_FILE].share_evicted, 0);
	assert_int_equal(tier_world_cached(w, other, "#23456789+-*/=<"), 14);
}

static void test_an_orderly_end_keeps_what_was_on_the_device(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 4, 64});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	store_tiers_flush(w->store);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_DEVICE], 5);
	w = tier_restart(state);
	assert_int_equal(w->found.n_tokens, 34);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 16);
}

/* A bit of the page that begins at a token of document A. */
static void flip(const struct tier_world *w, const char *path, uint32_t token)
{
	struct tier_head head;
	char why[128];
	uint8_t *block = aligned_alloc(4096, 4096);
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC),
	    buffered = open(path, O_RDONLY | O_CLOEXEC);

	(void)w;
	assert_true(fd >= 0 && buffered >= 0);
	assert_int_equal(tier_head_read(buffered, UINT64_MAX, &head, why, sizeof(why)), 0);
	off_t at = (off_t)(head.data_at + token / WORLD_PAGE_TOKENS * WORLD_PAGE_BYTES);
	assert_int_equal(pread(fd, block, 4096, at), 4096);
	block[100] ^= 1;
	assert_int_equal(pwrite(fd, block, 4096, at), 4096);
	free(block);
	close(fd);
	close(buffered);
}

static void test_an_altered_page_is_a_miss_and_what_hangs_below_too(void **state)
{
	struct fixture *f = *state;
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});

	tier_world_leave(w, DOCUMENT_A);
	store_tiers_flush(w->store);
	tier_world_settle(w);
	w = tier_restart(state);
	flip(w, f->path, 8);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 8);
	assert_int_equal(tier_world_stats(w).images_bad, 1);
	tier_world_leave(w, DOCUMENT_A); /* and is computed again */
	tier_evict(w);
	tier_world_settle(w);
	w = tier_restart(state);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_the_oldest_goes_where_the_file_is_full(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){5, 8, 8});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, 'a').n_pages_backed, 5);
	tier_world_leave(w, DOCUMENT_B);
	tier_evict(w);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, 'A').n_pages_backed, 5);
	assert_true(tier_info_of(w, 'a').n_pages_backed < 5);
	w = tier_restart(state);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 16);
}

static void test_evicting_ahead_waits_for_the_file(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 4, 64});
	uint32_t n_evicted = 0;

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	for (uint32_t i = 0; i < 10; i++) {
		n_evicted += store_evict(w->store, NULL, UINT32_MAX, UINT32_MAX);
		tier_world_settle(w);
	}
	assert_int_equal(n_evicted, 10);
	assert_int_equal(tier_world_stats(w).slices_dropped, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 16);
}

static void test_a_document_larger_than_the_file_is_written_in_part(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 16, 4});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, 'a').n_pages_backed, 4);
	w = tier_restart(state);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

/* A document leaves the device while the file takes no more. */
static void without_room_in_file(struct fixture *f, const char *document)
{
	struct rlimit was, limit;
	struct stat st;

	tier_world_leave(&f->w, document);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = was;
	limit.rlim_cur = (rlim_t)st.st_size - 64 * WORLD_PAGE_BYTES;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	tier_evict(&f->w);
	tier_world_settle(&f->w);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_string_equal(tier_world_stats(&f->w).error, "File too large");
}

static void test_a_file_that_cannot_be_written_is_left_alone(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 64});

	without_room_in_file(*state, DOCUMENT_A);
	assert_int_equal(tier_info_of(w, 'a').n_pages_backed, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

/* Nothing passes through host memory any more, so nothing of it is kept for that. */
static void test_all_of_host_memory_is_there_once_nothing_is_written(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 8, 64});

	without_room_in_file(*state, DOCUMENT_A);
	tier_world_leave(w, "ABC");
	tier_world_leave(w, "BCDEFGH");
	tier_evict(w);
	assert_int_equal(tier_world_stats(w).slices_dropped, 0);
	assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_HOST], 5);
	assert_int_equal(tier_info_of(w, 'A').n_pages_in[STORE_HOST], 1);
	assert_int_equal(tier_info_of(w, 'B').n_pages_in[STORE_HOST], 2);
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 11;
}

/* Some bytes of the file are others now, or its end is missing, or a stretch of it is zero. */
static void damage(const char *path, const uint8_t *sound, size_t bytes, uint64_t *random)
{
	static uint8_t zero[8192];
	int fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
	size_t at = random_next(random) % (random_next(random) % 2 ? bytes : 8192);

	assert_int_equal(write(fd, sound, bytes), bytes);
	for (uint64_t i = random_next(random) % 3; i > 0; i--) {
		uint8_t byte = (uint8_t)random_next(random);
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)(random_next(random) % bytes)), 1);
		byte = (uint8_t)random_next(random);
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)(random_next(random) % 9000)), 1);
	}
	if (random_next(random) % 8 == 0)
		assert_int_equal(ftruncate(fd, (off_t)at), 0);
	else if (random_next(random) % 2 && at + sizeof(zero) <= bytes)
		assert_int_equal(pwrite(fd, zero, sizeof(zero), (off_t)at), sizeof(zero));
	close(fd);
}

static uint8_t *file_bytes(const char *path, size_t *ret_bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(fstat(fd, &st), 0);
	uint8_t *bytes = malloc((size_t)st.st_size);
	assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*ret_bytes = (size_t)st.st_size;
	return bytes;
}

/* Refused with a sentence, or served as far as it is right. */
static void test_damage_of_any_kind_leaves_only_what_is_right(void **state)
{
	struct fixture *f = *state;
	struct tier_world_options options = {8, 16, 24, .path = f->path};
	struct tier_world *w = tier_world_of(state, options);
	const char *seed = getenv("COPPICE_SEED");
	uint64_t random = (seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL)) * 2 + 1;
	uint32_t n_refused = 0, n_served = 0;
	size_t bytes;

	printf("COPPICE_SEED=%lu\n", random / 2);
	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, "abcdefXYZ");
	tier_world_leave(w, DOCUMENT_B);
	store_tiers_flush(w->store);
	tier_world_settle(w);
	tier_world_close(w);
	uint8_t *sound = file_bytes(f->path, &bytes);
	for (uint32_t i = 0; i < 300; i++) {
		damage(f->path, sound, bytes, &random);
		f->error[0] = 0;
		if (tier_world_open(&f->w, options, f->error, sizeof(f->error))) {
			assert_true(f->error[0]);
			n_refused++;
			continue;
		}
		n_served += tier_world_cached(&f->w, any, DOCUMENT_A);
		n_served += tier_world_cached(&f->w, any, DOCUMENT_B);
		n_served += tier_world_cached(&f->w, any, "abcdefXYZ");
		tier_world_leave(&f->w, DOCUMENT_C);
		tier_world_settle(&f->w);
		tier_world_close(&f->w);
	}
	printf("%u refused, %u tokens served, all right\n", n_refused, n_served);
	assert_true(n_refused > 0 && n_served > 0);
	free(sound);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tier_set_up, tier_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_leaves_host_memory_comes_back_from_the_file),
		TEST(test_a_restart_finds_documents_again),
		TEST(test_a_restart_finds_nothing_for_others),
		TEST(test_a_model_that_does_not_fit_any_more_is_lost),
		TEST(test_of_more_than_a_domain_may_have_two_go_for_one),
		TEST(test_what_a_domain_has_too_much_goes_for_others),
		TEST(test_an_orderly_end_keeps_what_was_on_the_device),
		TEST(test_an_altered_page_is_a_miss_and_what_hangs_below_too),
		TEST(test_the_oldest_goes_where_the_file_is_full),
		TEST(test_evicting_ahead_waits_for_the_file),
		TEST(test_a_document_larger_than_the_file_is_written_in_part),
		TEST(test_a_file_that_cannot_be_written_is_left_alone),
		TEST(test_all_of_host_memory_is_there_once_nothing_is_written),
		TEST(test_damage_of_any_kind_leaves_only_what_is_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
