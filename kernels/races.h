/*
 * races.h - what the innermost loops of products and attention read and write, told to a sanitizer
 * by whole stretches instead of vector by vector: the same bytes, but each once a product or a
 * block of rows. Told to ThreadSanitizer, attention's K and V are once a tile of keys for all the
 * rows that see it. For AddressSanitizer a stretch may go over what lies between two lines of one
 * block of memory.
 *
 * A function that is RACES_TOLD is left alone by both sanitizers, so who enters it says what it
 * touches: races_* of memory that others may touch too, own_* of what no other thread does, which
 * AddressSanitizer alone asks for. Without sanitizers nothing of this leaves code.
 */
#ifndef COPPICE_KERNELS_RACES_H
#define COPPICE_KERNELS_RACES_H

#include <stddef.h>

#if defined(__SANITIZE_THREAD__)
#define RACES_ARE_TOLD 1
#define BOUNDS_ARE_TOLD 0
#define RACES_TOLD __attribute__((no_sanitize("thread")))

void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);
#elif defined(__SANITIZE_ADDRESS__)
#define RACES_ARE_TOLD 0
#define BOUNDS_ARE_TOLD 1
#define RACES_TOLD __attribute__((no_sanitize("address")))

void __asan_loadN(void *at, long bytes);
void __asan_storeN(void *at, long bytes);
#else
#define RACES_ARE_TOLD 0
#define BOUNDS_ARE_TOLD 0
#define RACES_TOLD
#endif

static inline __attribute__((always_inline)) void own_read(const void *at, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_loadN((void *)at, bytes);
#else
	(void)at, (void)bytes;
#endif
}

static inline __attribute__((always_inline)) void own_write(void *at, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_storeN(at, bytes);
#else
	(void)at, (void)bytes;
#endif
}

static inline __attribute__((always_inline)) void races_read(const void *at, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	__tsan_read_range((void *)at, bytes);
#else
	own_read(at, bytes);
#endif
}

static inline __attribute__((always_inline)) void races_write(void *at, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
	__tsan_write_range(at, bytes);
#else
	own_write(at, bytes);
#endif
}

#endif
