/*
 * attend_kernel.cuh - attention over a schedule (format.h).
 *
 * Grid: as many blocks as the device has multiprocessors (layout.cuh says what their warps do). Q
 * and O of a warp's 16 rows stay in registers for the whole work tile. All warps that compute walk
 * the ring in order, KV tile by KV tile, and take what is theirs; a KV tile is free again when all
 * have passed it.
 *
 * A row that sees nothing has no destination here; what it gets is written by the merge.
 */
#ifndef COPPICE_CUDA_ATTEND_KERNEL_CUH
#define COPPICE_CUDA_ATTEND_KERNEL_CUH

#include "clocks.cuh"
#include "fetch.cuh"
#include "finish.cuh"
#include "kernels/cuda/device/launch.cuh"

#if __CUDA_ARCH__ >= 800

__device__ inline void work_tile_rows(const struct device_attend &a, struct warp_tile &w,
				      uint32_t lane, uint32_t dim)
{
	uint32_t heads = a.shape.row_heads, inverse = a.heads_inverse;
	uint32_t row = lane % DEVICE_BLOCK_ROWS,
		 token = token_of(w.work_tile, w.block, row, inverse);
	uint32_t head = row - (row * inverse >> 16) * heads;
	uint32_t q_head = w.head * a.shape.group + head;

	w.token[0] = token_of(w.work_tile, w.block, lane / 4, inverse);
	w.token[1] = token_of(w.work_tile, w.block, lane / 4 + 8, inverse);
	w.mine_o = w.mine_lse = 0;
	w.mine_pos = 0;
	w.mine_dest = DEVICE_DEST_NOTHING;
	if (token < w.work_tile.n_rows) {
		const struct device_row *at = &a.rows[w.work_tile.row + token];
		uint32_t dest = a.dests[w.work_tile.dest + token];

		w.mine_pos = at->pos;
		w.mine_o = at->o ? at->o + (uint64_t)q_head * dim * 2 : 0;
		w.mine_lse = at->lse ? at->lse + q_head * 4 : 0;
		w.mine_dest = dest < DEVICE_DEST_NOTHING
				      ? (dest * a.shape.n_kv_heads + w.head) * heads + head
				      : dest;
	}
}

/* From the part of shared memory that the row block's Q lies in. */
template <typename T>
__device__ inline void load_q(uint32_t rows, uint32_t lane, struct warp_state<T> &s)
{
	s.rows = rows;
#pragma unroll
	for (uint32_t k = 0; k < T::qk / 16 && T::keeps_q; k++)
		load_q_columns<T>(s.q[k], rows, k, lane);
}

