/*
 * huge_test.c - memory in huge pages, as the kernel shows it: where it begins, what was asked for
 * it, what of it is there, and that nothing is left of it.
 */
#include "kernels/cpu/huge.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define BYTES (67 * MIB) /* no multiple of a huge page, nor of what is unmapped at once */

/* Of the mapping at that address, two letters each; "" where there is none. */
static void find_flags(const void *at, char ret[256])
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	unsigned long begin, end;
	bool found = false;
	char line[512];

	assert_non_null(maps);
	ret[0] = 0;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			found = (uintptr_t)at >= begin && (uintptr_t)at < end;
		else if (found)
			sscanf(line, "VmFlags:%255[^\n]", ret);
	}
	fclose(maps);
}

static uint64_t bytes_there(void *map, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = 0;
	unsigned char *there = malloc(bytes / page);

	assert_non_null(there);
	assert_int_equal(mincore(map, bytes, there), 0);
	for (uint64_t i = 0; i < bytes / page; i++)
		n += there[i] & 1;
	free(there);
	return n * page;
}

static bool kernel_has_huge_pages(void)
{
	return access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0;
}

/* Kernels before 5.14 do not know how to populate. */
static bool kernel_populates(void)
{
	long page = sysconf(_SC_PAGESIZE);
	void *map = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	int r;

	assert_true(map != MAP_FAILED);
	r = madvise(map, (size_t)page, MADV_POPULATE_WRITE);
	assert_true(r == 0 || errno == EINVAL);
	munmap(map, (size_t)page);
	return r == 0;
}

static void all_of_it_asks_for_huge_pages_and_is_in_no_core(void **state)
{
	char *map = huge_map(BYTES), *const at[] = {map, map + BYTES - 1};
	char flags[256];

	(void)state;
	assert_non_null(map);
	assert_int_equal((uintptr_t)map % HUGE_BYTES, 0);
	for (int i = 0; i < 2; i++) {
		find_flags(at[i], flags);
		assert_non_null(strstr(flags, " dd"));
		assert_true(!kernel_has_huge_pages() || strstr(flags, " hg"));
	}
	huge_unmap(map, BYTES);
}

/* Not even where a piece that is unmapped at once ends. */
static void nothing_is_left_of_it(void **state)
{
	char *map = huge_map(BYTES), flags[256];

	(void)state;
	assert_int_equal(huge_populate(map, BYTES), 0);
	huge_unmap(map, BYTES);
	for (uint64_t at = 0; at < BYTES; at += MIB) {
		find_flags(map + at, flags);
		assert_string_equal(flags, "");
	}
}

static void what_is_populated_is_there(void **state)
{
	char *map;

	(void)state;
	if (!kernel_populates())
		skip();
	map = huge_map(BYTES);
	assert_int_equal(bytes_there(map, BYTES), 0);
	assert_int_equal(huge_populate(map, 3 * HUGE_BYTES), 0);
	assert_int_equal(bytes_there(map, BYTES), 3 * HUGE_BYTES);
	assert_int_equal(huge_populate(map, BYTES), 0);
	assert_int_equal(bytes_there(map, BYTES), BYTES);
	huge_unmap(map, BYTES);
}

/* The second half cannot be populated: there is no such memory. */
static void where_there_is_no_memory_nothing_is_populated(void **state)
{
	char *map;

	(void)state;
	if (!kernel_populates())
		skip();
	map = huge_map(2 * HUGE_BYTES);
	assert_int_equal(munmap(map + HUGE_BYTES, HUGE_BYTES), 0);
	assert_int_equal(huge_populate(map, 2 * HUGE_BYTES), -ENOMEM);
	assert_int_equal(bytes_there(map, HUGE_BYTES), 0);
	huge_unmap(map, HUGE_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_it_asks_for_huge_pages_and_is_in_no_core),
		cmocka_unit_test(nothing_is_left_of_it),
		cmocka_unit_test(what_is_populated_is_there),
		cmocka_unit_test(where_there_is_no_memory_nothing_is_populated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
