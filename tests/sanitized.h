/*
 * sanitized.h - whether a test runs under a sanitizer: it takes four times as long (ASan) or forty
 * (TSan) then, and has memory beside its own.
 */
#ifndef COPPICE_TESTS_SANITIZED_H
#define COPPICE_TESTS_SANITIZED_H

#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

#ifdef __SANITIZE_THREAD__
#define SANITIZED_THREADS true
#else
#define SANITIZED_THREADS false
#endif

/* How often what is done again and again is, of which no time touches a line that others do not. */
#define ROUNDS(plain, sanitized) (SANITIZED ? (sanitized) : (plain))

#endif
