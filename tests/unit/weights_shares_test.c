/*
 * weights_shares_test.c - what users who load weights leave to those who come after them: of the
 * memory for weights, of the daemon's heap, of the loads at a time.
 */
#include "weights_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define CAROL (BOB + 1)
#define DAVE (CAROL + 1)
#define ROOT 0u
#define MOMENTS 20000 /* of a millisecond: a crowded machine takes some */

static void expect_load(struct weights_table *table, uid_t domain, uint32_t kib,
			struct weights **ret)
{
	char name[16];

	snprintf(name, sizeof(name), "%u.%u", domain, kib);
	*ret = fixture_load(table, domain, fixture_file_of(name, kib));
	fixture_expect_ready(*ret);
}

static void expect_no_load(struct weights_table *table, uid_t domain, uint32_t kib,
			   const char *words)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u.%u", domain, kib);
	fd = fixture_open(fixture_file_of(name, kib));
	fixture_expect_failure(fixture_begin(table, domain, &fd, 1), -ENOSPC, words);
	close(fd);
}

/* ---- memory: 1,000 KiB in all, 750 of a user ------------------------------------------------ */

static void whoever_comes_finds_half_of_what_the_one_before_found(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 1000 * KIB, 30000);
	struct weights *a, *b, *c, *d;

	(void)state;
	expect_load(table, ALICE, 750, &a);
	expect_no_load(table, BOB, 250, "leaves to others");
	expect_load(table, BOB, 150, &b);
	expect_no_load(table, BOB + 9, 51, "the last 100K of 1000K (weights)");
	expect_load(table, CAROL, 50, &c);
	expect_no_load(table, DAVE, 26, "leaves to others");
	expect_load(table, DAVE, 25, &d);
	weights_unref(a);
	weights_unref(b);
	weights_unref(c);
	weights_unref(d);
	weights_table_free(table);
}

static void root_has_what_is_left(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 1000 * KIB, 30000);
	struct weights *a, *b;

	(void)state;
	expect_load(table, ALICE, 750, &a);
	expect_load(table, ROOT, 250, &b);
	weights_unref(a);
	weights_unref(b);
	weights_table_free(table);
}

/* Both were idle, where they take nobody's room, and are wanted again. */
static void what_was_idle_is_taken_up_within_the_share(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 1000 * KIB, 30000);
	struct weights *a, *b;
	int fd;

	(void)state;
	(void)fixture_file_of("1001.500", 500);
	sleep(3); /* its change time is to be some seconds old, so that it is known again */
	a = fixture_load(table, ALICE, fixture_path("1001.500"));
	fixture_expect_ready(a);
	fixture_leave(a);
	expect_load(table, BOB, 500, &b);
	fixture_settle(table, 1000 * KIB);
	fd = fixture_open(fixture_path("1001.500"));
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -ENOSPC, "leaves to others");
	fixture_leave(b);
	a = fixture_load(table, ALICE, fixture_path("1001.500"));
	fixture_expect_ready(a);
	weights_unref(a);
	close(fd);
	weights_table_free(table);
}

/* Neither others' nor the user's own. */
static void nothing_idle_goes_for_who_is_refused(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 1000 * KIB, 30000);
	struct weights *a, *b;
	int fd = fixture_open(fixture_file_of("much", 751));

	(void)state;
	expect_load(table, ALICE, 700, &a);
	expect_load(table, BOB, 100, &b);
	fixture_leave(b);
	fixture_settle(table, 800 * KIB);
	expect_no_load(table, CAROL, 250, "leaves to others");
	expect_no_load(table, CAROL, 301, "(weights)");
	fixture_expect_failure(fixture_begin(table, BOB, &fd, 1), -EDQUOT, "(domain_weights)");
	assert_int_equal(weights_bytes(table), 800 * KIB);
	expect_load(table, CAROL, 150, &b);
	fixture_leave(b);
	expect_load(table, CAROL, 151, &b);
	fixture_settle(table, (700 + 151) * KIB);
	weights_unref(a);
	weights_unref(b);
	close(fd);
	weights_table_free(table);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Of so many tensors without use, whose names are distinct from those of another letter. */
