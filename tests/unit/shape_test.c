/*
 * shape_test.c - what is said of a shape that the GPU's kernels cannot work with.
 */
#include "kernels/cuda/device/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static const struct work_shape SOUND = {
	.n_layers = 2,
	.n_q_heads = 8,
	.n_kv_heads = 2,
	.head_dim = 128,
	.page_tokens = 32,
	.dtype = WORK_BF16,
	.scale = 0.125,
};

static void assert_refused(struct work_shape shape, const char *sentence)
{
	const struct pool pool = {.extent_bytes = 2 * MIB};
	char error[256] = "";

	assert_int_equal(shape_page_bytes(&pool, &shape, error, sizeof(error)), 0);
	assert_string_equal(error, sentence);
}

static void test_a_sound_shape_has_pages(void **state)
{
	const struct pool pool = {.extent_bytes = 2 * MIB};
	char error[256] = "";

	(void)state;
	assert_true(shape_page_bytes(&pool, &SOUND, error, sizeof(error)) > 0);
	assert_string_equal(error, "");
}

static void test_a_sentence_names_what_there_is_and_what_was_asked_for(void **state)
{
	struct work_shape shape = SOUND;

	(void)state;
	shape.head_dim = 80;
	assert_refused(shape, "head_dim 80 is none of 64, 96, 128, 192, 256, which the GPU "
			      "computes; backend = cpu takes it");
	shape = SOUND;
	shape.page_tokens = 24;
	assert_refused(shape, "page_tokens 24 is not 16, 32 or 64");
	shape = SOUND;
	shape.dtype = WORK_FP32;
	assert_refused(shape, "dtype fp32 is not computed on the GPU: use fp16 or bf16, or "
			      "backend = cpu");
	shape = SOUND;
	shape.n_q_heads = 1032;
	shape.n_kv_heads = 12;
	assert_refused(shape, "1032 query heads; a model has at most 1024");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_sound_shape_has_pages),
		cmocka_unit_test(test_a_sentence_names_what_there_is_and_what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
