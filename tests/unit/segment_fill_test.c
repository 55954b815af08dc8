/*
 * segment_fill_test.c - bringing all pages of a segment, also where the kernel cannot do it in one
 * call. The linker puts a madvise around the system's that knows nothing of that.
 */
#include "proto/channel.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (64u << 10)

static bool is_old;

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
	if (!is_old)
		return __real_madvise(at, bytes, advice);
	errno = EINVAL;
	return -1;
}

/* A lane has its header before it is filled. */
static void fill(bool old)
{
	char *map, was[BYTES];
	int fd;

	is_old = false;
	assert_int_equal(channel_segment_new("test", BYTES, 0, &fd, (void **)&map), 0);
	memset(was, 0, sizeof(was));
	for (size_t i = 0; i < BYTES / 2; i++)
		was[i] = map[i] = (char)(i % 127 + 1);
	assert_int_equal(channel_segment_check_filled(fd, BYTES), -ENODATA);
	is_old = old;
	assert_int_equal(channel_segment_fill(map, BYTES), 0);
	assert_int_equal(channel_segment_check_filled(fd, BYTES), 0);
	assert_memory_equal(map, was, BYTES);
	munmap(map, BYTES);
	close(fd);
}

static void what_is_there_stays(void **state)
{
	(void)state;
	fill(false);
}

static void what_is_there_stays_on_older_kernels(void **state)
{
	(void)state;
	fill(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_there_stays),
		cmocka_unit_test(what_is_there_stays_on_older_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
