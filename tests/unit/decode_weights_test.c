/*
 * decode_weights_test.c - the tensors that coppice-bench decode makes for a model by its
 * config.json are those that transformers has of it, and a file has all of them.
 */
#include "bench/decode_weights.h"
#include "family_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct decode_tensor *find(const struct decode_tensors *made, const char *name)
{
	for (uint32_t i = 0; i < made->n; i++)
		if (!strcmp(made->of[i].name, name))
			return &made->of[i];
	return NULL;
}

static void read_config(const char *text, struct decode_tensors *ret)
{
	char path[] = "/tmp/coppice-config-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	decode_tensors_read(path, ret);
	unlink(path);
}

static void check_model(const struct family_model *model)
{
	struct decode_tensors made;
	uint64_t n = 0;

	read_config(model->config, &made);
	assert_int_equal(made.n, model->n_tensors);
	for (uint32_t i = 0; i < model->n_tensors; i++) {
		const struct family_tensor *want = &model->tensors[i];
		const struct decode_tensor *got = find(&made, want->name);

		if (!got || got->n_out != want->n_out || got->n_in != want->n_in ||
		    got->is_norm != (strstr(want->name, "norm") != NULL))
			fail_msg("%s: %s is [%u, %u]", model->name, want->name,
				 got ? got->n_out : 0, got ? got->n_in : 0);
		n += strstr(want->name, "layers.") ? (uint64_t)want->n_out * want->n_in : 0;
	}
	n += (uint64_t)made.program->info.n_vocab * made.program->info.hidden;
	assert_int_equal(decode_tensors_read_a_pass(&made), n);
	decode_tensors_done(&made);
}

/* But for those whose config asks for less than all positions. */
static void tensors_are_those_that_transformers_has(void **state)
{
	struct families families;
	uint32_t n = 0;

	(void)state;
	families_init(&families);
	for (uint32_t i = 0; i < families.n; i++) {
		if (families.models[i].max_positions)
			continue;
		check_model(&families.models[i]);
		n++;
	}
	assert_true(n >= 8 && n + 8 >= families.n);
	families_done(&families);
}

#define HEADER_BYTES 65536u

static void a_file_has_all_of_them_behind_each_other(void **state)
{
	char path[] = "/tmp/coppice-weights-XXXXXX";
	static char bytes[HEADER_BYTES];
	struct families families;
	struct decode_tensors made;
	uint64_t n_header, n_bytes = 0;
	FILE *file;

	(void)state;
	families_init(&families);
	read_config(families.models[0].config, &made);
	close(mkstemp(path));
	decode_weights_write(path, &made);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fread(&n_header, sizeof(n_header), 1, file), 1);
	assert_true(n_header < sizeof(bytes));
	assert_int_equal(fread(bytes, 1, n_header, file), n_header);
	for (uint32_t i = 0; i < made.n; i++) {
		char words[128];

		n_bytes +=
			UINT64_C(2) * (made.of[i].n_out ? made.of[i].n_out : 1) * made.of[i].n_in;
		snprintf(words, sizeof(words), "\"%s\": {\"dtype\": \"BF16\"", made.of[i].name);
		assert_non_null(strstr(bytes, words));
	}
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	assert_int_equal(ftell(file), sizeof(n_header) + n_header + n_bytes);
	fclose(file);
	unlink(path);
	decode_tensors_done(&made);
	families_done(&families);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_are_those_that_transformers_has),
		cmocka_unit_test(a_file_has_all_of_them_behind_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
