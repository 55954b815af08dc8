/*
 * dtype.h - coppice.h's types of elements are numbered as those of kernels/rows.
 */
#ifndef AGENT_DTYPE_H
#define AGENT_DTYPE_H

#include "client/coppice.h"
#include "kernels/rows/rows.h"

_Static_assert((int)COPPICE_FP32 == (int)WORK_FP32 && (int)COPPICE_FP16 == (int)WORK_FP16 &&
		       (int)COPPICE_BF16 == (int)WORK_BF16,
	       "one numbering");

static inline enum work_dtype dtype_of_rows(enum coppice_dtype dtype)
{
	return (enum work_dtype)dtype;
}

static inline size_t dtype_bytes(enum coppice_dtype dtype)
{
	return work_dtype_bytes(dtype_of_rows(dtype));
}

#endif
