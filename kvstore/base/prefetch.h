/*
 * prefetch.h - what functions that prefetch are declared with.
 *
 * A function that does nothing but prefetch has no effect that the compiler knows of: it drops the
 * calls that it has not inlined by then.
 */
#ifndef COPPICE_KVSTORE_PREFETCH_H
#define COPPICE_KVSTORE_PREFETCH_H

#define PREFETCHES static inline __attribute__((always_inline))

#endif
