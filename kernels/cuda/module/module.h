/*
 * module.h - what coppice-cuda.so exports. It needs neither driver nor device to be loaded; open
 * says what is missing.
 */
#ifndef COPPICE_CUDA_MODULE_H
#define COPPICE_CUDA_MODULE_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "kernels/cuda/attend/clocks.h"
#include "kernels/cuda/device/code.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_MODULE_NAME "coppice-cuda.so"
#define CUDA_MODULE_OPS "coppice_backend_cuda"
#define CUDA_MODULE_ARENA_NEW "coppice_cuda_arena_new"
#define CUDA_MODULE_ARENA_COPY "coppice_cuda_arena_copy"
#define CUDA_MODULE_ARENA_FREE "coppice_cuda_arena_free"
#define CUDA_MODULE_MEASURE "coppice_cuda_measure"
#define CUDA_MODULE_MEASURE_STEP "coppice_cuda_measure_step"
#define CUDA_MODULE_MEASURE_GROUP "coppice_cuda_measure_group"
#define CUDA_MODULE_FREE_BYTES "coppice_cuda_free_bytes"
#define CUDA_MODULE_STREAM "coppice_cuda_stream"
#define CUDA_MODULE_DESCRIBE "coppice_cuda_describe"
#define CUDA_MODULE_CLOCKS "coppice_cuda_clocks"
#define CUDA_MODULE_PLAN_AS "coppice_cuda_plan_as"
#define CUDA_MODULE_MEASURE_PRODUCTS "coppice_cuda_measure_products"

struct costs;
struct schedule_choice;
struct backend_program;

/* Times the attention of the batch that was submitted last, over and over: a graph of its launches,
 * replayed between two events, after flush_bytes of other memory were written. ret_us [n]. Blocks.
 * 0; -EINVAL where not exactly one of the batch's jobs attended, as jobs of a batch use one
 * another's memory; -EIO. cuda_measure_step: with what comes before it, the new tokens' K and V
 * into pages and the rows' table, so that it is all that a step's kernels do. */
typedef int (*cuda_measure)(struct backend *b, uint64_t flush_bytes, uint32_t n, float *ret_us);
typedef const struct backend_ops *(*cuda_ops)(void);

/* Launches that attention once, after flush_bytes of other memory were written: when each of its
 * blocks came to what. Blocks. As cuda_measure; -ENOTSUP: this module has no clocks
 * (coppice-cuda-clocks.so has). */
typedef int (*cuda_clocks)(struct backend *b, uint64_t flush_bytes, struct device_clocks *ret);

/* Device memory for Q, K, V, O that never cross the bus; *ret_base is what io addresses are made
 * of. The copies block, in either direction. 0, -ENOMEM, -EIO. */
typedef int (*cuda_arena_new)(struct backend *b, uint64_t bytes, uint64_t *ret_base);
typedef int (*cuda_arena_copy)(struct backend *b, void *to, const void *from, uint64_t bytes);
typedef void (*cuda_arena_free)(struct backend *b, uint64_t base);

/* What the planner knows of the backend's device. */
struct cuda_card {
	char name[64];
	uint32_t n_blocks; /* multiprocessors */
	enum code code; /* that it computes with */
	const struct costs *costs; /* while the module is loaded */
};

typedef void (*cuda_describe)(struct backend *b, struct cuda_card *ret);
/* Plans made from here on take these costs, which the caller keeps, and this choice (copied). */
typedef void (*cuda_plan_as)(struct backend *b, const struct costs *costs,
			     const struct schedule_choice *choice);

/* Layers of a model, one after the other. */
struct cuda_measure_layers {
	uint32_t n_layers; /* of the model, taken in turn */
	uint32_t layer; /* that of the batch */
	uint32_t depth; /* launched one behind the other */
	/* a layer is both, or one of them alone: the exchange is between devices that have met */
	bool attend, exchange;
};

