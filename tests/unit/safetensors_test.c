/*
 * safetensors_test.c - each kind of damaged file gets one clear error; a good one gives its
 * tensors.
 */
#include "client/agent/safetensors.h"
#include "client/agent/weights.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define GOOD \
	"{\"__metadata__\":{\"format\":\"pt\"}," \
	"\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]}," \
	"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

/* One without bytes. */
#define EMPTY(name) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"

static char dir[] = "/tmp/coppice-safetensors-XXXXXX";
static char path[64];

static void write_raw(const void *bytes, size_t n)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, n, file), n);
	assert_int_equal(fclose(file), 0);
}

/* A file with this header, its length said to be header_bytes, and n_data bytes 0, 1, 2, ... behind
 * it. */
static void write_file(const char *header, uint64_t header_bytes, size_t n_data)
{
	char bytes[2048];
	const size_t n = strlen(header);
	assert_true(8 + n + n_data <= sizeof(bytes));
	memcpy(bytes, &header_bytes, 8);
	memcpy(bytes + 8, header, n);
	for (size_t i = 0; i < n_data; i++)
		bytes[8 + n + i] = (char)i;
	write_raw(bytes, 8 + n + n_data);
}

static void expect_error(const char *text)
{
	struct safetensors file = {0};
	struct fault fault = {""};
	assert_true(safetensors_open(path, &file, &fault) < 0);
	if (!strstr(fault.text, text))
		fail_msg("'%s' does not say '%s'", fault.text, text);
	assert_non_null(strstr(fault.text, path));
	assert_null(strchr(fault.text, '\n'));
	assert_null(file.map);
}

static void expect_header_error(const char *header, size_t n_data, const char *text)
{
	write_file(header, strlen(header), n_data);
	expect_error(text);
}

static void a_good_file_gives_its_tensors(void **state)
{
	(void)state;
	struct safetensors file;
	struct fault fault;
	write_file(GOOD, strlen(GOOD), 20);
	assert_int_equal(safetensors_open(path, &file, &fault), 0);
	assert_int_equal(file.header.n_tensors, 2);
	const struct safetensors_tensor *b = safetensors_find(&file, "b");
	assert_non_null(b);
	assert_int_equal(b->n_dims, 2);
	assert_int_equal(b->dims[1], 3);
	assert_int_equal(file.data[b->begin], 8);
	assert_null(safetensors_find(&file, "c"));
	safetensors_close(&file);
}

static void an_empty_file_is_too_short(void **state)
{
	(void)state;
	write_raw("", 0);
	expect_error("too few");
}

static void a_header_cut_off_is_told(void **state)
{
	(void)state;
	write_file(GOOD, strlen(GOOD) + 100, 20);
	expect_error("the header is cut off");
}

static void an_absurd_header_length_is_no_safetensors_file(void **state)
{
	(void)state;
	write_file(GOOD, UINT64_MAX, 20);
	expect_error("not a safetensors file");
	write_file(GOOD, 0, 20);
	expect_error("not a safetensors file");
}

