/*
 * races.h - what the innermost loops of products and attention read and write, told to
 * ThreadSanitizer by whole stretches instead of vector by vector: the same bytes, but each once a
 * product, or once a tile of keys for all the rows that see it.
 *
 * A function that is RACES_TOLD is left alone by ThreadSanitizer, so who enters it says what it
 * touches of memory that is not its own. Without that sanitizer nothing of this leaves code.
 */
#ifndef COPPICE_KERNELS_RACES_H
#define COPPICE_KERNELS_RACES_H

#include <stddef.h>

#ifdef __SANITIZE_THREAD__
#define RACES_ARE_TOLD 1
#define RACES_TOLD __attribute__((no_sanitize("thread")))

void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);
#else
#define RACES_ARE_TOLD 0
#define RACES_TOLD
#endif

static inline __attribute__((always_inline)) void races_read(const void *at, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	__tsan_read_range((void *)at, bytes);
#else
	(void)at, (void)bytes;
#endif
}

static inline __attribute__((always_inline)) void races_write(void *at, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	__tsan_write_range(at, bytes);
#else
	(void)at, (void)bytes;
#endif
}

#endif
