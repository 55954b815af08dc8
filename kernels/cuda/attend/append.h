/*
 * append.h - what comes before attention: new tokens into pages, Q and the rows' table to where
 * they are read; at once, or when a launch that stands on the device is called.
 */
#ifndef COPPICE_CUDA_APPEND_H
#define COPPICE_CUDA_APPEND_H

#include "proto/must_check.h"
#include "kernels/cuda/device/signals.h"

/* What comes before attention: new tokens into pages, rows of Q that lie elsewhere or askew into
 * device memory, the rows' table itself. Tables may lie in pinned host memory. */
struct device_inbound {
	struct device_shape shape;
	const struct device_token *tokens;
	const struct device_copy *copies;
	char *pool; /* at the layer */
	const struct device_row *rows_from;
	struct device_row *rows_to;
	const struct device_patch *patches;
	uint32_t n_tokens, n_copies, n_rows, n_patches;
	uint32_t copy_bytes; /* a multiple of 16 */
	uint32_t aligned; /* K and V lie at multiples of 16 bytes */
	uint32_t ahead; /* what is before it on the stream has seen all that was sent */
	uint64_t *begin_ns; /* written as it begins; NULL: nowhere */
	/* Copy i is from copy_from + i x copy_stride to copy_to + i x copy_bytes, so that the table
	 * need not be read; stride 0: it must. */
	uint64_t copy_from, copy_to, copy_stride;
};

static_assert(sizeof(struct device_inbound) <= DEVICE_CALL_WORDS * 8, "room for it in a call");

/* Rows [from_row] of the KV block at from to [to_row] of that at to, of n_heads head blocks (all
 * layers and heads). */
struct device_move {
	char *pool;
	uint64_t head_bytes;
	uint32_t head_dim;
	uint32_t n_heads;
	uint32_t from, to; /* sources */
	uint32_t from_row, to_row;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Each a cudaError_t as int: 0 is success. They start work and do not wait. */
MUST_CHECK int device_inbound(const struct device_inbound *inbound, struct launch_to to);
MUST_CHECK int device_stand(const struct device_stand *stand, struct launch_to to);
/* Never part of a chain. */
MUST_CHECK int device_move(const struct device_move *move, device_stream stream);
/* Loads what one member of a group may launch before any other does. */
MUST_CHECK int device_append_init(void);

#ifdef __cplusplus
}
#endif

#endif
