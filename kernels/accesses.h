/*
 * accesses.h - what the innermost loops of products and attention read and write, told to Thread-
 * and AddressSanitizer by whole stretches instead of vector by vector: the same bytes, but each
 * once a product, or once a tile of keys for all the rows that see it.
 *
 * A function that is ACCESSES_TOLD is left alone by both, so who enters it says what it touches of
 * memory: access_* of what other threads may touch as well, access_own_* of what is its thread's
 * own, where there are no races to look for. Where all of a file does so, UBSan does not look at
 * its pointers either (coppice_told in CMakeLists.txt): where they are wrong, what is told is no
 * one's, and for what is not aligned there is access_aligned. Of arrays on the stack UBSan knows
 * the bounds. Without these sanitizers nothing of this leaves code.
 *
 * RACES_TOLD is for what goes element by element, which costs ThreadSanitizer much and the other
 * little: left alone by the former, for whom its caller tells what other threads may touch as well.
 */
#ifndef COPPICE_KERNELS_ACCESSES_H
#define COPPICE_KERNELS_ACCESSES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define ACCESSES_ARE_TOLD 1
#define ACCESSES_TOLD __attribute__((no_sanitize("thread")))
#define RACES_ARE_TOLD 1
#define RACES_TOLD ACCESSES_TOLD

void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);
#elif defined(__SANITIZE_ADDRESS__)
#define ACCESSES_ARE_TOLD 1
#define ACCESSES_TOLD __attribute__((no_sanitize("address")))

/* With a report, if one of the bytes is no one's. */
void __asan_loadN(void *at, long bytes);
void __asan_storeN(void *at, long bytes);
#else
#define ACCESSES_ARE_TOLD 0
#define ACCESSES_TOLD
#endif

#ifndef RACES_TOLD
#define RACES_ARE_TOLD 0
#define RACES_TOLD
#endif

#define ACCESS static inline __attribute__((always_inline))

/* In bytes, as its type wants it. */
ACCESS void access_aligned(const void *at, size_t to)
{
#if defined(__SANITIZE_ADDRESS__)
	if ((uintptr_t)at % to)
		__builtin_trap();
#else
	(void)at, (void)to;
#endif
}

ACCESS void access_own_read(const void *at, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
	__asan_loadN((void *)at, (long)bytes);
#else
	(void)at, (void)bytes;
#endif
}

ACCESS void access_own_write(void *at, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
	__asan_storeN(at, (long)bytes);
#else
	(void)at, (void)bytes;
#endif
}

ACCESS void access_read(const void *at, size_t bytes)
{
#if defined(__SANITIZE_THREAD__)
	__tsan_read_range((void *)at, (long)bytes);
#else
	access_own_read(at, bytes);
#endif
}

ACCESS void access_write(void *at, size_t bytes)
{
#if defined(__SANITIZE_THREAD__)
	__tsan_write_range(at, (long)bytes);
#else
	access_own_write(at, bytes);
#endif
}

/* n lines of so many bytes each, stride bytes apart. What lies between them has the same owner. */
ACCESS void access_read_lines(const void *at, size_t bytes, size_t stride, size_t n)
{
#if defined(__SANITIZE_THREAD__)
	if (bytes == stride)
		access_read(at, n * bytes);
	for (size_t i = 0; i < n && bytes != stride; i++)
		access_read((const char *)at + i * stride, bytes);
#else
	if (n)
		access_own_read(at, (n - 1) * stride + bytes);
#endif
}

#undef ACCESS

#endif
