/*
 * summary.h - mean keys of paths whose KV is not in the pool (backend.h), on the device: [KV block
 * of 8 tokens][layer][KV head] [head_dim] in the model's type, so that a longer path is only more
 * of it.
 */
#ifndef COPPICE_CUDA_SUMMARY_H
#define COPPICE_CUDA_SUMMARY_H

#include "proto/must_check.h"
#include "kernels/cuda/device/format.h"

/* Rows [first, end) of a KV block in the pool, which become the mean at 'kv_block'. */
struct device_mean {
	uint32_t source; /* in KV_SOURCE_BYTES, of layer and head 0 */
	uint32_t kv_block;
	uint16_t first, end;
};

struct device_means {
	const char *pool; /* at the layer */
	char *to; /* of KV block, layer and head: to + kv_block * stride + head * 2 * head_dim */
	uint64_t stride;
	uint64_t head_bytes;
	const struct device_mean *at; /* pinned memory; [n] */
	uint32_t n, n_heads, head_dim, bf16;
};

#ifdef __cplusplus
extern "C" {
#endif

MUST_CHECK int device_means(const struct device_means *means,
			    device_stream stream); /* a cudaError_t */

#ifdef __cplusplus
}
#else
#include "sparse.h"
#include "kernels/backend.h"

#define SUMMARY_TABLES 4u /* under way */

/* Pinned memory for what goes up with a launch. */
struct summary_table {
	struct queue_buffer host;
	void *end; /* owned event: the launch has read it */
};

/* What all summaries of a device share. All zero: nothing yet. */
struct summary_room {
	struct summary_table tables[SUMMARY_TABLES];
	uint32_t n_tables; /* used so far */
	struct queue_buffer host, device; /* of an estimate */
};

void summary_room_done(struct summary_room *room);
/* As backend_summary_ops say. */
MUST_CHECK int summary_new(const struct work_shape *shape, struct backend_summary **ret);
void summary_free(struct backend_summary *summary);
MUST_CHECK int summary_add(struct summary_room *room, const struct sparse *with,
			   struct backend_summary *summary, const struct backend_span *span);
/* Can it be taken? */
bool summary_takes(const struct backend_estimate *estimate);
/* As backend_ops.estimate, of one that is taken; its Q lies at q on the device. */
MUST_CHECK int summary_estimate(struct summary_room *room, const struct sparse *with,
				const struct backend_estimate *estimate, uint64_t q,
				const float **ret_mass);
#endif

#endif
