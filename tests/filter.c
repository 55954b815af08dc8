/*
 * filter.c - in every test program: COPPICE_TEST names which of its tests run, * and ? allowed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void filter_tests(void)
{
	const char *pattern = getenv("COPPICE_TEST");

	if (pattern)
		cmocka_set_test_filter(pattern);
}
