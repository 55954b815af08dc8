/*
 * attend.cu - attention over a program (format.h).
 *
 * Grid: as many blocks as the device has multiprocessors (layout.cuh says what their warps do). Q
 * and O of a warp's 16 rows stay in registers for the whole unit. All warps that compute walk the
 * ring in order, slot by slot, and take what is theirs; a slot is free again when all have passed
 * it.
 *
 * A row that sees nothing has no destination here; what it gets is written by the merge.
 */
#include "attend.h"
#include "fetch.cuh"
#include "finish.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "merge.cuh"

#if __CUDA_ARCH__ >= 800

__device__ inline void unit_rows(const struct device_attend &a, struct warp_unit &w, uint32_t lane,
				 uint32_t dim)
{
	uint32_t group = a.shape.group, inverse = a.group_inverse, row = lane % DEVICE_BLOCK_ROWS;
	uint32_t token = token_of(w.unit, w.block, row, inverse),
		 q_head = w.head * group + row - (row * inverse >> 16) * group;

	w.token[0] = token_of(w.unit, w.block, lane / 4, inverse);
	w.token[1] = token_of(w.unit, w.block, lane / 4 + 8, inverse);
	w.mine_o = w.mine_lse = 0;
	w.mine_pos = 0;
	w.mine_dest = DEVICE_DEST_NOTHING;
	if (token < w.unit.n_rows) {
		const struct device_row *at = &a.rows[w.unit.row + token];
		uint32_t dest = a.dests[w.unit.dest + token];

		w.mine_pos = at->pos;
		w.mine_o = at->o ? at->o + (uint64_t)q_head * dim * 2 : 0;
		w.mine_lse = at->lse ? at->lse + q_head * 4 : 0;
		w.mine_dest = dest < DEVICE_DEST_NOTHING
				      ? dest * a.shape.n_kv_heads * group + q_head
				      : dest;
	}
}

/* From the part of shared memory that the row block's Q lies in. */
template <uint32_t DIM>
__device__ inline void load_q(uint32_t rows, uint32_t lane, struct warp_state<DIM> &s)
{
	s.rows = rows;
#pragma unroll
	for (uint32_t k = 0; k < DIM / 16 && keeps_q(DIM); k++)
		load_q_columns(s.q[k], rows, DIM * 2, k, lane);
}

/* Here and now, while Q is on its way: left alone, the compiler does it when Q has come. */
template <uint32_t DIM> __device__ inline void clear_state(struct warp_state<DIM> &s)
{
	s.max[0] = s.max[1] = -INFINITY;
	s.sum[0] = s.sum[1] = 0;
#pragma unroll
	for (uint32_t n = 0; n < DIM / 8; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			asm volatile("mov.f32 %0, 0f00000000;" : "=f"(s.o[n][i]));
	}
}

__device__ inline void pass_slot(uint32_t empty, uint32_t lane)
{
	__syncwarp();
	if (lane == 0)
		barrier_arrive(empty);
}

/* As fetch_align. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void compute_align(struct ring<SLOTS> &at, uint32_t base, uint32_t lane)
{
	typedef layout<DIM, SLOTS> in;

	while (at.slot % DEVICE_STAGE_SLOTS) {
		barrier_wait(base + in::full + at.slot * 8, at.parity);
		pass_slot(base + in::empty + at.slot * 8, lane);
		at.step();
	}
}

template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void wait_stage(const struct ring<SLOTS> &at, uint32_t base)
{
	typedef layout<DIM, SLOTS> in;

#pragma unroll
	for (uint32_t j = 0; j < DEVICE_STAGE_SLOTS; j++)
		barrier_wait(base + in::full + (at.slot + j) * 8, at.parity);
}

template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void pass_stage(struct ring<SLOTS> &at, uint32_t base, uint32_t lane)
{
	typedef layout<DIM, SLOTS> in;

	__syncwarp();
	if (lane < DEVICE_STAGE_SLOTS)
		barrier_arrive(base + in::empty + (at.slot + lane) * 8);
	at = next_stage(at);
}

#ifdef WGMMA
/*
 * A run of n stages, each in two halves: while the tensor cores multiply Q with the keys of one
 * half, and the weights of the half before with its values, the weights of the half between are
 * made. n is at least 1, and the loop says so: where wgmma could be under way past a loop that is
 * not entered, the compiler puts all of them one after the other.
 */
