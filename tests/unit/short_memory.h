/*
 * short_memory.h - memory that runs out. The linker puts a function of short_memory.c around
 * realloc, by which arrays grow (-Wl,--wrap=realloc).
 */
#ifndef COPPICE_TESTS_SHORT_MEMORY_H
#define COPPICE_TESTS_SHORT_MEMORY_H

#include <stdbool.h>

/* Arrays that this thread has grow. */
void short_memory_spare(void);
/* The so many-th that is to grow from now on does not, of all threads but who is spared; 0: all
 * do. */
void short_memory_fails_in(unsigned n);
/* One was to grow and did not, since that was last asked for. */
bool short_memory_failed(void);

#endif
