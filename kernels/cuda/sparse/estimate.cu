/*
 * estimate.cu - see estimate.h. Four launches:
 *
 *   gather   a thread for 16 bytes: Q into rows of squares, in the order that the pool has K in
 *   multiply estimate_wide.cuh or estimate_narrow.cuh (of mean keys estimate_means.cuh, gather
 *            too): scores of tiles, of which maxima and sums are kept
 *   weights  a warp for each row: what its tiles' sums weigh, once the row's maximum and sum are
 *            known
 *   masses   blocks of 32 columns x some rows: sums over the rows of a block of queries
 *
 * A row that sees nothing cannot be; a NaN among what it sees makes all its masses NaN.
 */
#include "estimate_means.cuh"
#include "estimate_narrow.cuh"
#include "estimate_wide.cuh"
#include "kernels/cuda/device/code.h"
#include "kernels/cuda/device/merged.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "proto/arith.h"

#define GATHER_THREADS 256u
#define WEIGHT_WARPS 4u
#define MASS_THREADS 1024u
#define SCRATCH_ALIGN 1024u

__global__ void __launch_bounds__(GATHER_THREADS)
	gather_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	uint64_t i = (uint64_t)blockIdx.x * GATHER_THREADS + threadIdx.x, rest = i / 8;
	uint64_t n = (uint64_t)j.e.shape.n_kv_heads * j.m * j.n_slabs * 8;
	uint32_t slab = rest % j.n_slabs, half = slab / j.k_slabs;
	uint32_t at = slab % j.k_slabs * (SLAB_BYTES / KV_CHUNK_BYTES) + i % 8;
	uint32_t row, token, head, dim = j.e.shape.head_dim, chunk = kv_chunk_at(dim, at);
	uint4 v = make_uint4(0, 0, 0, 0);

	launch_wait();
	launch_next();
	if (i >= n)
		return;
	rest /= j.n_slabs;
	row = rest % j.n_rows;
	head = rest / j.n_rows;
	token = row * j.e.stride + j.e.stride - 1 - half * KV_BLOCK_TOKENS - kv_row_at(dim, at);
	if (token < j.e.n_q)
		v = *(const uint4 *)(j.e.q + token * j.e.q_stride +
				     ((uint64_t)head * dim + chunk * 8) * 2);
	j.q[i] = v;
#endif
}

__global__ void __launch_bounds__(WEIGHT_WARPS * 32)
	weight_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	uint64_t row = (uint64_t)blockIdx.x * WEIGHT_WARPS + threadIdx.x / 32;
	uint32_t lane = threadIdx.x % 32, n_seen = last_seen(j, row % j.m) / j.tile_columns + 1;
	float2 *stats = j.stats + row * j.n_tiles;
	float max = -INFINITY, sum = 0;

	launch_wait();
	launch_next();
	if (row >= (uint64_t)j.e.shape.n_kv_heads * j.m)
		return;
	for (uint32_t i = lane; i < n_seen; i += 32)
		max = fmaxf(max, stats[i].x);
#pragma unroll
	for (uint32_t i = 16; i; i /= 2)
		max = fmaxf(max, __shfl_xor_sync(~0u, max, i));
	for (uint32_t i = lane; i < n_seen; i += 32)
		sum += merge_weight(stats[i].x, max) * stats[i].y;
#pragma unroll
	for (uint32_t i = 16; i; i /= 2)
		sum += __shfl_xor_sync(~0u, sum, i);
	for (uint32_t i = lane; i < j.n_tiles; i += 32)
		stats[i].x = i < n_seen ? merge_weight(stats[i].x, max) / sum : 0;
#endif
}

#if __CUDA_ARCH__ >= 800
/* Of one row and block of keys. */
__device__ inline float row_mass(const struct estimate_job &j, uint64_t row, uint32_t begin,
				 uint32_t end)
{
	uint32_t per_tile = j.tile_columns >> j.chunk_log2 >> 3;
	float sum = 0;

	for (uint32_t c = begin; c < end; c++) {
		float weight = j.stats[row * j.n_tiles + c / per_tile].x;

		/* what is not seen was not written */
		sum += weight == 0 ? 0 : weight * j.sums[row * j.n_chunks + c];
	}
	return sum;
}
#endif

