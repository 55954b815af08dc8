/*
 * elements.h - what is done to rows between products and attention, each as one launch: embedding,
 * norms, biases, gates, rotations, and rounding to the model's type.
 *
 * A register's rows are wide (fp32), narrow (the model's type), or both: as those want them that
 * read it next (program.h).
 */
#ifndef COPPICE_CUDA_ELEMENTS_H
#define COPPICE_CUDA_ELEMENTS_H

#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/launch.h"
#include "proto/must_check.h"
#include "kernels/program/program.h"

/* Weights that are no factor of a product. */
struct device_vector {
	const void *at; /* NULL: there is none */
	uint32_t type; /* enum work_dtype */
	uint32_t n;
};

/* Where rows go; strides in elements. */
struct device_rows {
	float *wide; /* NULL: not wanted */
	void *narrow; /* the same */
	uint32_t wide_stride, narrow_stride;
	uint32_t bf16;
	uint32_t add; /* wide += instead of = */
};

/* What a run begins with: what it is told comes from the host, and rows are turned by it. */
struct device_begin {
	const uint32_t *ids, *positions; /* [n_rows], pinned */
	const struct program_wanted *wanted_from; /* [n_wanted], pinned */
	struct program_wanted *wanted_to;
	const struct device_place *places_from; /* [n_rows], pinned */
	struct device_place *places_to;
	const double *inv_freq; /* [n_turned / 2] */
	struct device_vector embed; /* [.. x hidden] */
	float *x; /* NULL: rows are under way */
	float *rotations; /* [n_rows][n_turned] */
	uint64_t *begin_ns;
	uint32_t n_rows, n_wanted, hidden, x_stride, n_turned;
	float embed_factor, rope_factor;
};

/* in / sqrt(mean(in^2) + eps) * weight, and in alone without a weight: then it is rounded, no
 * more. */
struct device_norm {
	const float *wide; /* NULL: narrow */
	const void *narrow;
	struct device_vector weight;
	struct device_rows out;
	/* row i of what comes out is that of wanted[i], whose hidden row is told; NULL: row i */
	const struct program_wanted *wanted;
	uint64_t *begin_ns; /* with wanted: written as it begins; NULL: nowhere */
	uint32_t stride, bf16; /* of in */
	uint32_t n, n_rows, n_vocab;
	float eps;
};

/* What a product made, with biases, and gated: act(g) * u of its halves. */
struct device_finishing {
	const float *made; /* [n_rows], stride apart */
	struct device_vector bias[3]; /* one behind the other, over n_out[i] each */
	struct device_rows out;
	uint32_t n_out[3];
	uint32_t stride;
	uint32_t n; /* of out */
	uint32_t n_rows;
	uint32_t gated, act;
};

/* Heads of q, k and v: norms, rotations, rounded; k and v into pages, where a row has a place. */
struct device_heads {
	const float *qkv;
	const float *rotations; /* NULL: not turned */
	char *q; /* [n_rows][n_q][dim] */
	const struct device_place *places; /* [n_rows] */
	char *pool; /* at the layer */
	uint64_t head_bytes; /* from a KV head to the next */
	struct device_vector q_norm, k_norm; /* of a head; wide: of all heads */
	uint32_t stride;
	uint32_t n_rows, n_q, n_kv, dim, n_turned;
	uint32_t bf16, wide;
	uint32_t first; /* of the run: what it began with may not be there yet */
	float eps;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Each a cudaError_t as int: 0 is success. They start work and do not wait. */
MUST_CHECK int device_begin(const struct device_begin *begin, struct launch_to to);
MUST_CHECK int device_norm(const struct device_norm *norm, struct launch_to to);
MUST_CHECK int device_finishing(const struct device_finishing *finishing, struct launch_to to);
MUST_CHECK int device_heads(const struct device_heads *heads, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
