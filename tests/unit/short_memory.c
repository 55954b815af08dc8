/*
 * short_memory.c - the realloc that programs of short_memory.h have. It is libc's but for one call,
 * which fails, whichever thread makes it; the next ones succeed again. Threads that are spared are
 * not counted.
 */
#include "short_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic unsigned fails_in;
static _Atomic bool failed;
static _Thread_local bool is_spared;

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool fails(void)
{
	if (is_spared || fails_in == 0 || --fails_in > 0)
		return false;
	failed = true;
	return true;
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return fails() ? NULL : __real_realloc(old, bytes);
}

void short_memory_spare(void)
{
	is_spared = true;
}

void short_memory_fails_in(unsigned n)
{
	failed = false;
	fails_in = n;
}

bool short_memory_failed(void)
{
	return failed;
}
