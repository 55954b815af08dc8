/*
 * sched_sparse_long.h - prefill of a path that is longer than the pool, all of it and of what is
 * chosen.
 */
#ifndef COPPICE_TESTS_SCHED_SPARSE_LONG_H
#define COPPICE_TESTS_SCHED_SPARSE_LONG_H

#include "kernels/backend.h"

#define ARENA_BYTES (1u << 21)
#define ROUNDING 1e-3 /* of two answers in fp16 */

/* Norm of the difference over that of b. */
double sparse_distance(const float *a, const float *b, size_t n);

/* What is not chosen stays where it is. Asserts; a backend that is not the CPU's gets fp16. */
void long_check(const struct backend_ops *backend);
/* A step of which a part was chosen for and a part was not says what it has seen of both. As
 * above. */
void long_check_seen(const struct backend_ops *backend);

#endif
