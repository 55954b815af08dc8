/*
 * tier_file_test.c - the file of the NVMe tier: pages there and back, and its catalog across
 * restarts.
 *
 * A page holds a pattern of its number. Every test has a directory of its own beside the test's
 * binary, as the place for temporary files may be a file system without direct I/O.
 */
#include "tier_file_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 6000u /* two units */
#define DOMAIN 7u

static void *page_at(struct fixture *f, uint32_t i)
{
	return f->memory + (size_t)i * 2 * UNIT;
}

static void page_fill(struct fixture *f, uint32_t i, uint32_t number)
{
	uint8_t *page = page_at(f, i);

	for (uint32_t j = 0; j < PAGE_BYTES; j++)
		page[j] = (uint8_t)(number * 31 + j * 7 + j / 256);
}

static bool page_is(struct fixture *f, uint32_t i, uint32_t number)
{
	const uint8_t *page = page_at(f, i);

	for (uint32_t j = 0; j < PAGE_BYTES; j++)
		if (page[j] != (uint8_t)(number * 31 + j * 7 + j / 256))
			return false;
	return true;
}

/* The next operation that ends, in whatever order. */
static struct tier_done wait_done(struct fixture *f)
{
	struct tier_done done;

	tier_file_kick(f->file);
	while (!tier_file_next(f->file, &done)) {
		struct pollfd poll_fd = {.fd = tier_file_fd(f->file), .events = POLLIN};
		assert_int_equal(poll(&poll_fd, 1, 5000), 1);
	}
	return done;
}

static void model_put(struct fixture *f)
{
	struct tier_model m = {
		.fingerprint = {1, 2},
		.page_bytes = PAGE_BYTES,
		.page_tokens = 16,
		.name = "m",
	};

	assert_int_equal(tier_catalog_model(tier_file_catalog(f->file), &m, &f->model), 0);
}

struct any_image {
	struct tier_image image;
	uint32_t tokens[16];
};

/* The image of page i of one document of pages of 16 tokens. */
static int image_keep(struct fixture *f, uint32_t place, uint32_t before, uint32_t i,
		      uint64_t checksum)
{
	struct any_image any = {
		.image = {.domain = DOMAIN,
			  .salt = 9,
			  .checksum = checksum,
			  .place = place,
			  .before = before,
			  .model = f->model,
			  .pos = i * 16,
			  .n_tokens = 16},
	};

	for (uint32_t j = 0; j < 16; j++)
		any.tokens[j] = i * 16 + j;
	return tier_catalog_keep(tier_file_catalog(f->file), &any.image);
}

/* Writes a document of n pages; places[i] is where page i lies. */
static void document_write(struct fixture *f, uint32_t n, uint32_t *places)
{
	model_put(f);
	for (uint32_t i = 0; i < n; i++) {
		places[i] = tier_room_take(&tier_file_catalog(f->file)->room, 2);
		page_fill(f, 0, i);
		tier_file_write(f->file, places[i], page_at(f, 0), PAGE_BYTES, f);
		struct tier_done done = wait_done(f);
		assert_int_equal(done.result, 0);
		assert_ptr_equal(done.tag, f);
		assert_int_equal(image_keep(f, places[i], i ? places[i - 1] : TIER_NONE, i,
					    done.checksum),
				 0);
	}
}

static int page_read(struct fixture *f, uint32_t place, uint32_t to)
{
	memset(page_at(f, to), 0xee, PAGE_BYTES);
	tier_file_read(f->file, place, page_at(f, to), PAGE_BYTES, NULL);
	return wait_done(f).result;
}

static void restart(struct fixture *f)
{
	fixture_close(f);
	assert_int_equal(fixture_open(f), 0);
}

static uint64_t data_at(const struct fixture *f)
{
	struct tier_head head;
	char why[128];
	int fd = open(f->path, O_RDONLY);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(tier_head_read(fd, (uint64_t)st.st_size, &head, why, sizeof(why)), 0);
	close(fd);
	return head.data_at;
}

