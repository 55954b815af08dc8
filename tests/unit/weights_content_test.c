/*
 * weights_content_test.c - where tensors go in memory: in an order that is theirs whichever files
 * they are in, for which each name is looked at once.
 */
#include "daemon/weights/content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t n_looks;
char *__real_strstr(const char *name, const char *what);
char *__wrap_strstr(const char *name, const char *what);

char *__wrap_strstr(const char *name, const char *what)
{
	n_looks++;
	return __real_strstr(name, what);
}

/* Vectors of one element. */
static struct safetensors_tensor tensor_of(const char *name)
{
	return (struct safetensors_tensor){.name = name, .dtype = "F32", .n_dims = 1, .dims = {1}};
}

static struct weights_content make(struct safetensors_tensor *tensors, uint32_t n)
{
	struct weights_content content = {0};
	struct part part = {.header = {.tensors = tensors, .n_tensors = n},
			    .numbers = calloc(n, sizeof(*part.numbers))};
	char why[WEIGHTS_WHY_BYTES];
	uint64_t bytes;

	assert_non_null(part.numbers);
	assert_int_equal(content_make(&content, &part, 1, &bytes, why), 0);
	assert_int_equal(bytes, n * PROGRAM_ALIGN);
	free(part.numbers);
	return content;
}

static uint64_t place_of(const struct weights_content *content, const char *name)
{
	for (uint32_t i = 0; i < content->n_tensors; i++)
		if (!strcmp(content->tensors[i].name, name))
			return content->tensors[i].offset / PROGRAM_ALIGN;
	fail_msg("there is no %s", name);
	return 0;
}

static void what_a_product_takes_together_lies_side_by_side(void **state)
{
	static const char *const names[] = {"0.o_proj.weight", "0.q_proj.bias",
					    "0.k_proj.bias",   "0.v_proj.bias",
					    "0.q_proj.weight", "0.k_proj.weight",
					    "0.v_proj.weight", "0.r",
					    "1.q_proj.k_proj"};
	enum { N = sizeof(names) / sizeof(names[0]) };
	struct safetensors_tensor tensors[N];
	struct weights_content content;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		tensors[(i * 5) % N] = tensor_of(names[i]);
	content = make(tensors, N);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(place_of(&content, names[i]), i);
	content_done(&content);
}

/* For q, k and v; comparing names of a header of megabytes anew each time takes a second. */
static void each_name_is_looked_at_once(void **state)
{
	enum { N = 4096 };
	static char names[N][16];
	static struct safetensors_tensor tensors[N];
	struct weights_content content;

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "%u", i * 2654435761u);
		tensors[i] = tensor_of(names[i]);
	}
	n_looks = 0;
	content = make(tensors, N);
	assert_int_equal(n_looks, 3 * N);
	content_done(&content);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_product_takes_together_lies_side_by_side),
		cmocka_unit_test(each_name_is_looked_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
