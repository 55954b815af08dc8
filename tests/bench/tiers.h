/*
 * tiers.h - the parts of coppice-bench tiers: a backend with a pool, host memory and attention to
 * be at work meanwhile; copies, the file, and a document in each tier with the first step on it.
 */
#ifndef COPPICE_BENCH_TIERS_H
#define COPPICE_BENCH_TIERS_H

#include "kernels/backend.h"
#include "kernels/cuda/module/module.h"
#include "kernels/plan/plan.h"
#include "kvstore/seq/gather.h"

#define TIERS_EXTENT_BYTES (UINT64_C(32) << 20)

struct tiers_options {
	const char *backend, *module;
	cuda_arena_copy arena_copy; /* NULL: arenas are host memory */
	const char *file; /* NULL: no file */
	uint32_t tokens; /* of the document */
	uint32_t file_tokens; /* of that which comes from the file */
	uint32_t n_layers;
	uint64_t copy_bytes; /* of a measurement */
	uint64_t stage_bytes; /* of a long prefill */
	const char *only; /* a part; NULL: all */
	double tau; /* of sparse long prefill; 0: none */
};

struct tiers_bench {
	const struct tiers_options *options;
	const struct backend_ops *ops;
	struct backend *backend; /* owned */
	uint64_t pool_bytes;
	char *host; /* owned, pinned */
	uint64_t host_bytes;
};

/* A backend with a pool of which nothing has memory yet, and pinned host memory. 0 or -errno, and
 * says why. */
int tiers_bench_init(struct tiers_bench *b, const struct tiers_options *options,
		     const struct backend_ops *ops, uint64_t pool_bytes, uint64_t host_bytes);
void tiers_bench_done(struct tiers_bench *b);

/* Where Q, K, V and O are. */
struct tiers_arena {
	struct tiers_bench *bench;
	uint64_t base, bytes;
	void *host; /* owned; NULL: device memory */
};

/* 0 or -errno; tiers_arena_done frees after either. */
int tiers_arena_init(struct tiers_arena *a, struct tiers_bench *b, uint64_t bytes);
void tiers_arena_done(struct tiers_arena *a);

int tiers_plan(struct tiers_bench *b, const struct work_shape *shape, const struct work_tree *tree,
	       struct work_list *ret);

/* Batches of one job, over and over. */
struct tiers_attention {
	struct tiers_bench *bench;
	struct work_shape shape;
	struct work_node *nodes; /* owned, as all here */
	struct work_slice *slices;
	struct work_query *queries;
	struct backend_io *io;
	struct work_tree tree;
	struct work_list list;
	struct tiers_arena arena;
	uint64_t n_asked, n_done;
	uint64_t plan_id;
};

/* n sequences of n_old tokens each, and n_new more with queries; 32 / 8 heads of 128 in 16 bits on
 * a GPU, fewer on the CPU. The pool's first extents get memory, and all of it random values: a
 * device computes faster on zeros. */
int tiers_attention_init(struct tiers_attention *a, struct tiers_bench *b, uint32_t n,
			 uint32_t n_old, uint32_t n_new);
void tiers_attention_done(struct tiers_attention *a);
/* Submits while few are under way; counts those that have ended. 0 or -errno. */
int tiers_attention_pump(struct tiers_attention *a);
int tiers_attention_settle(struct tiers_attention *a);

/* Decode steps of one token, all layers, each once the one before has ended. */
struct tiers_step {
	struct tiers_bench *bench;
	struct work_shape shape;
	struct tiers_arena arena;
	struct gather gather;
	struct work_slice *slices; /* owned: the path's, then the token's */
	uint32_t slices_capacity;
	uint64_t n_asked, n_done, plan_id;
};

/* 0 or -errno; tiers_step_done frees after either. */
int tiers_step_init(struct tiers_step *t, struct tiers_bench *b, const struct work_shape *shape);
void tiers_step_done(struct tiers_step *t);
/* Of a sequence whose path is on the device and whose live extension is the token. Blocks. 0 or
 * -errno. */
int tiers_step_run(struct tiers_step *t, struct store_seq *q);

struct work_shape tiers_shape(const struct tiers_bench *b, uint32_t n_layers);
/* Extents that so many tokens take. */
uint32_t tiers_extents(struct tiers_bench *b, const struct work_shape *shape, uint64_t n_tokens);

/* Each prints what it finds. 0 or -errno. */
int tiers_copies(const struct tiers_options *options, const struct backend_ops *ops);
int tiers_file(const struct tiers_options *options);
int tiers_document(const struct tiers_options *options, const struct backend_ops *ops);
int tiers_long(const struct tiers_options *options, const struct backend_ops *ops);
int tiers_recall(const struct tiers_options *options, const struct backend_ops *ops);

/* Bytes a second of slices of 128 KiB on their way up, nothing else at work. */
int tiers_up_rate(const struct tiers_options *options, const struct backend_ops *ops, double *ret);
/* Seconds of attention alone of the document in chunks: as batches take that are alone on an idle
 * device, and as they take one behind the other for longer than half a second, where a device's
 * power is what bounds it. */
struct tiers_recompute {
	double once_s, busy_s;
};

int tiers_recompute_seconds(const struct tiers_options *options, const struct backend_ops *ops,
			    uint32_t n_layers, struct tiers_recompute *ret);

#endif
