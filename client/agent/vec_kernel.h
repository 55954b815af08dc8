/*
 * vec_kernel.h - the instances of vec_kernel.c, which is compiled once for each instruction set.
 */
#ifndef AGENT_VEC_KERNEL_H
#define AGENT_VEC_KERNEL_H

#include "vec.h"

#if defined(__x86_64__)
extern const struct vec_ops vec_ops_avx512;
extern const struct vec_ops vec_ops_avx2;
#endif
extern const struct vec_ops vec_ops_baseline;

#endif
