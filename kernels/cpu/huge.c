/*
 * huge.c - a mapping is made larger than was asked for and cut to where a huge page begins.
 *
 * Memory is populated by whoever takes it, so that a lack of it is an error there and no fault in a
 * batch; kernels before 5.14 do not know how.
 */
#include "huge.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

void *huge_map(uint64_t bytes)
{
	uint64_t all = bytes + HUGE_BYTES;
	char *map = mmap(NULL, all, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;

	uint64_t before = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;

	if (before)
		munmap(map, before);
	munmap(map + before + bytes, all - before - bytes);
	madvise(map + before, bytes, MADV_HUGEPAGE);
	madvise(map + before, bytes, MADV_DONTDUMP);
	return map + before;
}

int huge_populate(void *at, uint64_t bytes)
{
	if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	madvise(at, bytes, MADV_DONTNEED);
	return -ENOMEM;
}