/* Here and now, while Q is on its way: left alone, the compiler does it when Q has come. */
template <typename T> __device__ inline void clear_state(struct warp_state<T> &s)
{
	s.max[0] = s.max[1] = -INFINITY;
	s.sum[0] = s.sum[1] = 0;
#pragma unroll
	for (uint32_t n = 0; n < T::v / 8; n++) {
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
template <typename T>
__device__ inline void compute_align(struct ring<T::slots> &at, uint32_t base, uint32_t lane)
{
	typedef layout<T> in;

	while (at.slot % DEVICE_WIDE_KV_TILES) {
		barrier_wait(base + in::full + at.slot * 8, at.parity);
		pass_slot(base + in::empty + at.slot * 8, lane);
		at.step();
	}
}

#ifdef WGMMA
/* Is all of it there? */
template <typename T>
__device__ inline bool wide_tile_there(const struct ring<T::slots> &at, uint32_t base)
{
	static_assert(DEVICE_WIDE_KV_TILES == 4, "barriers_test asks for so many");
	return barriers_test(base + layout<T>::full + at.slot * 8, at.parity);
}

template <typename T>
__device__ inline void wait_wide_tile(const struct ring<T::slots> &at, uint32_t base)
{
	typedef layout<T> in;

#pragma unroll
	for (uint32_t j = 0; j < DEVICE_WIDE_KV_TILES; j++)
		barrier_wait(base + in::full + (at.slot + j) * 8, at.parity);
}

template <typename T>
__device__ inline void pass_wide_tile(const struct ring<T::slots> &at, uint32_t base, uint32_t lane)
{
	__syncwarp();
	if (lane < DEVICE_WIDE_KV_TILES)
		barrier_arrive(base + layout<T>::empty + (at.slot + lane) * 8);
}

/*
 * A run of n wide tiles. The products of a tile's values and of the next one's keys go one behind
 * the other; while weights are made between them, the other warp group has the tensor cores. The
 * values' come first: the tile's place is free then. Whether the next one is there is asked long
 * before the answer is needed. Nothing is under way from one time round to the next, which the
 * compiler would put one after the other.
 */
template <typename T>
__device__ inline void fold_run(const struct device_attend &a, const struct warp_tile &w,
				struct ring<T::slots> &at, char *shared, uint32_t n,
				struct warp_state<T> &s)
{
	typedef layout<T> in;
	const struct device_kv_tile *metas = (const struct device_kv_tile *)(shared + in::metas);
	uint32_t lane = threadIdx.x % 32, base = shared_address(shared);
	uint32_t rows = base + in::rows + w.block / 4 * 4 * T::rows_stride;
	wide_scores scores;

	wait_wide_tile<T>(at, base);
	start_scores<T>(rows, base + at.slot * T::kv_tile_bytes, scores);
	wgmma_wait<0>();
	registers_fence(scores);
	do {
		struct ring<T::slots> now = at;
		wide_weights p;
		bool there;

		at = next_wide_tile(at);
		there = n == 1 || wide_tile_there<T>(at, base);
		weigh_wide<T>(a, w, scores, metas + now.slot, s, p);
		if (!there)
			wait_wide_tile<T>(at, base);
		start_values<T>(s, p, base + now.slot * T::kv_tile_bytes);
		if (n > 1) {
			start_scores<T>(rows, base + at.slot * T::kv_tile_bytes, scores);
			wgmma_wait<1>();
		} else {
			wgmma_wait<0>();
		}
		registers_fence(s.o);
		pass_wide_tile<T>(now, base, lane);
		wgmma_wait<0>();
		registers_fence(scores);
	} while (--n);
	/* whose registers were the scores' */
	load_q<T>(s.rows, lane, s);
}

/* The run that begins here: returns how many KV tiles it has. */
template <typename T>
__device__ inline uint32_t compute_run_of(const struct device_attend &a, const struct warp_tile &w,
					  struct ring<T::slots> &at, char *shared,
					  const struct device_kv_tile *meta,
					  struct warp_state<T> &s)
{
	uint32_t run = meta->run, base = shared_address(shared);

	if (meta->warps >> threadIdx.x / 32 & 1) {
		fold_run<T>(a, w, at, shared, run, s);
		return run * DEVICE_WIDE_KV_TILES;
	}
	for (uint32_t i = 0; i < run; i++) {
		wait_wide_tile<T>(at, base);
		pass_wide_tile<T>(at, base, threadIdx.x % 32);
		at = next_wide_tile(at);
	}
	return run * DEVICE_WIDE_KV_TILES;
}
#endif

template <typename T>
__device__ inline void compute_kv_tiles(const struct device_attend &a, const struct warp_tile &w,
					struct ring<T::slots> &at, char *shared,
					struct warp_state<T> &s)
{
	typedef layout<T> in;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared),
		 i = 0;

	while (i < w.work_tile.n_kv_tiles) {
		const struct device_kv_tile *meta =
			(const struct device_kv_tile *)(shared + in::metas) + at.slot;
		uint32_t marks;

		barrier_wait(base + in::full + at.slot * 8, at.parity);
		CLOCK_MARK(a, CLOCK_KV, 0);
		/* plain, wide and causal with them: one load in place of four */
		marks = *(const uint32_t *)&meta->warps;
#ifdef WGMMA
		if constexpr (T::takes_wide) {
			if (marks >> 16 & 0xff) {
				i += compute_run_of<T>(a, w, at, shared, meta, s);
				continue;
			}
		}
#endif
		if (marks >> warp & 1)
			fold_kv_tile<T>(a, w,
					{base + at.slot * T::kv_tile_bytes, meta,
					 (bool)(marks >> (8 + warp) & 1)},
					s);
		pass_slot(base + in::empty + at.slot * 8, lane);
		at.step();
		i++;
	}
}

template <typename T>
__device__ inline void compute_work_tile(const struct device_attend &a, const struct work &work,
					 char *shared, struct ring<T::slots> &at, uint32_t index)
{
	typedef layout<T> in;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared);
	struct warp_tile w = {work.work_tile, work.head};
	bool wide = w.work_tile.flags & DEVICE_WORK_TILE_WIDE;
	struct warp_state<T> s;

	if (index == 0)
		q_first<T>(a, work, shared);
	w.block = warp & ((1u << w.work_tile.blocks_log2) - 1);
	w.split = warp >> w.work_tile.blocks_log2;
	w.n_splits = DEVICE_WARPS >> w.work_tile.blocks_log2;
	work_tile_rows(a, w, lane, T::v);
	clear_state(s);
	if (index == 0) {
		copy_wait();
		fence_async();
		named_barrier(COMPUTE_BARRIER, DEVICE_WARPS * 32);
	} else {
		barrier_wait(base + in::rows_full, (index - 1) & 1);
		fence_async();
	}
	load_q<T>(base + in::rows + w.block * T::rows_stride, lane, s);
	if (w.n_splits == 1 && T::keeps_q && !wide)
		pass_slot(base + in::rows_empty, lane);
	if (wide)
		compute_align<T>(at, base, lane);
	CLOCK_MARK(a, CLOCK_Q, 0);
	compute_kv_tiles<T>(a, w, at, shared, s);
	CLOCK_MARK(a, CLOCK_FOLDED, 0);
	sum_quads(s);
	if (w.n_splits == 1) {
		if (!T::keeps_q || wide)
			pass_slot(base + in::rows_empty, lane);
		finish_alone<T>(a, w, lane, s);
		return;
	}
	finish_shared<T>(a, w, shared, s);
	pass_slot(base + in::rows_empty, lane);
}

