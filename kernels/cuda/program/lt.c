/*
 * lt.c - see lt.h. A product's way is cuBLASLt's first advice for its shape, asked for once and
 * kept, so that the same product gives the same bits. Ways are kept in a table by a hash of the
 * shape; another shape takes the place of one that has the same.
 *
 * Rows lie one behind the other; to cuBLASLt, whose matrices stand in columns, that is the
 * transposed product: out' = w in'. Partial sums are fp32, never the output's type.
 */
#include "lt.h"

#include "kernels/say.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAYS 1024u
#define ALIGN_MOST 256u

/* What a way depends on. */
struct shape {
	uint32_t n_out, n_in, n_rows, in_stride, out_stride;
	uint32_t type, out_type, align; /* of out's address */
	uint64_t w_stride, n_w;
};

struct way {
	struct shape shape; /* n_out 0: none */
	cublasLtMatmulDescOpaque_t desc;
	cublasLtMatrixLayoutOpaque_t w, in, out;
	cublasLtMatmulAlgo_t algo;
};

struct lt {
	void *library; /* owned */
	cublasLtHandle_t handle; /* owned */
	struct way ways[WAYS];
	cublasStatus_t (*create)(cublasLtHandle_t *);
	cublasStatus_t (*destroy)(cublasLtHandle_t);
	cublasStatus_t (*desc_init)(cublasLtMatmulDesc_t, size_t, cublasComputeType_t,
				    cudaDataType_t);
	cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
				   const void *, size_t);
	cublasStatus_t (*layout_init)(cublasLtMatrixLayout_t, size_t, cudaDataType, uint64_t,
				      uint64_t, int64_t);
	cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
				     const void *, size_t);
	cublasStatus_t (*preference_init)(cublasLtMatmulPreference_t, size_t);
	cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t,
					 cublasLtMatmulPreferenceAttributes_t, const void *,
					 size_t);
	cublasStatus_t (*advise)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
				 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
				 cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
				 cublasLtMatmulHeuristicResult_t[], int *);
	cublasStatus_t (*multiply)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *,
				   const void *, cublasLtMatrixLayout_t, const void *,
				   cublasLtMatrixLayout_t, const void *, const void *,
				   cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
				   const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);
};

/* ---- the library ----------------------------------------------------------------------------- */

static void *load(void)
{
	static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
	void *library = NULL;

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	return library;
}

static bool find_all(struct lt *lt)
{
	const struct {
		void *to;
		const char *name;
	} symbols[] = {
		{&lt->create, "cublasLtCreate"},
		{&lt->destroy, "cublasLtDestroy"},
		{&lt->desc_init, "cublasLtMatmulDescInit_internal"},
		{&lt->desc_set, "cublasLtMatmulDescSetAttribute"},
		{&lt->layout_init, "cublasLtMatrixLayoutInit_internal"},
		{&lt->layout_set, "cublasLtMatrixLayoutSetAttribute"},
		{&lt->preference_init, "cublasLtMatmulPreferenceInit_internal"},
		{&lt->preference_set, "cublasLtMatmulPreferenceSetAttribute"},
		{&lt->advise, "cublasLtMatmulAlgoGetHeuristic"},
		{&lt->multiply, "cublasLtMatmul"},
	};

	for (uint32_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *at = dlsym(lt->library, symbols[i].name);

		if (!at)
			return false;
		memcpy(symbols[i].to, &at, sizeof(at));
	}
	return true;
}

void lt_close(struct lt *lt)
{
	if (!lt)
		return;
	if (lt->handle)
		lt->destroy(lt->handle);
	if (lt->library)
		dlclose(lt->library);
	free(lt);
}

int lt_open(struct lt **ret, char *why, size_t bytes)
{
	struct lt *lt = calloc(1, sizeof(*lt));

	if (!lt)
		return -ENOMEM;
	lt->library = load();
	if (!lt->library || !find_all(lt)) {
		say(why, bytes,
		    "libcublasLt.so.13 (or .12), which multiplies on the GPU, is not installed or "
		    "lacks what is needed: install CUDA's libcublas, or use backend = cpu");
		lt_close(lt);
		return -EOPNOTSUPP;
	}
	if (lt->create(&lt->handle) != CUBLAS_STATUS_SUCCESS) {
		say(why, bytes, "cuBLASLt does not start on this GPU; backend = cpu works without");
		lt->handle = NULL;
		lt_close(lt);
		return -EOPNOTSUPP;
	}
	*ret = lt;
	return 0;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static cudaDataType type_of(uint32_t type)
{
	return type == WORK_FP32 ? CUDA_R_32F : type == WORK_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static uint32_t align_of(uint64_t bytes)
{
	uint64_t align = bytes & -bytes;

	return align && align < ALIGN_MOST ? (uint32_t)align : ALIGN_MOST;
}

static struct shape shape_of(const struct lt_product *p)
{
	return (struct shape){.n_out = p->n_out,
			      .n_in = p->n_in,
			      .n_rows = lt_rows(p->n_rows),
			      .in_stride = p->in_stride,
			      .out_stride = p->out_stride,
			      .type = p->type,
			      .out_type = p->out_type,
			      .align = align_of((uintptr_t)p->out),
			      .w_stride = p->n_w > 1 ? p->w_stride : 0,
			      .n_w = p->n_w};
}

static uint32_t hash_of(const struct shape *shape)
{
	uint32_t words[sizeof(*shape) / sizeof(uint32_t)];
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	memcpy(words, shape, sizeof(words));
	for (uint32_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(hash >> 32) % WAYS;
}

static cublasStatus_t set_several(const struct lt *lt, cublasLtMatrixLayout_t layout, uint64_t n,
				  uint64_t elements)
{
	const int32_t count = (int32_t)n;
	const int64_t stride = (int64_t)elements;
	cublasStatus_t r =
		lt->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));

	if (r != CUBLAS_STATUS_SUCCESS)
		return r;
	return lt->layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
			      sizeof(stride));
}