/* Block x: some columns; y: block of queries; z: KV head. Threads of a column take rows in turn. */
__global__ void __launch_bounds__(MASS_THREADS)
	mass_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	__shared__ float parts[MASS_THREADS];
	uint32_t column = blockIdx.x * blockDim.x + threadIdx.x, kv_block = j.e.shape.group;
	uint32_t of_block = j.e.block_tokens / j.e.stride, first = blockIdx.y * of_block;
	uint32_t n = min_u32(j.n_rows - first, of_block);
	uint32_t chunks = (of_block >> j.chunk_log2) >> 3, begin = column * chunks;
	uint32_t end = min_u32(begin + chunks, j.n_chunks);
	float sum = 0;

	launch_wait();
	launch_next();
	if (column < j.n_k_blocks) {
#pragma unroll 4
		for (uint32_t i = threadIdx.y; i < n * kv_block; i += blockDim.y)
			sum += row_mass(j,
					(uint64_t)blockIdx.z * j.m + i / n * j.n_rows + first +
						i % n,
					begin, end);
	}
	parts[threadIdx.y * blockDim.x + threadIdx.x] = sum;
	for (uint32_t half = blockDim.y / 2; half; half /= 2) {
		__syncthreads();
		if (threadIdx.y < half)
			parts[threadIdx.y * blockDim.x + threadIdx.x] +=
				parts[(threadIdx.y + half) * blockDim.x + threadIdx.x];
	}
	if (threadIdx.y > 0 || column >= j.n_k_blocks)
		return;
	j.e.mass[((uint64_t)blockIdx.z * j.n_q_blocks + blockIdx.y) * j.n_k_blocks + column] =
		parts[threadIdx.x];
#endif
}

/* ---- host ----------------------------------------------------------------------------------- */

static bool shape_ok(const struct device_estimate *e)
{
	uint32_t eights = e->block_tokens / (e->stride ? 8 * e->stride : 1);

	return (e->stride == 8 || e->stride == 16) && eights > 0 && (eights & (eights - 1)) == 0 &&
	       e->block_tokens % (8 * e->stride) == 0 && e->n_q > 0 && e->n_k > 0 &&
	       e->q_pos % e->stride == 0 && (!e->means || e->stride == KV_BLOCK_TOKENS) &&
	       e->shape.scale_log2 > 0 && (e->q | e->q_stride) % 16 == 0;
}

/* Those of which nothing is seen are left out if there is room to list the others. */
static void count_tiles(struct estimate_job *j, bool wide)
{
	uint32_t tile_rows = wide ? WIDE_BLOCKS * WIDE_ROWS : NARROW_ROWS, n_seen = 0;

	j->n_common = j->n_tiles;
	for (uint32_t i = 0; i < j->n_row_tiles; i++) {
		uint32_t n =
			last_seen_of(*j, i * tile_rows, (i + 1) * tile_rows) / j->tile_columns + 1;

		n_seen += n;
		j->n_common = min_u32(n, j->n_common);
	}
	j->n_head_tiles = n_seen;
	if (wide && j->n_row_tiles <= ESTIMATE_LIST_ROWS &&
	    (j->n_tiles - j->n_common) * j->n_row_tiles <= ESTIMATE_LIST)
		return;
	j->n_common = j->n_tiles;
	j->n_head_tiles = j->n_tiles * j->n_row_tiles;
}

static struct estimate_job job_make(const struct device_estimate *e, bool wide)
{
	struct estimate_job j = {};
	uint32_t eights = e->block_tokens / e->stride / 8;

	j.e = *e;
	j.kv_block_bytes = kv_block_bytes(e->shape.head_dim, e->shape.head_dim);
	j.unit_bytes = estimate_unit_bytes(e->shape.head_dim);
	j.kv_block_units = j.kv_block_bytes / j.unit_bytes;
	j.k_slabs = kv_part_bytes(e->shape.head_dim) / SLAB_BYTES;
	j.page_kv_blocks = (uint32_t)(e->page_bytes / j.unit_bytes);
	j.n_slabs = e->means ? ceil_div(e->shape.head_dim, SLAB_VALUES)
			     : j.k_slabs * (e->stride / KV_BLOCK_TOKENS);
	j.n_rows = ceil_div(e->n_q, e->stride);
	j.n_columns = ceil_div(e->n_k, e->stride);
	j.m = e->shape.group * j.n_rows;
	j.tile_columns = wide ? WIDE_COLUMNS : NARROW_COLUMNS;
	j.n_tiles = ceil_div(j.n_columns, j.tile_columns);
	while (2u << j.chunk_log2 <= eights && 16u << j.chunk_log2 <= j.tile_columns)
		j.chunk_log2++;
	j.n_chunks = j.n_tiles * (j.tile_columns >> j.chunk_log2 >> 3);
	j.n_row_tiles = ceil_div(j.m, wide ? WIDE_BLOCKS * WIDE_ROWS : NARROW_ROWS);
	count_tiles(&j, wide);
	j.n_q_blocks = ceil_div(e->n_q, e->block_tokens);
	j.n_k_blocks = ceil_div(e->n_k, e->block_tokens);
	j.scale_log2 = e->means ? e->shape.scale_log2 : e->shape.scale_log2 / (float)e->stride;
	return j;
}

