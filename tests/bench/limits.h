/*
 * limits.h - what a card can reach: the time in which a bare kernel reads so many bytes after a
 * flush, measured once, and the rate of its tensor cores.
 */
#ifndef COPPICE_BENCH_LIMITS_H
#define COPPICE_BENCH_LIMITS_H

#include "kernels/cuda/module/module.h"

#define LIMITS_POINTS 8u

struct limits {
	double bytes[LIMITS_POINTS]; /* ascending, from 0 */
	double us[LIMITS_POINTS];
	double tflops; /* given, not measured */
};

/* Measures on the device of the backend opened last; prints each point. 0 or -errno. */
int limits_init(struct limits *l, cuda_stream stream, double tflops);
/* The larger of what the bytes and what the operations take, with the time of an empty graph, in
 * us. */
double limits_us(const struct limits *l, double bytes, double flops);

#endif
