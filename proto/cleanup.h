/*
 * cleanup.h - locals that give back what they hold when their scope ends: memory, or a descriptor
 * (-1 is none).
 */
#ifndef COPPICE_CLEANUP_H
#define COPPICE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_fd(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define CLEANUP_FREE __attribute__((cleanup(cleanup_free)))
#define CLEANUP_FD __attribute__((cleanup(cleanup_fd)))

#endif