/* All read the same rows. */
static cublasStatus_t describe_several(const struct lt *lt, struct way *way)
{
	const struct shape *s = &way->shape;
	cublasStatus_t r = set_several(lt, &way->w, s->n_w, s->w_stride);

	if (r == CUBLAS_STATUS_SUCCESS)
		r = set_several(lt, &way->in, s->n_w, 0);
	return r == CUBLAS_STATUS_SUCCESS ? set_several(lt, &way->out, s->n_w, s->n_out) : r;
}

/* Both of a product's are fp32: sums, and what scales them. */
static bool describe(const struct lt *lt, struct way *way)
{
	const struct shape *s = &way->shape;
	const cublasOperation_t transposed = CUBLAS_OP_T;
	cublasStatus_t r =
		lt->desc_init(&way->desc, sizeof(way->desc), CUBLAS_COMPUTE_32F, CUDA_R_32F);

	if (r == CUBLAS_STATUS_SUCCESS)
		r = lt->desc_set(&way->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
				 sizeof(transposed));
	if (r == CUBLAS_STATUS_SUCCESS)
		r = lt->layout_init(&way->w, sizeof(way->w), type_of(s->type), s->n_in, s->n_out,
				    s->n_in);
	if (r == CUBLAS_STATUS_SUCCESS)
		r = lt->layout_init(&way->in, sizeof(way->in), type_of(s->type), s->n_in, s->n_rows,
				    s->in_stride);
	if (r == CUBLAS_STATUS_SUCCESS)
		r = lt->layout_init(&way->out, sizeof(way->out), type_of(s->out_type), s->n_out,
				    s->n_rows, s->out_stride);
	if (r == CUBLAS_STATUS_SUCCESS && s->n_w > 1)
		r = describe_several(lt, way);
	return r == CUBLAS_STATUS_SUCCESS;
}

/* What advice has to keep to. */
static bool prefer(const struct lt *lt, const struct shape *s,
		   cublasLtMatmulPreferenceOpaque_t *ret)
{
	const uint64_t workspace = LT_WORKSPACE_BYTES;
	const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const struct {
		cublasLtMatmulPreferenceAttributes_t which;
		const void *value;
		size_t bytes;
	} wanted[] = {
		{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
		{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof(sums)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s->align, sizeof(s->align)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s->align, sizeof(s->align)},
	};

	if (lt->preference_init(ret, sizeof(*ret)) != CUBLAS_STATUS_SUCCESS)
		return false;
	for (uint32_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (lt->preference_set(ret, wanted[i].which, wanted[i].value, wanted[i].bytes) !=
		    CUBLAS_STATUS_SUCCESS)
			return false;
	}
	return true;
}

static bool make_way(const struct lt *lt, struct way *way)
{
	cublasLtMatmulPreferenceOpaque_t preference;
	cublasLtMatmulHeuristicResult_t advice;
	int n = 0;

	if (!describe(lt, way) || !prefer(lt, &way->shape, &preference) ||
	    lt->advise(lt->handle, &way->desc, &way->w, &way->in, &way->out, &way->out, &preference,
		       1, &advice, &n) != CUBLAS_STATUS_SUCCESS ||
	    n == 0)
		return false;
	way->algo = advice.algo;
	return true;
}

static struct way *find_way(struct lt *lt, const struct lt_product *p)
{
	const struct shape shape = shape_of(p);
	struct way *way = &lt->ways[hash_of(&shape)];

	if (memcmp(&way->shape, &shape, sizeof(shape)) == 0)
		return way;
	way->shape = shape;
	if (make_way(lt, way))
		return way;
	way->shape.n_out = 0;
	return NULL;
}

int lt_find(struct lt *lt, const struct lt_product *product)
{
	return find_way(lt, product) ? 0 : -EOPNOTSUPP;
}

int lt_multiply(struct lt *lt, const struct lt_product *p, void *workspace,
		struct CUstream_st *stream)
{
	struct way *way = find_way(lt, p);
	const float one = 1, onto = p->add ? 1 : 0;

	if (!way)
		return -EOPNOTSUPP;
	return lt->multiply(lt->handle, &way->desc, &one, p->w, &way->w, p->in, &way->in, &onto,
			    p->out, &way->out, p->out, &way->out, &way->algo, workspace,
			    LT_WORKSPACE_BYTES, stream) == CUBLAS_STATUS_SUCCESS
		       ? 0
		       : -EIO;
}