static void test_pages_come_back_after_a_restart(void **state)
{
	struct fixture *f = *state;
	uint32_t places[N_PAGES];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 5, places);
	restart(f);
	const struct tier_catalog *c = tier_file_catalog(f->file);
	assert_int_equal(c->report.n_images, 5);
	assert_int_equal(c->report.n_tokens, 80);
	assert_int_equal(c->report.n_models, 1);
	assert_int_equal(c->report.n_lost, 0);
	assert_false(c->report.journal_torn);
	assert_string_equal(c->models[0].model.name, "m");
	for (uint32_t i = 0; i < 5; i++) {
		const struct tier_image *image = c->images[places[i]];
		assert_int_equal(image->pos, i * 16);
		assert_int_equal(image->tokens[15], i * 16 + 15);
		assert_int_equal(image->domain, DOMAIN);
		assert_int_equal(image->salt, 9);
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_as_many_at_once_as_the_depth(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];
	uint32_t seen = 0;

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	memset(f->memory, 0, (size_t)N_PAGES * 2 * UNIT);
	for (uint32_t i = 0; i < 4; i++) {
		assert_true(tier_file_has_room(f->file));
		tier_file_read(f->file, places[i], page_at(f, i), PAGE_BYTES, page_at(f, i));
	}
	assert_false(tier_file_has_room(f->file));
	for (uint32_t i = 0; i < 4; i++) {
		struct tier_done done = wait_done(f);
		assert_int_equal(done.result, 0);
		seen |= 1u << (((char *)done.tag - f->memory) / (2 * UNIT));
	}
	assert_int_equal(seen, 15);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(page_is(f, i, i));
}

static void test_registered_memory_serves_as_other_memory_does(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];

	assert_int_equal(fixture_open(f), 0);
	int r = tier_file_register(f->file, f->memory, (size_t)8 * 2 * UNIT);
	if (r == -ENOMEM || r == -EPERM)
		skip();
	assert_int_equal(r, 0);
	document_write(f, 4, places);
	assert_int_equal(page_read(f, places[2], 3), 0);
	assert_true(page_is(f, 3, 2));
	assert_int_equal(page_read(f, places[1], 12), 0); /* beyond what is registered */
	assert_true(page_is(f, 12, 1));
}

/* Reads four pages at once to scattered memory; results [page]. */
static void read_four(struct fixture *f, const uint32_t *places, const uint32_t *to, int *ret)
{
	memset(f->memory, 0xee, (size_t)N_PAGES * 2 * UNIT);
	for (uint32_t i = 0; i < 4; i++)
		tier_file_read(f->file, places[i], page_at(f, to[i]), PAGE_BYTES, &ret[i]);
	for (uint32_t i = 0; i < 4; i++) {
		struct tier_done done = wait_done(f);
		*(int *)done.tag = done.result;
	}
}

static void test_what_is_altered_among_neighbours_fails_alone(void **state)
{
	struct fixture *f = *state;
	const uint32_t to[4] = {9, 3, 4, 12};
	uint32_t places[4];
	int results[4];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(results[i], 0);
		assert_true(page_is(f, to[i], i));
	}
	fixture_flip(f, data_at(f) + places[2] * UNIT + 5000);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(results[i], i == 2 ? -EBADMSG : 0);
		assert_int_equal(page_is(f, to[i], i), i != 2);
	}
}

