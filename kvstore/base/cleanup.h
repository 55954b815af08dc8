/*
 * cleanup.h - locals that free what they point to when their scope ends.
 */
#ifndef COPPICE_KVSTORE_CLEANUP_H
#define COPPICE_KVSTORE_CLEANUP_H

#include <stdlib.h>

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

#define CLEANUP_FREE __attribute__((cleanup(cleanup_free)))

#endif