template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ inline void fold_run(const struct device_attend &a, const struct warp_unit &w,
				struct ring<SLOTS> &at, char *shared, uint32_t n,
				struct warp_state<DIM> &s)
{
	typedef layout<DIM, SLOTS> in;
	constexpr uint32_t half_bytes = DEVICE_STAGE_SLOTS / 2 * slot_bytes(DIM);
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared);
	half_scores low, high;

	wait_stage<DIM>(at, base);
	start_scores<DTYPE, DIM>(s, low, base + at.slot * slot_bytes(DIM));
	do {
		const struct device_slot *notes =
			(const struct device_slot *)(shared + in::notes) + at.slot;
		uint32_t keys = base + at.slot * slot_bytes(DIM), p[2][HALF_GROUPS / 2][4];
		bool plain = notes->plain_stage >> warp & 1;
		struct ring<SLOTS> next = n > 1 ? next_stage(at) : at;

		start_scores<DTYPE, DIM>(s, high, keys + half_bytes);
		wgmma_wait<1>();
		registers_fence(low);
		weigh_half<DTYPE, DIM>(a, w, low, notes, plain, s, p[0]);
		start_values<DTYPE, DIM>(s, p[0], keys);
		wgmma_wait<0>();
		registers_fence(high);
		registers_fence(s.o);
		if (n > 1) {
			wait_stage<DIM>(next, base);
			start_scores<DTYPE, DIM>(s, low, base + next.slot * slot_bytes(DIM));
		}
		weigh_half<DTYPE, DIM>(a, w, high, notes + DEVICE_STAGE_SLOTS / 2, plain, s, p[1]);
		start_values<DTYPE, DIM>(s, p[1], keys + half_bytes);
		wgmma_wait<0>();
		registers_fence(low);
		registers_fence(s.o);
		pass_stage<DIM>(at, base, lane);
	} while (--n);
}

/* The run that begins here: returns how many slots it has. */
template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ inline uint32_t compute_run_of(const struct device_attend &a, const struct warp_unit &w,
					  struct ring<SLOTS> &at, char *shared,
					  const struct device_slot *note, struct warp_state<DIM> &s)
{
	uint32_t run = note->run, base = shared_address(shared);

	if (note->warps >> threadIdx.x / 32 & 1) {
		fold_run<DTYPE, DIM, SLOTS>(a, w, at, shared, run, s);
		return run * DEVICE_STAGE_SLOTS;
	}
	for (uint32_t i = 0; i < run; i++) {
		wait_stage<DIM>(at, base);
		pass_stage<DIM>(at, base, threadIdx.x % 32);
	}
	return run * DEVICE_STAGE_SLOTS;
}
#endif

template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ inline void compute_slots(const struct device_attend &a, const struct warp_unit &w,
				     struct ring<SLOTS> &at, char *shared,
				     struct warp_state<DIM> &s)
{
	typedef layout<DIM, SLOTS> in;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared),
		 i = 0;

	while (i < w.unit.n_slots) {
		const struct device_slot *note =
			(const struct device_slot *)(shared + in::notes) + at.slot;
		uint32_t marks;

		barrier_wait(base + in::full + at.slot * 8, at.parity);
		/* plain, wide and causal with them: one load in place of four */
		marks = *(const uint32_t *)&note->warps;
#ifdef WGMMA
		if constexpr (DIM <= 128) {
			if (marks >> 16 & 0xff) {
				i += compute_run_of<DTYPE, DIM, SLOTS>(a, w, at, shared, note, s);
				continue;
			}
		}
#endif
		if (marks >> warp & 1)
			fold_slot<DTYPE, DIM>(a, w, base + at.slot * slot_bytes(DIM), note,
					      marks >> (8 + warp) & 1, lane, s);
		pass_slot(base + in::empty + at.slot * 8, lane);
		at.step();
		i++;
	}
}

template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ inline void compute_unit(const struct device_attend &a, const struct work &work,
				    char *shared, struct ring<SLOTS> &at, uint32_t index)
{
	typedef layout<DIM, SLOTS> in;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared);
	struct warp_unit w = {work.unit, work.head};
	struct warp_state<DIM> s;

	if (index == 0)
		q_first<DIM, SLOTS>(a, work, shared);
	w.block = warp & ((1u << w.unit.blocks_log2) - 1);
	w.split = warp >> w.unit.blocks_log2;
	w.n_splits = DEVICE_WARPS >> w.unit.blocks_log2;
	unit_rows(a, w, lane, DIM);
	clear_state(s);
	if (index == 0) {
		copy_wait();
		named_barrier(COMPUTE_BARRIER, DEVICE_WARPS * 32);
	} else {
		barrier_wait(base + in::rows_full, (index - 1) & 1);
	}
	load_q<DIM>(base + in::rows + w.block * in::rows_stride, lane, s);
	if (w.n_splits == 1 && keeps_q(DIM))
		pass_slot(base + in::rows_empty, lane);
	if (w.unit.flags & DEVICE_UNIT_WIDE)
		compute_align<DIM, SLOTS>(at, base, lane);
	compute_slots<DTYPE, DIM, SLOTS>(a, w, at, shared, s);
	sum_quads(s);
	if (w.n_splits == 1) {
		finish_alone<DTYPE, DIM>(a, w, lane, s);
		if (!keeps_q(DIM))
			pass_slot(base + in::rows_empty, lane);
		return;
	}
	finish_shared<DTYPE, DIM, in::rows_stride>(a, w, shared + in::rows,
						   (struct warp_sums *)(shared + in::sums), warp,
						   lane, s);
	pass_slot(base + in::rows_empty, lane);
}

