/*
 * explain.h - the sentence of a connection's last failure in this thread.
 *
 * Sentences live in thread-local storage, one for each of the few connections that failed last, so
 * that threads that share a connection never read each other's. A connection is known by its key,
 * which no later connection gets again.
 */
#ifndef COPPICE_CLIENT_EXPLAIN_H
#define COPPICE_CLIENT_EXPLAIN_H

#include <stdint.h>

#define EXPLAIN_BYTES 512 /* of a sentence, at most */
#define EXPLAIN_CONNECT 0 /* the key of connections that never came to be */

/* Keeps the sentence and returns code, so that a failure is one line: return explain(key, -EINVAL,
 * "..."). */
__attribute__((format(printf, 3, 4))) int explain(uint64_t key, int code, const char *format, ...);

/* The sentence kept for key in this thread; one that says so where nothing has failed. */
const char *explain_last(uint64_t key);

#endif