static void a_header_that_is_no_json_object_is_told(void **state)
{
	(void)state;
	expect_header_error("{\"a\": {", 0, "not a JSON object");
	expect_header_error("[1, 2]", 0, "not a JSON object");
	expect_header_error("77", 0, "not a JSON object");
	expect_header_error("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "duplicate");
	expect_header_error("{" EMPTY("a") ",}", 0, "a name is expected");
	expect_header_error("{" EMPTY("a") "]", 0, "'}' is expected");
	expect_header_error("{" EMPTY("a") "}}", 0, "something is behind its end");
	expect_header_error("{\"a\" {}}", 0, "':' is expected");
	expect_header_error("{\"a\":{}{}}", 0, "end of file expected");
	expect_header_error("{\"a\":}", 0, "not a JSON object");
	expect_header_error("{\"a\":\"\\", 0, "it ends within a value");
	expect_header_error("{\"\\u00\":{}}", 0, "not a JSON object");
}

static void a_tensor_is_there_once(void **state)
{
	(void)state;
	expect_header_error("{" EMPTY("a") "," EMPTY("b") "," EMPTY("a") "}", 0,
			    "there is a duplicate of tensor a");
	expect_header_error("{" EMPTY("a") "," EMPTY("\\u0061") "}", 0, "duplicate of tensor a");
	expect_header_error("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate");
}

static void metadata_are_strings(void **state)
{
	(void)state;
	expect_header_error("{\"__metadata__\":7}", 0, "__metadata__ is not an object");
	expect_header_error("{\"__metadata__\":{\"a\":[{}]}}", 0, "a value that is not a string");
	expect_header_error("{\"__metadata__\":{\"a\":\"\\x\"}}", 0, "not a JSON object");
}

static void names_may_have_escapes_and_a_header_space(void **state)
{
	(void)state;
	struct safetensors file;
	struct fault fault;
	const char *header =
		" { \"__metadata__\" : { \"}\" : \"\\\"{\" } ,\n" EMPTY("\\u00e9\\\"") "\t} ";
	write_file(header, strlen(header), 0);
	assert_int_equal(safetensors_open(path, &file, &fault), 0);
	assert_int_equal(file.header.n_tensors, 1);
	assert_non_null(safetensors_find(&file, "\u00e9\""));
	safetensors_close(&file);
}

/* ---- what a header costs: 4 MiB of it ------------------------------------------------------- */

#define LARGE_BYTES ((size_t)4 << 20)

/* first, then each with its number until it is full, then last, and space behind it. */
static char *large(const char *first, const char *each, const char *last)
{
	char *header = malloc(LARGE_BYTES), *at = header;
	assert_non_null(header);
	at = stpcpy(at, first);
	for (unsigned i = 0; at < header + LARGE_BYTES - 256; i++) {
		if (i > 0)
			*at++ = ',';
		at += sprintf(at, each, i);
	}
	at = stpcpy(at, last);
	memset(at, ' ', LARGE_BYTES - (size_t)(at - header));
	return header;
}

static size_t most_kib(void)
{
	struct rusage use;
	assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
	return (size_t)use.ru_maxrss;
}

/* In a process of its own, which says so by its end: 0, it is taken; 1, it is refused in these
 * words; else it took too much. */
static int parse_in_child(const char *header, const char *words)
{
	struct safetensors_header parsed;
	char why[SAFETENSORS_WHY_BYTES];
	size_t before = most_kib();
	int r = safetensors_header_parse(header, LARGE_BYTES, 0, &parsed, why);
	size_t took = (most_kib() - before) << 10;
	if (took > 6 * LARGE_BYTES) {
		print_error("%zu bytes of memory\n", took);
		return 2;
	}
	if (r == 0)
		safetensors_header_done(&parsed);
	return r < 0 && !strstr(why, words) ? 3 : r < 0;
}

static void expect_cheap(char *header, int end, const char *words)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(parse_in_child(header, words));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), end);
	free(header);
}

static void a_large_header_takes_no_more_than_six_of_it(void **state)
{
	(void)state;
	if (SANITIZED)
		skip(); /* what is freed is kept, or more beside it */
	expect_cheap(large("{", EMPTY("%x"), "}"), 0, "");
	expect_cheap(large("{\"__metadata__\":{", "\"%x\":\"\"", "}}"), 0, "");
	expect_cheap(large("{\"a\":[", "{}", "]}"), 1, "tensor a: more than 4096 bytes about it");
	expect_cheap(large("{", "\"%x\":{}", "}"), 1, "tensor 0: unknown dtype");
	expect_cheap(large("{\"__metadata__\":{\"a\":[", "[]", "]}}"), 1, "not a string");
}

static void data_cut_off_is_told_with_the_tensor(void **state)
{
	(void)state;
	expect_header_error(GOOD, 19, "tensor b: bytes 8 to 20 are out of range");
}

static void bytes_of_no_tensor_are_told(void **state)
{
	(void)state;
	expect_header_error(GOOD, 21, "the last 1 bytes belong to no tensor");
	expect_header_error("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", 6,
			    "the 2 bytes before tensor a belong to no tensor");
}

static void overlapping_tensors_are_told(void **state)
{
	(void)state;
	expect_header_error("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
			    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
			    6, "tensors a and b overlap");
}

static void shape_and_offsets_must_agree(void **state)
{
	(void)state;
	expect_header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
			    "tensor a: shape and type need 12 bytes, its offsets span 8");
	expect_header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
			    "out of range");
	expect_header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
			    "\"data_offsets\":[0,8]}}",
			    8, "larger than any file");
}