template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ void compute_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> in;
	uint32_t base = shared_address(shared);
	struct ring<SLOTS> at = {
		0, 0
	};
	work_ring from = {0, 0};

	for (uint32_t index = 0;; from.step(), index++) {
		struct work work;

		barrier_wait(base + in::work_full + from.slot * 8, from.parity);
		work = ((const struct work *)(shared + in::work))[from.slot];
		pass_slot(base + in::work_empty + from.slot * 8, threadIdx.x % 32);
		if (work.unit.blocks_log2 == DEVICE_NONE)
			return;
		compute_unit<DTYPE, DIM, SLOTS>(a, work, shared, at, index);
	}
}

/* By the threads that compute. Reading a program is a chain of misses. */
__device__ inline void prefetch_program(const struct device_attend &a)
{
	constexpr uint32_t n = DEVICE_WARPS * 32;

	prefetch(a.slots, (uint64_t)a.n_slots * sizeof(*a.slots), threadIdx.x, n);
	prefetch(a.sources, (uint64_t)a.n_slots * sizeof(*a.sources), threadIdx.x, n);
	prefetch(a.dests, (uint64_t)a.n_dests * sizeof(*a.dests), threadIdx.x, n);
	prefetch(a.units, (uint64_t)a.n_units * sizeof(*a.units), threadIdx.x, n);
	prefetch(a.firsts, (uint64_t)a.n_units * DEVICE_FIRST_SLOTS * sizeof(*a.firsts),
		 threadIdx.x, n);
	prefetch(a.merges, (uint64_t)a.n_merges * sizeof(*a.merges), threadIdx.x, n);
}

/* By a thread of each warp that does not fetch: those of one warp would wait for each other at
 * every barrier. */
template <uint32_t DIM, uint32_t SLOTS> __device__ inline void init_barriers(char *shared)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(shared), first = threadIdx.x / 32;

	if (!elected())
		return;
	first -= first > DEVICE_WARPS;
	for (uint32_t i = first; i < SLOTS; i += WARPS - 1) {
		barrier_init(base + at::full + i * 8, LARGE ? 1 : 32);
		barrier_init(base + at::empty + i * 8, DEVICE_WARPS);
	}
	if (first < WORK_SLOTS) {
		barrier_init(base + at::work_full + first * 8, 1);
		barrier_init(base + at::work_empty + first * 8, DEVICE_WARPS + Q_WARPS);
	}
	if (first == WORK_SLOTS) {
		barrier_init(base + at::rows_full, Q_WARPS * 32);
		barrier_init(base + at::rows_empty, DEVICE_WARPS);
	}
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
#endif

template <typename DTYPE, uint32_t DIM>
__global__ void __launch_bounds__(THREADS, 1)
	attend_kernel(const __grid_constant__ struct device_attend a)
{
#if __CUDA_ARCH__ >= 800
	constexpr uint32_t slots = ring_slots(DIM, LARGE);
	extern __shared__ __align__(1024) char shared[];
	struct entry first;

	if (threadIdx.x / 32 == DEVICE_WARPS)
		/* on its way while the block makes itself ready */
		first = read_entry(a, blockIdx.x, threadIdx.x % 32);
	else
		init_barriers<DIM, slots>(shared);
	__syncthreads();
	if (threadIdx.x < DEVICE_WARPS * 32) {
		registers_more<COMPUTE_REGISTERS>();
		/* which was there before the launch that brings rows and tokens */
		prefetch_program(a);
		launch_wait();
		launch_next();
		compute_run<DTYPE, DIM, slots>(a, shared);
	} else {
		registers_less<FETCH_REGISTERS>();
		if (threadIdx.x < (DEVICE_WARPS + 1) * 32)
			fetch_run<DIM, slots>(a, shared, first);
		else
			q_run<DIM, slots>(a, shared);
	}
#endif
}

