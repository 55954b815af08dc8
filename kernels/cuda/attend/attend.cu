/*
 * attend.cu - which kernels attention and merges are launched by, and what they are told beside
 * what the batch says. See find.cuh.
 */
#include "find.cuh"
#include "kernels/cuda/device/code.h"
#include "proto/arith.h"

static struct attend_kernels find_kernels(const struct device_kernel &of)
{
	const struct attend_kernels plain = attend_find<variant_none>(of.head_dim, of.bf16);

	if (!of.bounded)
		return plain;
	struct attend_kernels bounded = attend_find_bounded(of.head_dim, of.bf16);

	if (!bounded.merge)
		bounded.merge = plain.merge;
	return bounded;
}

/* Of shared memory. */
static uint32_t kernel_bytes(uint32_t dim, bool large)
{
	return for_shape(dim, false, [large](auto type, auto dim) -> uint32_t {
		typedef kernel_traits<typename decltype(type)::type, dim.value> traits;
		constexpr uint32_t most = layout<traits, traits::ring_slots(true)>::bytes;
		constexpr uint32_t least = layout<traits, traits::ring_slots(false)>::bytes;

		static_assert(most <= SHARED_BYTES_LARGE && least <= SHARED_BYTES_SMALL, "room");
		return large ? most : least;
	});
}

/* Of a kernel, from device_attend_init on. */
struct known {
	uint32_t bytes; /* of shared memory */
	uint64_t devices; /* that know, a bit each */
};

static struct known *find_known(const struct device_kernel &of)
{
	static struct known all[2][2][KV_HEAD_DIM_MOST / 32 + 1];

	return &all[of.bounded][of.bf16][of.head_dim / 32];
}

extern "C" int device_attend_init(const struct device_kernel *of)
{
	struct known *known = find_known(*of);
	const struct attend_kernels kernels = find_kernels(*of);
	int device = 0;
	uint32_t bytes = 0;
	enum code code = CODE_MMA;
	int r = cudaGetDevice(&device);
	uint64_t bit = UINT64_C(1) << device % 64;

	if (__atomic_load_n(&known->devices, __ATOMIC_ACQUIRE) & bit)
		return r;
	if (r == cudaSuccess)
		r = device_find_code(&code);
	if (r == cudaSuccess)
		bytes = kernel_bytes(of->head_dim, code == CODE_WGMMA);
	if (r == cudaSuccess)
		r = cudaFuncSetAttribute((const void *)kernels.attend,
					 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	if (r == cudaSuccess)
		r = load_kernels(kernels.merge);
	if (r != cudaSuccess)
		return r;
	known->bytes = bytes;
	__atomic_fetch_or(&known->devices, bit, __ATOMIC_RELEASE);
	return cudaSuccess;
}

static struct device_kernel kernel_of(const struct device_attend &a)
{
	return {a.shape.head_dim, (bool)a.shape.bf16, (bool)a.bounded};
}

static int launch_attend(attend_function kernel, uint32_t bytes, const struct device_attend &attend,
			 struct launch_to to)
{
	struct device_attend with = attend;
	struct launch_shape shape = {0, THREADS, bytes};

	with.entry_divisor = with.head_work_tiles ? with.head_work_tiles : with.shape.n_kv_heads;
	with.entry_inverse = with.entry_divisor == 1
				     ? UINT32_MAX
				     : (uint32_t)((UINT64_C(1) << 32) / with.entry_divisor);
	with.heads_inverse = 65536 / with.shape.row_heads + 1;
	with.n_entries = with.n_work_tiles * (with.head_work_tiles ? 1 : with.shape.n_kv_heads);
	shape.n_blocks = min_u32(with.n_entries, with.n_blocks);
	return launch_early(kernel, &with, shape, to);
}

static int launch_merge(attend_function kernel, const struct device_attend &attend,
			struct launch_to to)
{
	uint64_t n_warps =
		(uint64_t)attend.n_merges * attend.shape.n_kv_heads * attend.shape.row_heads
		<< attend.merge_warps_log2;
	struct launch_shape shape = {(uint32_t)ceil_div_u64(n_warps, MERGE_WARPS), MERGE_WARPS * 32,
				     0};

	return n_warps ? launch_early(kernel, &attend, shape, to) : (int)cudaSuccess;
}

extern "C" int device_attend(const struct device_attend *attend, struct launch_to to)
{
	const struct device_kernel of = kernel_of(*attend);

	return launch_attend(find_kernels(of).attend, find_known(of)->bytes, *attend, to);
}

extern "C" int device_merge(const struct device_attend *attend, struct launch_to to)
{
	return launch_merge(find_kernels(kernel_of(*attend)).merge, *attend, to);
}
