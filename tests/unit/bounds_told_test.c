/*
 * bounds_told_test.c - under AddressSanitizer alone: what attention's kernels and products do not
 * ask vector by vector is reported all the same, from one byte too few on (kernels/races.h).
 */
#include "kernels/cpu/vec.h"
#include "kernels/rows/rows.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define N_ROWS 3
#define DIM 16
#define KEYS 16
#define N_IN 20
#define N_OUT 5
#define MAX_BUFFERS 5

static const char *const isas[] = {"generic", "avx2", "avx512"};

/* What a kernel takes: buffers of exactly these bytes. */
struct kernel {
	size_t bytes[MAX_BUFFERS];
	void (*run)(const char *isa, void *const *at);
};

static void run_score(const char *isa, void *const *at)
{
	struct vec_score a = {at[0], at[1], at[2], N_ROWS, KEYS, DIM, KEYS};

	vec_select(isa)->score[WORK_BF16](&a);
}

static void run_softmax(const char *isa, void *const *at)
{
	struct vec_softmax a = {at[0], at[1], at[2], at[3], at[4], N_ROWS};

	vec_select(isa)->softmax(&a);
}

static void run_values(const char *isa, void *const *at)
{
	struct vec_span *span = at[3];
	struct vec_values a = {at[0], at[1], span, at[4], 1, N_ROWS, DIM};

	*span = (struct vec_span){at[2], 0, KEYS};
	vec_select(isa)->values[WORK_BF16](&a);
}

static void run_product(const char *isa, void *const *at)
{
	struct rows_matrix w = {at[0], WORK_BF16, N_OUT, N_IN};
	struct rows_product p = {at[1], &w, at[2], N_IN, N_OUT, N_ROWS, false};

	rows_ops_select(isa)->matmul(&p);
}

static const struct kernel score = {
	{((DIM - 1) * VEC_BLOCK + N_ROWS) * 4, DIM *KEYS * 2,
	 ((N_ROWS - 1) * WORK_TILE_TOKENS + KEYS) * 4},
	run_score,
};
static const struct kernel softmax = {
	{N_ROWS * WORK_TILE_TOKENS * 4, N_ROWS * 8, N_ROWS * 4, N_ROWS *VEC_LANES_MAX * 4,
	 N_ROWS * 4},
	run_softmax,
};
static const struct kernel values = {
	{((N_ROWS - 1) * WORK_TILE_TOKENS + KEYS) * 4, N_ROWS * 4, KEYS *DIM * 2,
	 sizeof(struct vec_span), N_ROWS *DIM * 4},
	run_values,
};
static const struct kernel product = {
	{N_OUT * N_IN * 2, N_ROWS *N_IN * 4, N_ROWS *N_OUT * 4},
	run_product,
};

/* In a process of its own, as it ends with the report; the buffer that is short lacks a byte. */
static void run_short(const struct kernel *kernel, const char *isa, size_t one_short)
{
	void *at[MAX_BUFFERS];
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (nowhere < 0 || dup2(nowhere, STDERR_FILENO) < 0)
		_exit(2);
	for (size_t i = 0; i < MAX_BUFFERS; i++) {
		at[i] = calloc(1, kernel->bytes[i] - (i == one_short));
		if (!at[i])
			_exit(2);
	}
	kernel->run(isa, at);
	_exit(0);
}

static int status_of(const struct kernel *kernel, const char *isa, size_t one_short)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		run_short(kernel, isa, one_short);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* As AddressSanitizer's exitcode has it. */
static void assert_reported(const struct kernel *kernel)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		if (!vec_select(isas[i]))
			continue;
		assert_int_equal(status_of(kernel, isas[i], MAX_BUFFERS), 0);
		for (size_t b = 0; b < MAX_BUFFERS && kernel->bytes[b]; b++)
			assert_int_equal(status_of(kernel, isas[i], b), 1);
	}
}

static void test_scores_beyond_their_memory_are_reported(void **state)
{
	(void)state;
	assert_reported(&score);
}

static void test_weights_beyond_their_memory_are_reported(void **state)
{
	(void)state;
	assert_reported(&softmax);
}

static void test_values_beyond_their_memory_are_reported(void **state)
{
	(void)state;
	assert_reported(&values);
}

static void test_products_beyond_their_memory_are_reported(void **state)
{
	(void)state;
	assert_reported(&product);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scores_beyond_their_memory_are_reported),
		cmocka_unit_test(test_weights_beyond_their_memory_are_reported),
		cmocka_unit_test(test_values_beyond_their_memory_are_reported),
		cmocka_unit_test(test_products_beyond_their_memory_are_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
