/*
 * huge.c - a mapping is made larger than was asked for and cut to where a huge page begins.
 *
 * Memory is populated by whoever takes it, so that a lack of it is an error there and no fault in a
 * batch; kernels before 5.14 do not know how.
 *
 * The kernel keeps all of a process from mapping and unmapping while it populates or unmaps for one
 * thread, which takes seconds of gigabytes. So both are done a piece at a time: whoever waits comes
 * between two.
 */
#include "huge.h"

#include "proto/arith.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#define UNMAP_BYTES (UINT64_C(32) << 20)

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

void huge_unmap(void *map, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += UNMAP_BYTES)
		munmap((char *)map + at, min_u64(bytes - at, UNMAP_BYTES));
}

static int populate(char *at, uint64_t bytes)
{
	return madvise(at, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL ? 0 : -ENOMEM;
}

int huge_populate(void *map, uint64_t bytes)
{
	int r = 0;

	for (uint64_t at = 0; at < bytes && r == 0; at += HUGE_BYTES)
		r = populate((char *)map + at, min_u64(bytes - at, HUGE_BYTES));
	if (r < 0)
		madvise(map, bytes, MADV_DONTNEED);
	return r;
}