/* ---- host ----------------------------------------------------------------------------------- */

typedef void (*attend_function)(struct device_attend);

static attend_function find_kernel(uint32_t dim, bool bf16)
{
	switch (dim) {
	case 64:
		return bf16 ? attend_kernel<dtype_bf16, 64> : attend_kernel<dtype_half, 64>;
	case 128:
		return bf16 ? attend_kernel<dtype_bf16, 128> : attend_kernel<dtype_half, 128>;
	default:
		return bf16 ? attend_kernel<dtype_bf16, 256> : attend_kernel<dtype_half, 256>;
	}
}

static uint32_t large_bytes(uint32_t dim)
{
	return dim == 64    ? layout<64, ring_slots(64, true)>::bytes
	       : dim == 128 ? layout<128, ring_slots(128, true)>::bytes
			    : layout<256, ring_slots(256, true)>::bytes;
}

static uint32_t small_bytes(uint32_t dim)
{
	return dim == 64    ? layout<64, ring_slots(64, false)>::bytes
	       : dim == 128 ? layout<128, ring_slots(128, false)>::bytes
			    : layout<256, ring_slots(256, false)>::bytes;
}

/* By dtype and dim, of device_attend_init: of shared memory; and the devices that have been told, a
 * bit each. */
static uint32_t known_bytes[2][3];
static uint64_t told[2][3];

static uint32_t *known(uint32_t dim, bool bf16)
{
	return &known_bytes[bf16][dim == 64 ? 0 : dim == 128 ? 1 : 2];
}

extern "C" int device_attend_init(uint32_t head_dim, bool bf16)
{
	uint64_t *on = &told[bf16][head_dim == 64 ? 0 : head_dim == 128 ? 1 : 2], bit;
	int device = 0;
	uint32_t bytes = 0;
	enum code code;
	int r = cudaGetDevice(&device);

	bit = UINT64_C(1) << device % 64;
	if (__atomic_load_n(on, __ATOMIC_ACQUIRE) & bit)
		return r;
	if (r == cudaSuccess)
		r = device_find_code(&code);
	if (r == cudaSuccess)
		bytes = code == CODE_WGMMA ? large_bytes(head_dim) : small_bytes(head_dim);
	if (r == cudaSuccess)
		r = cudaFuncSetAttribute((const void *)find_kernel(head_dim, bf16),
					 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	if (r == cudaSuccess)
		*known(head_dim, bf16) = bytes;
	if (r == cudaSuccess)
		__atomic_fetch_or(on, bit, __ATOMIC_RELEASE);
	return r;
}

extern "C" int device_attend(const struct device_attend *attend, struct launch_to to)
{
	struct device_attend with = *attend;
	struct launch_shape shape = {0, THREADS, *known(with.shape.head_dim, with.shape.bf16)};

	with.entry_divisor = with.head_units ? with.head_units : with.shape.n_kv_heads;
	with.entry_inverse = with.entry_divisor == 1
				     ? UINT32_MAX
				     : (uint32_t)((UINT64_C(1) << 32) / with.entry_divisor);
	with.group_inverse = 65536 / with.shape.group + 1;
	with.n_entries = with.n_units * (with.head_units ? 1 : with.shape.n_kv_heads);
	shape.n_blocks = with.n_entries < with.n_blocks ? with.n_entries : with.n_blocks;
	return launch_early(find_kernel(with.shape.head_dim, with.shape.bf16), &with, shape, to);
}

typedef void (*merge_function)(struct device_attend);

static merge_function find_merge(uint32_t dim, bool bf16)
{
	switch (dim) {
	case 64:
		return bf16 ? merge_kernel<dtype_bf16, 2> : merge_kernel<dtype_half, 2>;
	case 128:
		return bf16 ? merge_kernel<dtype_bf16, 4> : merge_kernel<dtype_half, 4>;
	default:
		return bf16 ? merge_kernel<dtype_bf16, 8> : merge_kernel<dtype_half, 8>;
	}
}

extern "C" int device_merge(const struct device_attend *attend, struct launch_to to)
{
	uint64_t n_warps =
		(uint64_t)attend->n_merges * attend->shape.n_kv_heads * attend->shape.group
		<< attend->merge_warps_log2;
	struct launch_shape shape = {(uint32_t)((n_warps + MERGE_WARPS - 1) / MERGE_WARPS),
				     MERGE_WARPS * 32, 0};

	return n_warps ? launch_early(find_merge(attend->shape.head_dim, attend->shape.bf16),
				      attend, shape, to)
		       : (int)cudaSuccess;
}