static const char *file_of_names(const char *letter, uint32_t n)
{
	char *header = malloc(128 * (size_t)(n + 1)), *at = header;
	const char *path;

	assert_non_null(header);
	at += sprintf(at, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
		      letter);
	for (uint32_t i = 0; i < n; i++)
		at += sprintf(
			at, ",\"%s%u\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
			letter, i, 8 + 4 * i, 12 + 4 * i);
	strcpy(at, "}");
	path = fixture_file(letter, header, header, 8 + 4 * (size_t)n);
	free(header);
	return path;
}

static struct weights_table *table_of_names(uint64_t bytes)
{
	struct weights_table *table;

	fixture_names_bytes = bytes;
	table = fixture_table();
	fixture_names_bytes = 64 * MIB;
	return table;
}

/* Names of 1,000 tensors take some 100 KiB; two users may have 256 in all, half of it each. */
static void names_of_tensors_are_counted_for_who_loads_them(void **state)
{
	struct weights_table *table = table_of_names(256 * KIB);
	struct weights *a = fixture_load(table, ALICE, file_of_names("a", 1000)), *b;
	uint64_t bytes = weights_names_bytes(table);
	int fd = fixture_open(file_of_names("c", 1000));

	(void)state;
	fixture_expect_ready(a);
	assert_in_range(bytes, 64 * KIB, 128 * KIB);
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -EDQUOT, "domain_weight_names");
	assert_int_equal(weights_names_bytes(table), bytes);
	b = fixture_load(table, BOB, fixture_path("c"));
	fixture_expect_ready(b);
	fixture_expect_failure(fixture_begin(table, CAROL, &fd, 1), -ENOSPC, "(weight_names)");
	fixture_leave(a);
	a = fixture_load(table, ALICE, fixture_path("c"));
	fixture_expect_ready(a);
	assert_int_equal(weights_names_bytes(table), 2 * bytes);
	weights_unref(a);
	weights_unref(b);
	close(fd);
	weights_table_free(table);
}

/* As many as may be open of what failed, or was there already. */
static void what_came_to_nothing_keeps_no_names(void **state)
{
	struct weights_table *table = table_of_names(64 * MIB);
	struct weights *first, *again, *failed;
	int fds[2];
	uint64_t bytes;

	(void)state;
	first = fixture_load(table, ALICE, file_of_names("a", 1000));
	fixture_expect_ready(first);
	bytes = weights_names_bytes(table);
	fds[0] = fixture_open(fixture_path("a"));
	assert_int_equal(link(fixture_path("a"), fixture_path("other")), 0);
	unlink(fixture_path("a"));
	fds[1] = fixture_open(file_of_names("a", 1000));
	again = fixture_begin(table, ALICE, &fds[1], 1);
	failed = fixture_begin(table, ALICE, fds, 2);
	fixture_end(again);
	fixture_end(failed);
	assert_int_equal(weights_state(failed), WEIGHTS_FAILED);
	for (int i = 0; i < MOMENTS && weights_names_bytes(table) != bytes; i++)
		fixture_moment();
	assert_int_equal(weights_names_bytes(table), bytes);
	weights_unref(first);
	weights_unref(again);
	weights_unref(failed);
	close(fds[0]);
	close(fds[1]);
	weights_table_free(table);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Tensors of no use take no memory, and are read all the same: nearly 100 MiB here. */
static void files_of_much_more_than_may_be_had_are_refused(void **state)
{
	struct weights_table *table = fixture_table_of(fixture_coppiced, 16 * MIB, 30000);
	static const char header[] =
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		"\"b\":{\"dtype\":\"I8\",\"shape\":[99999992],\"data_offsets\":[8,100000000]}}";
	const char *path = fixture_file("much", header, "", 0);
	int fd;

	(void)state;
	assert_int_equal(truncate(path, 8 + (off_t)strlen(header) + 100000000), 0);
	fd = fixture_open(path);
	fixture_expect_failure(fixture_begin(table, ALICE, &fd, 1), -EDQUOT, "2 times");
	close(fd);
	weights_table_free(table);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whoever_comes_finds_half_of_what_the_one_before_found),
		cmocka_unit_test(root_has_what_is_left),
		cmocka_unit_test(what_was_idle_is_taken_up_within_the_share),
		cmocka_unit_test(nothing_idle_goes_for_who_is_refused),
		cmocka_unit_test(names_of_tensors_are_counted_for_who_loads_them),
		cmocka_unit_test(what_came_to_nothing_keeps_no_names),
		cmocka_unit_test(files_of_much_more_than_may_be_had_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	assert_int_equal(argc, 2);
	return fixture_run(argv[1], run);
}
