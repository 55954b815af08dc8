/*
 * no_memory_test.c - memory that runs out while a backend, a group of them, their threads or a
 * program are made: each allocation fails once, and each time it is said, with nothing left behind.
 *
 * The linker puts the functions of this file around the heap's. What is left behind, and what is
 * used though it was never there, a sanitizer says.
 */
#include "kernels/backend.h"
#include "kernels/cpu/program_scratch.h"
#include "kernels/cpu/threads.h"
#include "kernels/group/group.h"
#include "kernels/program/backend_program.h"
#include "program_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define ALLOCATIONS_MAX 100 /* far more than any of them makes */

/* Of this thread: the so many-th allocation from now on fails; 0: none. */
static _Thread_local unsigned fails_in;

static bool fails(void)
{
	return fails_in > 0 && --fails_in == 0;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
int __real_posix_memalign(void **ret, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes)
{
	return fails() ? ENOMEM : __real_posix_memalign(ret, alignment, bytes);
}

/* Makes something with each of its allocations failing in turn; returns how many it makes. */
static unsigned run_out(int (*make)(void))
{
	unsigned n = 0;
	int r = -ENOMEM;

	while (r != 0) {
		fails_in = ++n;
		r = make();
		assert_int_equal(r, fails_in ? 0 : -ENOMEM);
		assert_in_range(n, 1, ALLOCATIONS_MAX);
	}
	fails_in = 0;
	return n - 1;
}

static int make_threads(void)
{
	struct threads *t = NULL;
	int r = threads_new(3, &t);

	assert_true((r == 0) == (t != NULL));
	threads_free(t);
	return r;
}

static int make_backend(const struct backend_ops *ops, const struct backend_config *config)
{
	struct backend *b = NULL;
	char error[256] = "";
	int r = ops->open(config, &b, error, sizeof(error));

	assert_true((r == 0) == (b != NULL));
	assert_true((r == 0) == (error[0] == '\0'));
	if (b)
		ops->close(b);
	return r;
}

static int make_cpu(void)
{
	struct backend_config config = {.pool_bytes = 8 * MIB,
					.extent_bytes = 2 * MIB,
					.n_threads = 2};

	return make_backend(&backend_cpu, &config);
}

static int make_group(void)
{
	struct group_device devices[3] = {{.ops = &backend_cpu},
					  {.ops = &backend_cpu},
					  {.ops = &backend_cpu}};
	struct group_config group = {.devices = devices, .n_devices = 3, .timeout_ms = 60000};
	struct backend_config config = {.pool_bytes = 12 * MIB,
					.extent_bytes = 6 * MIB,
					.n_threads = 1,
					.group = &group};

	return make_backend(&backend_group, &config);
}

/* What make_program is made with, each of which there is. */
static struct backend *program_backend;
static struct program_model *program_model;

static int make_program(void)
{
	const struct backend_program_ops *ops = backend_cpu.program;
	struct backend_weights *weights = NULL;
	struct backend_program *program = NULL;
	char why[PROGRAM_WHY_BYTES];
	int r = ops->weights_new(program_backend, program_model->p.weights_bytes, &weights);

	if (!r)
		r = ops->program_new(program_backend, &program_model->p, weights, &program, why);
	if (!r)
		r = program_scratch_reserve(program, 10);
	if (!r)
		r = program_scratch_reserve(program, 20);
	ops->program_free(program_backend, program);
	ops->weights_free(program_backend, weights);
	return r;
}

static void threads_that_find_no_memory_are_none(void **state)
{
	(void)state;
	assert_int_equal(run_out(make_threads), 2);
}

static void a_backend_that_finds_no_memory_says_so(void **state)
{
	(void)state;
	assert_true(run_out(make_cpu) >= 3);
}

static void a_group_that_finds_no_memory_says_so(void **state)
{
	(void)state;
	assert_true(run_out(make_group) >= 2 + 3 * 3);
}

static void a_program_that_finds_no_memory_says_so(void **state)
{
	struct backend_config config = {8 * MIB, 2 * MIB, 2, NULL};
	struct oracle_random random = oracle_seed(__func__);
	struct model_want want = model_want_random(&random);

	(void)state;
	program_model = model_new(&want, &random);
	assert_int_equal(backend_cpu.open(&config, &program_backend, NULL, 0), 0);
	assert_int_equal(run_out(make_program), 4);
	backend_cpu.close(program_backend);
	model_free(program_model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_that_find_no_memory_are_none),
		cmocka_unit_test(a_backend_that_finds_no_memory_says_so),
		cmocka_unit_test(a_group_that_finds_no_memory_says_so),
		cmocka_unit_test(a_program_that_finds_no_memory_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