static void bad_fields_are_told_by_name(void **state)
{
	(void)state;
	expect_header_error("{\"a\":{\"dtype\":\"F7\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
			    "tensor a: unknown dtype F7");
	expect_header_error("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
			    "tensor a: unknown dtype (none)");
	expect_header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
			    "tensor a: shape");
	expect_header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
			    "tensor a: data_offsets");
	expect_header_error("{\"a\":7}", 8, "tensor a: unknown dtype");
}

static void a_missing_file_is_told(void **state)
{
	(void)state;
	unlink(path);
	expect_error("cannot be opened");
}

static void every_flipped_byte_is_an_error_or_harmless(void **state)
{
	(void)state;
	char bytes[8 + sizeof(GOOD) - 1 + 20];
	const uint64_t n = sizeof(GOOD) - 1;
	for (size_t i = 0; i < sizeof(bytes); i++) {
		struct safetensors file = {0};
		struct fault fault = {""};
		memset(bytes, 0, sizeof(bytes));
		memcpy(bytes, &n, 8);
		memcpy(bytes + 8, GOOD, n);
		bytes[i] ^= 0x15;
		write_raw(bytes, sizeof(bytes));
		if (safetensors_open(path, &file, &fault) < 0)
			assert_true(strlen(fault.text) > 0);
		safetensors_close(&file);
	}
}

static void a_matrix_must_be_there_with_its_shape_and_type(void **state)
{
	(void)state;
	struct weights weights;
	struct rows_matrix matrix;
	struct fault fault;
	write_file(GOOD, strlen(GOOD), 20);
	assert_int_equal(weights_open(dir, &weights, &fault), 0);
	assert_int_equal(weights_matrix(&weights, "b", (struct weights_shape){2, 3}, &matrix,
					&fault),
			 0);
	assert_int_equal(matrix.dtype, WORK_BF16);
	assert_int_equal(weights_matrix(&weights, "c", (struct weights_shape){2, 3}, &matrix,
					&fault),
			 -EINVAL);
	assert_non_null(strstr(fault.text, "no tensor c"));
	assert_int_equal(weights_matrix(&weights, "b", (struct weights_shape){3, 2}, &matrix,
					&fault),
			 -EINVAL);
	assert_non_null(strstr(fault.text, "tensor b has the shape [2, 3]"));
	weights_close(&weights);
}

static void shards_are_found_through_their_index(void **state)
{
	(void)state;
	char index[96], shard[96];
	struct weights weights;
	struct rows_matrix matrix;
	struct fault fault;
	snprintf(index, sizeof(index), "%s.index.json", path);
	snprintf(shard, sizeof(shard), "%s/part-1", dir);
	write_file(GOOD, strlen(GOOD), 20);
	assert_int_equal(rename(path, shard), 0);
	FILE *file = fopen(index, "w");
	assert_non_null(file);
	fputs("{\"weight_map\": {\"a\": \"part-1\", \"b\": \"part-1\"}}", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(weights_open(dir, &weights, &fault), 0);
	assert_int_equal(weights.n_files, 1);
	assert_int_equal(weights_matrix(&weights, "a", (struct weights_shape){0, 2}, &matrix,
					&fault),
			 0);
	weights_close(&weights);
	unlink(shard);
	assert_true(weights_open(dir, &weights, &fault) < 0);
	assert_non_null(strstr(fault.text, "part-1"));
	unlink(index);
}

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_file_gives_its_tensors),
		cmocka_unit_test(an_empty_file_is_too_short),
		cmocka_unit_test(a_header_cut_off_is_told),
		cmocka_unit_test(an_absurd_header_length_is_no_safetensors_file),
		cmocka_unit_test(a_header_that_is_no_json_object_is_told),
		cmocka_unit_test(a_tensor_is_there_once),
		cmocka_unit_test(metadata_are_strings),
		cmocka_unit_test(names_may_have_escapes_and_a_header_space),
		cmocka_unit_test(a_large_header_takes_no_more_than_six_of_it),
		cmocka_unit_test(data_cut_off_is_told_with_the_tensor),
		cmocka_unit_test(bytes_of_no_tensor_are_told),
		cmocka_unit_test(overlapping_tensors_are_told),
		cmocka_unit_test(shape_and_offsets_must_agree),
		cmocka_unit_test(bad_fields_are_told_by_name),
		cmocka_unit_test(a_missing_file_is_told),
		cmocka_unit_test(every_flipped_byte_is_an_error_or_harmless),
		cmocka_unit_test(a_matrix_must_be_there_with_its_shape_and_type),
		cmocka_unit_test(shards_are_found_through_their_index),
	};
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