template <typename T> __device__ void compute_run(const struct device_attend &a, char *shared)
{
	typedef layout<T> in;
	uint32_t base = shared_address(shared);
	struct ring<T::slots> at = {
		0, 0
	};
	work_ring from = {0, 0};

	for (uint32_t index = 0;; from.step(), index++) {
		struct work work;

		barrier_wait(base + in::work_full + from.slot * 8, from.parity);
		work = ((const struct work *)(shared + in::work))[from.slot];
		pass_slot(base + in::work_empty + from.slot * 8, threadIdx.x % 32);
		if (work.work_tile.blocks_log2 == DEVICE_NONE) {
			CLOCK_MARK(a, CLOCK_END, 0);
			return;
		}
		CLOCK_MARK(a, CLOCK_TILE, 0);
		compute_work_tile<T>(a, work, shared, at, index);
		CLOCK_MARK(a, CLOCK_WRITTEN, 0);
	}
}

/* By the threads that compute. Reading a schedule is a chain of misses. */
__device__ inline void prefetch_schedule(const struct device_attend &a)
{
	constexpr uint32_t n = DEVICE_WARPS * 32;

	prefetch(a.kv_tiles, (uint64_t)a.n_kv_tiles * sizeof(*a.kv_tiles), threadIdx.x, n);
	prefetch(a.sources, (uint64_t)a.n_kv_tiles * sizeof(*a.sources), threadIdx.x, n);
	prefetch(a.dests, (uint64_t)a.n_dests * sizeof(*a.dests), threadIdx.x, n);
	prefetch(a.work_tiles, (uint64_t)a.n_work_tiles * sizeof(*a.work_tiles), threadIdx.x, n);
	prefetch(a.firsts, (uint64_t)a.n_work_tiles * DEVICE_FIRST_KV_TILES * sizeof(*a.firsts),
		 threadIdx.x, n);
	prefetch(a.merges, (uint64_t)a.n_merges * sizeof(*a.merges), threadIdx.x, n);
}

/* By a thread of each warp that does not fetch: those of one warp would wait for each other at
 * every barrier. */
template <typename T> __device__ inline void init_barriers(char *shared)
{
	typedef layout<T> at;
	uint32_t base = shared_address(shared), first = threadIdx.x / 32;

	if (!elected())
		return;
	first -= first > DEVICE_WARPS;
	for (uint32_t i = first; i < T::slots; i += WARPS - 1) {
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

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
	attend_kernel(const __grid_constant__ struct device_attend a)
{
#if __CUDA_ARCH__ >= 800
	extern __shared__ __align__(1024) char shared[];
	struct entry first;

	CLOCK_MARK(a, CLOCK_BEGIN, 0);
	if (threadIdx.x / 32 == DEVICE_WARPS)
		/* on its way while the block makes itself ready */
		first = read_entry(a, blockIdx.x, threadIdx.x % 32);
	else
		init_barriers<T>(shared);
	__syncthreads();
	if (threadIdx.x < DEVICE_WARPS * 32) {
		registers_more<COMPUTE_REGISTERS>();
		/* which was there before the launch that brings rows and tokens */
		prefetch_schedule(a);
		launch_wait();
		launch_next();
		compute_run<T>(a, shared);
	} else {
		registers_less<FETCH_REGISTERS>();
		if (threadIdx.x < (DEVICE_WARPS + 1) * 32)
			fetch_run<T>(a, shared, first);
		else
			q_run<T>(a, shared);
	}
#endif
}

typedef void (*attend_function)(struct device_attend);

/* The kernel of a variant. */
template <typename VARIANT> static attend_function attend_find(uint32_t dim, bool bf16)
{
	return for_shape(dim, bf16, [](auto type, auto dim) -> attend_function {
		typedef typename decltype(type)::type dtype;

		return attend_kernel<kernel_traits<dtype, dim.value, dim.value, VARIANT>>;
	});
}

/* attend_bounded.cu: that of rows with a first position that they see. */
attend_function attend_find_bounded(uint32_t dim, bool bf16);

#endif