/* Of the job's three arrays. */
static void scratch_bytes(const struct estimate_job &j, uint64_t (&ret)[3])
{
	uint64_t rows = (uint64_t)j.e.shape.n_kv_heads * j.m;

	ret[0] = align_to(rows * j.n_slabs * SLAB_BYTES, SCRATCH_ALIGN);
	ret[1] = align_to(rows * j.n_chunks * sizeof(float), SCRATCH_ALIGN);
	ret[2] = align_to(rows * j.n_tiles * sizeof(float2), SCRATCH_ALIGN);
}

extern "C" uint64_t device_estimate_bytes(const struct device_estimate *e)
{
	uint64_t wide[3], narrow[3];

	if (!shape_ok(e))
		return 0;
	scratch_bytes(job_make(e, true), wide);
	scratch_bytes(job_make(e, false), narrow);
	return wide[0] + max_u64(wide[1], narrow[1]) + max_u64(wide[2], narrow[2]);
}

/* What a map is of; each array [rank]. */
struct tensor {
	uint64_t at;
	uint32_t rank;
	const cuuint64_t *sizes, *strides;
	const cuuint32_t *box;
};

static bool encode(tensor_map_encode to, CUtensorMap *map, bool bf16, const struct tensor &t)
{
	static const cuuint32_t every[5] = {1, 1, 1, 1, 1};

	return to(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
		  t.rank, (void *)t.at, t.sizes, t.strides, t.box, every,
		  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Squares of the pool: 'kv_blocks' KV blocks side by side each, as many in a box as a window
 * has. */
static bool encode_keys(tensor_map_encode to, CUtensorMap *map, const struct estimate_job &j,
			uint32_t kv_blocks, uint32_t squares)
{
	const cuuint64_t sizes[] = {SLAB_VALUES, j.k_slabs, kv_blocks,
				    j.e.pool_bytes / j.kv_block_bytes / kv_blocks};
	const cuuint64_t strides[] = {SLAB_BYTES, j.kv_block_bytes,
				      (cuuint64_t)j.kv_block_bytes * kv_blocks};
	const cuuint32_t box[] = {SLAB_VALUES, 1, 1, squares};

	return encode(to, map, j.e.shape.bf16, {j.e.pool, 4, sizes, strides, box});
}

/* What a warp brings of a slab, where pages lie side by side. */
static bool encode_runs(tensor_map_encode to, CUtensorMap *map, const struct estimate_job &j,
			uint32_t kv_blocks)
{
	uint32_t squares = j.e.page_tokens / j.e.stride,
		 n_pages = WIDE_MINE / WIDE_BRINGERS / squares;

	if (n_pages == 0 || squares == 0)
		return true;
	const cuuint64_t sizes[] = {SLAB_VALUES, j.k_slabs, kv_blocks,
				    j.e.pool_bytes / j.kv_block_bytes / kv_blocks, n_pages};
	const cuuint64_t strides[] = {SLAB_BYTES, j.kv_block_bytes,
				      (cuuint64_t)j.kv_block_bytes * kv_blocks, j.e.page_bytes};
	const cuuint32_t box[] = {SLAB_VALUES, 1, 1, squares, n_pages};

	return encode(to, map, j.e.shape.bf16, {j.e.pool, 5, sizes, strides, box});
}

static bool maps_make(const struct estimate_job &j, struct wide_maps *ret)
{
	tensor_map_encode to = tensor_map_encoder();
	const cuuint64_t row_bytes = (cuuint64_t)j.n_slabs * SLAB_BYTES;
	const cuuint64_t sizes[] = {j.n_slabs * SLAB_VALUES, j.m, j.e.shape.n_kv_heads};
	const cuuint64_t strides[] = {row_bytes, row_bytes * j.m};
	const cuuint32_t box[] = {SLAB_VALUES, WIDE_ROWS, 1};
	uint32_t kv_blocks = j.e.stride / KV_BLOCK_TOKENS;

	return to && encode(to, &ret->q, j.e.shape.bf16, {(uint64_t)j.q, 3, sizes, strides, box}) &&
	       encode_runs(to, &ret->runs, j, kv_blocks) &&
	       encode_keys(to, &ret->windows, j, kv_blocks, ESTIMATE_WINDOW_TOKENS / j.e.stride) &&
	       encode_keys(to, &ret->kv_blocks, j, 1, 1);
}

static uint32_t multiprocessors(void)
{
	static int n; /* of the device, which is one for all of a process */
	int device = 0;

	if (n == 0 &&
	    (cudaGetDevice(&device) != cudaSuccess ||
	     cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess))
		n = 0;
	return (uint32_t)n;
}

struct grid {
	dim3 blocks, threads;
	uint32_t shared_bytes, cluster_blocks;
};

/* Each waits for the one before by itself, where launches overlap. */
template <typename... ARGUMENTS>
static int start(void (*kernel)(ARGUMENTS...), struct grid grid, cudaStream_t stream,
		 const ARGUMENTS &...arguments)
{
	cudaLaunchAttribute attributes[2] = {};
	cudaLaunchConfig_t config = {};
	enum code code;
	int r = device_find_code(&code);

	if (r != cudaSuccess)
		return r;
	attributes[0].id = cudaLaunchAttributeClusterDimension;
	attributes[0].val.clusterDim = {grid.cluster_blocks, 1, 1};
	attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attributes[1].val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid.blocks;
	config.blockDim = grid.threads;
	config.dynamicSmemBytes = grid.shared_bytes;
	config.stream = stream;
	config.attrs = grid.cluster_blocks > 1 ? attributes : attributes + 1;
	config.numAttrs = code_overlaps(code) ? (grid.cluster_blocks > 1 ? 2 : 1) : 0;
	if (grid.shared_bytes)
		r = cudaFuncSetAttribute((const void *)kernel,
					 cudaFuncAttributeMaxDynamicSharedMemorySize,
					 (int)grid.shared_bytes);
	return r == cudaSuccess ? cudaLaunchKernelEx(&config, kernel, arguments...) : r;
}

static int start_multiply(const struct estimate_job &j, bool wide, cudaStream_t stream)
{
	const struct grid narrow = {dim3(multiprocessors()), dim3(NARROW_THREADS), NARROW_BYTES, 1};
	const struct grid clusters = {dim3(multiprocessors() / WIDE_BLOCKS * WIDE_BLOCKS),
				      dim3(WIDE_THREADS), WIDE_BYTES, WIDE_BLOCKS};
	const struct grid means = {dim3(2 * multiprocessors()), dim3(MEANS_THREADS),
				   j.n_slabs * NARROW_STAGE_BYTES, 1};
	struct wide_maps maps;

	if (j.e.means)
		return start(j.e.shape.bf16 ? means_kernel<dtype_bf16> : means_kernel<dtype_half>,
			     means, stream, j);
	if (!wide)
		return start(j.e.shape.bf16 ? narrow_kernel<dtype_bf16> : narrow_kernel<dtype_half>,
			     narrow, stream, j);
	if (!maps_make(j, &maps))
		return cudaErrorNotSupported;
	return start(j.e.shape.bf16 ? wide_kernel<dtype_bf16> : wide_kernel<dtype_half>, clusters,
		     stream, j, maps);
}

/* Fewer columns a block where there would be too few blocks. */
static int start_masses(const struct estimate_job &j, cudaStream_t stream)
{
	uint32_t rows = j.e.block_tokens / j.e.stride * j.e.shape.group; /* 8 at least */
	uint32_t columns = 32, threads = 1, others = j.n_q_blocks * j.e.shape.n_kv_heads;

	while (columns > 4 && ceil_div(j.n_k_blocks, columns) * others < 2 * multiprocessors())
		columns /= 2;
	while (threads * columns < MASS_THREADS && threads * 8 <= rows)
		threads *= 2;
	const struct grid grid = {dim3(ceil_div(j.n_k_blocks, columns), j.n_q_blocks,
				       j.e.shape.n_kv_heads),
				  dim3(columns, threads), 0, 1};

	return start(mass_kernel, grid, stream, j);
}

extern "C" int device_estimate(const struct device_estimate *e, device_stream stream)
{
	uint64_t bytes[3];
	enum code code;
	int r = device_find_code(&code);

	if (r == cudaSuccess && !shape_ok(e))
		r = cudaErrorInvalidValue;
	if (r != cudaSuccess)
		return r;
	bool wide = code == CODE_WGMMA && !e->means &&
		    estimate_unit_bytes(e->shape.head_dim) > KV_SOURCE_BYTES;
	struct estimate_job j = job_make(e, wide);
	uint64_t rows = (uint64_t)e->shape.n_kv_heads * j.m, n_chunks = rows * j.n_slabs * 8;
	const struct grid gather = {dim3((uint32_t)ceil_div_u64(n_chunks, GATHER_THREADS)),
				    dim3(GATHER_THREADS), 0, 1};
	const struct grid weight = {dim3((uint32_t)ceil_div_u64(rows, WEIGHT_WARPS)),
				    dim3(WEIGHT_WARPS * 32), 0, 1};

	scratch_bytes(j, bytes);
	j.q = (uint4 *)e->scratch;
	j.sums = (float *)((char *)e->scratch + bytes[0]);
	j.stats = (float2 *)((char *)e->scratch + bytes[0] + bytes[1]);
	r = start(e->means ? means_query_kernel : gather_kernel, gather, stream, j);
	if (r == cudaSuccess)
		r = start_multiply(j, wide, stream);
	if (r == cudaSuccess)
		r = start(weight_kernel, weight, stream, j);
	return r == cudaSuccess ? start_masses(j, stream) : r;
}
