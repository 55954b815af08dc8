/*
 * batch_layers.h - layers of one job as one batch, each when its caller says so: what the caller
 * launches on the batch's stream between them makes their Q, K and V, and takes their O.
 *
 *      begin > (launches > attend a layer) ... > end        or, after any error, > drop
 *
 * There may be no layer at all between begin and end.
 *
 * K and V its caller puts into pages itself, before a layer's attention. What is launched before
 * that of the first layer has waited for all that is before it on the stream, and lets the next
 * launch come only then; all that is launched behind it reads nothing that a batch writes before it
 * has waited itself. So neither attention nor what follows it is held back. The
 * batch's finish alone reads before it waits (device/signals.cu), and only what it is to tell,
 * which the host wrote before the batch began.
 *
 * Plan and tables go up once, for all layers: Q, K, V and O of every layer lie at the same
 * addresses, of device memory.
 */
#ifndef COPPICE_CUDA_BATCH_LAYERS_H
#define COPPICE_CUDA_BATCH_LAYERS_H

#include "batch_impl.h"

struct batch_layers {
	struct upload u;
	const struct backend_job *job; /* borrowed until the end */
	struct device_inbound in;
	struct device_attend attend;
	char *pool; /* at layer 0 */
	uint64_t layer_bytes;
	const struct device_token *tokens; /* new ones, in order of the queries' slots */
	uint64_t *begin_ns; /* what is launched first writes it */
	uint64_t *ending_ns; /* what is launched shortly before the end writes it, if anything */
	bool attended; /* some layer: tables and patches have gone up */
};

/* The job wants all rows' O, and its layer is 0. host_bytes: of pinned memory that the caller sends
 * beside the tables, by one call of batch_layers_host. 0, -ENOMEM, -EIO, -EINVAL, -ESTALE: nothing
 * is under way. */
MUST_CHECK int batch_layers_begin(struct batch *b, const struct backend_job *job, size_t host_bytes,
				  struct batch_layers *ret);
/* Memory of the host that kernels read under the same address until the batch is complete. */
void *batch_layers_host(struct batch_layers *layers, size_t bytes);
/* Where a layer begins in the pool; and where new K and V go there, of the rows of all queries one
 * after the other: a place for each. */
char *batch_layers_pool(const struct batch_layers *layers, uint32_t layer);
void batch_layers_places(const struct batch_layers *layers, struct device_place *to);
/* 0 or -EIO. */
MUST_CHECK int batch_layers_attend(struct batch_layers *layers, uint32_t layer);
/* ended: so have the rows, and no batch goes on with them. */
MUST_CHECK int batch_layers_end(struct batch_layers *layers, bool ended, uint64_t *ret_id);
/* Waits until nothing of it is under way. */
void batch_layers_drop(struct batch_layers *layers);

#endif
