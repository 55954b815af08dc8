/*
 * agent_file_test.c - token ids from files.
 */
#include "client/agent/ids.h"
#include "client/model/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/coppice-ids-XXXXXX";

static int read_ids(const void *bytes, size_t n, uint32_t **ret, uint32_t *ret_n,
		    struct fault *fault)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
	return ids_read(path, ret, ret_n, fault);
}

static void decimal_numbers_are_ids(void **state)
{
	(void)state;
	const char text[] = " 1 22\n333\t4294967295\r\n";
	uint32_t *ids, n;
	struct fault fault;
	assert_int_equal(read_ids(text, strlen(text), &ids, &n, &fault), 0);
	assert_int_equal(n, 4);
	assert_int_equal(ids[1], 22);
	assert_int_equal(ids[3], UINT32_MAX);
	free(ids);
}

static void other_bytes_are_little_endian_words(void **state)
{
	(void)state;
	const unsigned char words[] = {1, 2, 0, 0, '3', 0, 0, 0};
	uint32_t *ids, n;
	struct fault fault;
	assert_int_equal(read_ids(words, sizeof(words), &ids, &n, &fault), 0);
	assert_int_equal(n, 2);
	assert_int_equal(ids[0], 513);
	assert_int_equal(ids[1], '3');
	free(ids);
}

static void neither_is_told(void **state)
{
	(void)state;
	uint32_t *ids, n;
	struct fault fault;
	assert_true(read_ids("1 2 x", 5, &ids, &n, &fault) < 0);
	assert_non_null(strstr(fault.text, "neither"));
	assert_true(read_ids("1 4294967296", 12, &ids, &n, &fault) < 0);
	assert_non_null(strstr(fault.text, "id 1 is too large"));
}

static void an_empty_file_has_no_ids(void **state)
{
	(void)state;
	uint32_t *ids, n;
	struct fault fault;
	assert_int_equal(read_ids("", 0, &ids, &n, &fault), 0);
	assert_int_equal(n, 0);
	free(ids);
}

static void a_long_file_is_read_whole(void **state)
{
	(void)state;
	enum { BYTES = 3 * 16384 };
	char *text = malloc(BYTES), *read;
	size_t n;
	struct fault fault;
	assert_non_null(text);
	memset(text, '7', BYTES);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, BYTES, file), BYTES);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(file_read(path, &read, &n, &fault), 0);
	assert_int_equal(n, BYTES);
	assert_memory_equal(read, text, BYTES);
	assert_int_equal(read[n], 0);
	free(read);
	free(text);
}

static int make_file(void **state)
{
	(void)state;
	const int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decimal_numbers_are_ids),
		cmocka_unit_test(other_bytes_are_little_endian_words),
		cmocka_unit_test(neither_is_told),
		cmocka_unit_test(an_empty_file_has_no_ids),
		cmocka_unit_test(a_long_file_is_read_whole),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