static void test_what_is_cut_off_behind_neighbours_fails_alone(void **state)
{
	struct fixture *f = *state;
	const uint32_t to[4] = {0, 1, 2, 3};
	uint32_t places[4];
	int results[4];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	assert_int_equal(truncate(f->path, (off_t)(data_at(f) + places[3] * UNIT)), 0);
	read_four(f, places, to, results);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(results[i], i == 3 ? -EIO : 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(page_is(f, i, i));
}

static void test_neighbours_are_written_together(void **state)
{
	struct fixture *f = *state;
	const uint32_t from[4] = {5, 6, 2, 9};
	uint32_t places[4];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	for (uint32_t i = 0; i < 4; i++) {
		page_fill(f, from[i], 3 - i);
		tier_file_write(f->file, places[3 - i], page_at(f, from[i]), PAGE_BYTES, f);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(wait_done(f).result, 0);
	for (uint32_t i = 0; i < 4; i++) {
		page_fill(f, from[i], i);
		tier_file_write(f->file, places[i], page_at(f, from[i]), PAGE_BYTES, f);
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(wait_done(f).result, 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_an_image_that_goes_stays_away(void **state)
{
	struct fixture *f = *state;
	uint32_t places[4];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	assert_true(tier_catalog_unref(tier_file_catalog(f->file), places[3]));
	restart(f);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 3);
	assert_int_equal(tier_room_take(&tier_file_catalog(f->file)->room, 2), places[3]);
}

/* Far more records than the areas hold. */
static void test_the_journal_is_compacted(void **state)
{
	struct fixture *f = *state;
	uint32_t places[5];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	struct tier_catalog *c = tier_file_catalog(f->file);
	uint64_t generation = c->journal.generation;
	for (uint32_t i = 0; i < 5000; i++) {
		places[4] = tier_room_take(&c->room, 2);
		assert_int_equal(image_keep(f, places[4], places[3], 4, i), 0);
		if (i < 4999)
			assert_true(tier_catalog_unref(c, places[4]));
	}
	assert_true(c->journal.generation > generation + 2);
	restart(f);
	c = tier_file_catalog(f->file);
	assert_int_equal(c->report.n_images, 5);
	assert_int_equal(c->images[places[4]]->checksum, 4999);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(page_read(f, places[i], i), 0);
		assert_true(page_is(f, i, i));
	}
}

static void test_a_flipped_bit_of_a_page_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	uint32_t places[3];

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 3, places);
	fixture_close(f);
	fixture_flip(f, data_at(f) + places[1] * UNIT + 5000);
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), 0);
	assert_int_equal(report.n_images, 3);
	assert_int_equal(report.n_bad, 1);
	assert_int_equal(fixture_open(f), 0);
	assert_int_equal(page_read(f, places[0], 0), 0);
	assert_int_equal(page_read(f, places[1], 1), -EBADMSG);
	assert_int_equal(page_read(f, places[2], 2), 0);
}

static void test_a_flipped_bit_of_the_journal_ends_it_there(void **state)
{
	struct fixture *f = *state;
	struct tier_report report;
	uint32_t places[4];
	uint64_t record = tier_journal_record_bytes(sizeof(struct any_image));
	uint64_t model = tier_journal_record_bytes(sizeof(struct tier_model));

	assert_int_equal(fixture_open(f), 0);
	document_write(f, 4, places);
	fixture_close(f);
	fixture_flip(f, TIER_HEAD_BYTES + TIER_JOURNAL_BLOCK + model + 2 * record + 70);
	assert_int_equal(tier_verify(f->path, &report, f->error, sizeof(f->error)), 0);
	assert_true(report.journal_torn);
	assert_int_equal(report.n_images, 2);
	assert_int_equal(fixture_open(f), 0);
	document_write(f, 1, places); /* and goes on there */
	restart(f);
	assert_false(tier_file_catalog(f->file)->report.journal_torn);
	assert_int_equal(tier_file_catalog(f->file)->report.n_images, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pages_come_back_after_a_restart),
		TEST(test_as_many_at_once_as_the_depth),
		TEST(test_registered_memory_serves_as_other_memory_does),
		TEST(test_what_is_altered_among_neighbours_fails_alone),
		TEST(test_what_is_cut_off_behind_neighbours_fails_alone),
		TEST(test_neighbours_are_written_together),
		TEST(test_an_image_that_goes_stays_away),
		TEST(test_the_journal_is_compacted),
		TEST(test_a_flipped_bit_of_a_page_is_an_error),
		TEST(test_a_flipped_bit_of_the_journal_ends_it_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