/* A layer on a device, by the device's own clock: its partials are there, and it has what the
 * others have. */
struct cuda_measure_stamp {
	uint64_t begin_ns, end_ns;
};

#define CUDA_MEASURE_DEPTH 64u /* layers, at most */

/* Devices that have met. */
struct cuda_group {
	struct backend *const *members; /* [n_members] */
	uint32_t n_members;
};

/* Times layers of the job that was submitted last to a group, whose rows are there: a graph and a
 * thread a device, each device's time divided by depth. ret_us [n][n_members]; ret_stamps
 * [n][n_members][depth], where there is an exchange of their own, else zeros; NULL: not wanted.
 * Blocks. As cuda_measure. */
typedef int (*cuda_measure_group)(const struct cuda_group *group,
				  const struct cuda_measure_layers *how, uint32_t n, float *ret_us,
				  struct cuda_measure_stamp *ret_stamps);

/* Times a program's products, biases and gates of all layers, and the product of its head, of so
 * many rows (the head's: 128 at most), replayed as by cuda_measure. ret_us [n]. Blocks. 0 or
 * -EIO. */
typedef int (*cuda_measure_products)(struct backend *b, struct backend_program *program,
				     uint32_t n_rows, uint32_t n, float *ret_us);
typedef int (*cuda_free_bytes)(struct backend *b, uint64_t *ret);

#define CUDA_MODULE_EXPORT __attribute__((visibility("default")))

CUDA_MODULE_EXPORT const struct backend_ops *coppice_backend_cuda(void);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_measure(struct backend *b, uint64_t flush_bytes,
						       uint32_t n, float *ret_us);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_measure_step(struct backend *b, uint64_t flush_bytes,
							    uint32_t n, float *ret_us);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_clocks(struct backend *b, uint64_t flush_bytes,
						      struct device_clocks *ret);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_measure_group(const struct cuda_group *group,
							     const struct cuda_measure_layers *how,
							     uint32_t n, float *ret_us,
							     struct cuda_measure_stamp *ret_stamps);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_measure_products(struct backend *b,
								struct backend_program *program,
								uint32_t n_rows, uint32_t n,
								float *ret_us);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_free_bytes(struct backend *b, uint64_t *ret);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_arena_new(struct backend *b, uint64_t bytes,
							 uint64_t *ret_base);
MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_arena_copy(struct backend *b, void *to,
							  const void *from, uint64_t bytes);
CUDA_MODULE_EXPORT void coppice_cuda_arena_free(struct backend *b, uint64_t base);

CUDA_MODULE_EXPORT void coppice_cuda_describe(struct backend *b, struct cuda_card *ret);
CUDA_MODULE_EXPORT void coppice_cuda_plan_as(struct backend *b, const struct costs *costs,
					     const struct schedule_choice *choice);

/* How the bare kernel of cuda_stream reads: tiles of a pool, both powers of two of bytes, tiles of
 * 4 KiB and more; blocks a multiprocessor, each with a ring that is a multiple of the tile (up to
 * 64). */
struct cuda_stream_tiles {
	uint64_t pool_bytes;
	uint32_t tile_bytes, ring_bytes, blocks;
};

/* Times a bare kernel that reads bytes in scattered tiles, replayed as by cuda_measure; bytes == 0:
 * an empty graph. On the device of the backend that the calling thread opened last, with memory of
 * its own. ret_us [n]. Blocks. 0, -EINVAL, -ENOMEM, -EIO. */
typedef int (*cuda_stream)(const struct cuda_stream_tiles *tiles, uint64_t flush_bytes,
			   uint64_t bytes, uint32_t n, float *ret_us);

MUST_CHECK CUDA_MODULE_EXPORT int coppice_cuda_stream(const struct cuda_stream_tiles *tiles,
						      uint64_t flush_bytes, uint64_t bytes,
						      uint32_t n, float *ret_us);

#ifdef __cplusplus
}
#endif

#endif
