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
	w.mine_head = q_head + first_head_of(a.shape, w.work_tile.row + token);
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
			zero_now(s.o[n][i]);
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
/* Half a wide tile further. */
template <uint32_t SLOTS> __device__ inline struct ring<SLOTS> next_half(struct ring<SLOTS> at) {
	at.slot += HALF_KV_TILES;
	if (at.slot == SLOTS)
		return (struct ring<SLOTS>){0, at.parity ^ 1};
	return at;
}

/* Is all of half a wide tile there? */
template <typename T>
__device__ inline bool half_there(const struct ring<T::slots> &at, uint32_t base)
{
	static_assert(HALF_KV_TILES == 2, "barriers_test asks for so many");
	return barriers_test(base + layout<T>::full + at.slot * 8, at.parity);
}

template <typename T>
__device__ inline void wait_half(const struct ring<T::slots> &at, uint32_t base)
{
	typedef layout<T> in;

#pragma unroll
	for (uint32_t j = 0; j < HALF_KV_TILES; j++)
		barrier_wait(base + in::full + (at.slot + j) * 8, at.parity);
}

template <typename T>
__device__ inline void pass_half(const struct ring<T::slots> &at, uint32_t base, uint32_t lane)
{
	__syncwarp();
	if (lane < HALF_KV_TILES)
		barrier_arrive(base + layout<T>::empty + (at.slot + lane) * 8);
}

/* Two halves of a run, for a warp's rows. */
template <typename T> struct run_at {
	const struct device_attend &a;
	const struct warp_tile &w;
	uint32_t base; /* of shared memory */
	const struct device_kv_tile *metas; /* of the ring */
	struct ring<T::slots> now, next;

	__device__ void step()
	{
		now = next;
		next = next_half(next);
	}
};

/* Weights of a run's halves. */
struct run_weights {
	const half_weights &now; /* of the half at now */
	half_weights &next; /* to be made */
};

/*
 * Of a run: the products of the keys of the half at next and of the values of the one at now go one
 * behind the other; while the latter are made, so are the next one's weights. Whether the half
 * behind it is there is asked long before the answer is needed (there, both times), if there is one
 * (more). Nothing is under way when this returns: the compiler puts products that are from one time
 * round a loop to the next one after the other.
 */
template <typename T>
__device__ inline void fold_half(const struct run_at<T> &run, bool more, bool &there,
				 struct warp_state<T> &s, const struct run_weights &p)
{
	half_scores scores;
	float sum[2];

	if (!there)
		wait_half<T>(run.next, run.base);
	start_scores<T>(s, run.base + run.next.slot * T::kv_tile_bytes, scores);
	start_values<T>(s, p.now, run.base + run.now.slot * T::kv_tile_bytes);
	wgmma_wait<1>();
	registers_fence(scores);
	there = more && half_there<T>(next_half(run.next), run.base);
	mask_half<T>(run.a, run.w, scores, run.metas, run.next.slot);
	weigh_half<T>(run.a, scores, s, sum, p.next);
	/* a branch that hangs on all weights: else the compiler would wait before them */
	if (weights_amiss(sum)) {
		wgmma_wait<0>();
		registers_fence(s.o);
		weigh_anew<T>(run.a, scores, s, sum, p.next);
	}
	wgmma_wait<0>();
	registers_fence(s.o);
	pass_half<T>(run.now, run.base, threadIdx.x % 32);
	s.sum[0] += sum[0];
	s.sum[1] += sum[1];
}

/* The first half of a run. */
template <typename T>
__device__ inline void begin_run(const struct run_at<T> &run, struct warp_state<T> &s,
				 half_weights &ret_p)
{
	half_scores scores;
	float sum[2];

	wait_half<T>(run.now, run.base);
	start_scores<T>(s, run.base + run.now.slot * T::kv_tile_bytes, scores);
	wgmma_wait<0>();
	registers_fence(scores);
	mask_half<T>(run.a, run.w, scores, run.metas, run.now.slot);
	weigh_anew<T>(run.a, scores, s, sum, ret_p);
	s.sum[0] += sum[0];
	s.sum[1] += sum[1];
}

/* A run of n wide tiles, half by half; the ring goes on at run.next. */
template <typename T>
__device__ inline void fold_run(struct run_at<T> &run, uint32_t n, struct warp_state<T> &s)
{
	half_weights first, second;
	bool there = false;

	begin_run<T>(run, s, first);
	for (;;) {
		fold_half<T>(run, n > 1, there, s, {first, second});
		run.step();
		if (--n == 0)
			break;
		fold_half<T>(run, true, there, s, {second, first});
		run.step();
	}
	start_values<T>(s, second, run.base + run.now.slot * T::kv_tile_bytes);
	wgmma_wait<0>();
	registers_fence(s.o);
	pass_half<T>(run.now, run.base, threadIdx.x % 32);
}

/* Passes a run of n wide tiles, which others fold. */
template <typename T>
__device__ inline void pass_run(struct ring<T::slots> &at, uint32_t base, uint32_t n)
{
	for (n *= 2; n; n--, at = next_half(at)) {
		wait_half<T>(at, base);
		pass_half<T>(at, base, threadIdx.x % 32);
	}
}

/* The run that begins here, at the work tile's KV tile i: returns how many KV tiles it has. */
template <typename T>
__device__ inline uint32_t compute_run_of(const struct device_attend &a, const struct warp_tile &w,
					  uint32_t i, struct ring<T::slots> &at, char *shared,
					  struct warp_state<T> &s)
{
	const struct device_kv_tile *metas =
		(const struct device_kv_tile *)(shared + layout<T>::metas);
	struct run_at<T> run = {
		a, w, shared_address(shared), metas, at, next_half(at)
	};
	uint32_t n = device_run_at(&w.work_tile, i, metas[at.slot].run);

	if (metas[at.slot].warps >> threadIdx.x / 32 & 1) {
		fold_run<T>(run, n, s);
		at = run.next;
	} else {
		pass_run<T>(at, run.base, n);
	}
	return n * DEVICE_WIDE_KV_TILES;
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
				i += compute_run_of<T>(a, w, i, at, shared, s);
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
		named_barrier(COMPUTE_BARRIER, DEVICE_WARPS * 32);
	} else {
		barrier_wait(base + in::rows_full, (index - 1) & 1);
	}
	load_q<T>(base + in::rows + w.block * T::rows_stride, lane, s);
	if (w.n_splits == 1 && T::keeps_q)
		pass_slot(base + in::rows_empty, lane);
	if (w.work_tile.flags & DEVICE_WORK_TILE_WIDE)
		compute_align<T>(at, base, lane);
	CLOCK_MARK(a, CLOCK_Q, 0);
	compute_kv_tiles<T>(a, w, at, shared, s);
	CLOCK_MARK(a, CLOCK_FOLDED, 0);
	sum_quads(s);
	if (w.n_splits == 1) {
		if (!T::keeps_q)
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
	fence_barriers();
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

#endif
