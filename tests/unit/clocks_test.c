/* clocks_test.c - phases of blocks are read from the marks that they made, and from no others. */
#include "tests/bench/clocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void mark(uint64_t *marks, uint64_t begin_ns, uint64_t step_ns)
{
	for (uint32_t i = 0; i < CLOCK_MARKS; i++)
		marks[i] = begin_ns + i * step_ns;
}

static const struct clocks_phase *find(const struct clocks_phase *phases, const char *name)
{
	for (uint32_t i = 0; i < CLOCKS_PHASES; i++) {
		if (strcmp(phases[i].name, name) == 0)
			return &phases[i];
	}
	fail_msg("no phase \"%s\"", name);
	return NULL;
}

static void test_phases_are_of_the_blocks_that_came_to_them(void **state)
{
	struct device_clocks *clocks = calloc(1, sizeof(*clocks));
	struct clocks_phase phases[CLOCKS_PHASES];

	(void)state;
	assert_non_null(clocks);
	mark(clocks->blocks[0], 10000, 1000);
	mark(clocks->blocks[1], 10000, 2000);
	mark(clocks->blocks[2], 10000, 4000);
	clocks->blocks[2][CLOCK_KV] = 0; /* it had none */
	clocks_read(clocks, phases);
	assert_int_equal(find(phases, "tile known")->n, 3);
	assert_true(find(phases, "tile known")->median == 2);
	assert_true(find(phases, "tile known")->worst == 4);
	assert_int_equal(find(phases, "its first KV")->n, 2);
	assert_true(find(phases, "its first KV")->worst == 4);
	assert_true(find(phases, "waits for the last")->worst == 18);
	assert_int_equal(find(phases, "merge, after it")->n, 0);
	clocks->merges[0][CLOCK_BEGIN] = 35000;
	clocks->merges[0][CLOCK_END] = 37000;
	clocks_read(clocks, phases);
	assert_int_equal(find(phases, "merge, after it")->n, 1);
	assert_true(find(phases, "merge, after it")->median == 3);
	free(clocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_phases_are_of_the_blocks_that_came_to_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
