/*
 * no_memory_test.c - memory that runs out while a backend, a group of them, their threads or a
 * program are made: each allocation fails once, and each time it is said, with nothing left behind.
 *
 * The linker puts the functions of this file around the heap's, which also know what was taken and
 * not given back. What is used though it was never there, a sanitizer says.
 */
#include "kernels/backend.h"
#include "kernels/cpu/program_scratch.h"
#include "kernels/cpu/threads.h"
#include "kernels/group/group.h"
#include "kernels/program/backend_program.h"
#include "program_model.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define ALLOCATIONS_MAX 100 /* far more than any of them makes */
#define TAKEN_MAX 10000 /* at a time; the same */

/* Of this thread: the so many-th allocation from now on fails; 0: none. */
static _Thread_local unsigned fails_in;

static bool fails(void)
{
	return fails_in > 0 && --fails_in == 0;
}

/* What was taken since that was last cleared, by any thread. */
static struct {
	pthread_mutex_t lock;
	void *at[TAKEN_MAX];
	uint32_t n;
} taken = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *take(void *at)
{
	pthread_mutex_lock(&taken.lock);
	assert_true(taken.n < TAKEN_MAX);
	if (at)
		taken.at[taken.n++] = at;
	pthread_mutex_unlock(&taken.lock);
	return at;
}

static void give_back(const void *at)
{
	pthread_mutex_lock(&taken.lock);
	for (uint32_t i = taken.n; at && i-- > 0;) {
		if (taken.at[i] == at) {
			taken.at[i] = taken.at[--taken.n];
			break;
		}
	}
	pthread_mutex_unlock(&taken.lock);
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **ret, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *at);
void __wrap_free(void *at);

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : take(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : take(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
	void *grown = fails() ? NULL : __real_realloc(old, bytes);

	if (grown)
		give_back(old);
	return take(grown);
}

int __wrap_posix_memalign(void **ret, size_t alignment, size_t bytes)
{
	int r = fails() ? ENOMEM : __real_posix_memalign(ret, alignment, bytes);

	if (r == 0)
		take(*ret);
	return r;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : take(__real_aligned_alloc(alignment, bytes));
}

void __wrap_free(void *at)
{
	give_back(at);
	__real_free(at);
}

/* Makes something with each of its allocations failing in turn; returns how many it makes. */
static unsigned run_out(int (*make)(void))
{
	unsigned n = 0;
	int r = -ENOMEM;

	while (r != 0) {
		fails_in = ++n;
		taken.n = 0;
		r = make();
		assert_int_equal(taken.n, 0);
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
