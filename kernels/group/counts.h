/*
 * counts.h - what a group counts of each device, and what it counts of a row.
 */
#ifndef COPPICE_GROUP_COUNTS_H
#define COPPICE_GROUP_COUNTS_H

#include "kernels/work.h"

/* Since open. */
struct group_stats {
	uint64_t local_ns; /* appending and attention */
	uint64_t exchange_ns; /* merging and writing, and waiting for the others */
	/* of partials, given to others or, where all gather all rows, taken from them */
	uint64_t exchange_bytes;
	uint64_t appended_tokens; /* times layers */
	uint64_t kv_bytes_read; /* as backend_counters has it */
	uint64_t pool_bytes, pool_peak_bytes; /* committed */
};

/* Partials of all rows of a list, as exchange_bytes wants them. */
static inline uint64_t group_parts_bytes(const struct work_shape *shape, uint32_t n_rows)
{
	return (uint64_t)n_rows * shape->n_q_heads * (2 + shape->head_dim) * sizeof(float);
}

/* Of a row of a device that has met others: O as the model has it, and LSE. n devices count n - 1
 * of them for each row, where all gather all rows n (n - 1). */
static inline uint64_t group_met_row_bytes(const struct work_shape *shape)
{
	return (uint64_t)shape->n_q_heads *
	       (shape->head_dim * work_dtype_bytes(shape->dtype) + sizeof(float));
}

#endif
