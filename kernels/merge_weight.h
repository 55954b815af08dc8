/*
 * merge_weight.h - what a part of merge.h counts for where parts are merged; for C and for kernels
 * of a GPU, each with an exponential of its own.
 */
#ifndef COPPICE_MERGE_WEIGHT_H
#define COPPICE_MERGE_WEIGHT_H

#include <math.h>

/* Of a part whose sums are relative to part_max, in sums relative to max, the greatest of all
 * parts'. power(x) is 2^x or e^x, whichever the maxima are logarithms of. A part of no keys counts
 * for 0; a part_max that is no number, or a sum that is none, stays none. */
#define MERGE_WEIGHT(part_max, max, power) \
	((part_max) == -INFINITY ? 0.0f : power((part_max) - (max)))

#endif
