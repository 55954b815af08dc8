/*
 * fetch.cuh - the warps that fetch. One draws entries, longest first, and runs ahead of those that
 * compute by a ring of KV tiles; three bring Q of the next work tile's rows as soon as the place is
 * free. (The first work tile's Q is brought by those who wait for it.) What the launch before this
 * one writes is waited for no sooner than needed: KV of old tokens is under way by then.
 */
#ifndef COPPICE_CUDA_FETCH_CUH
#define COPPICE_CUDA_FETCH_CUH

#include "layout.cuh"
#include "proto/arith.h"

#if __CUDA_ARCH__ >= 800

/* The blocks together bring what they will read in small pieces into the second-level cache. */
__device__ inline void prefetch(const void *from, uint64_t bytes, uint32_t thread,
				uint32_t n_threads)
{
	uint32_t i = thread * gridDim.x + blockIdx.x, n = (uint32_t)ceil_div_u64(bytes, 128),
		 step = n_threads * gridDim.x;

#pragma unroll 1
	for (; i < n; i += step)
		announce((const char *)from + i * 128ull);
}

#define PREFETCH_ROWS 256u
/* Where a block has fewer work tiles than so many, it draws the next as it comes to the last KV
 * tiles of the one before, so that who is slow draws late. Where it has more, a work tile sooner:
 * long prefill is 9 % faster so (NOTES.md). */
#define LATE_WAVES 6u

template <typename T> struct fetch {
	const struct device_attend *a;
	char *shared;
	uint32_t lane;
	struct ring<T::slots> at;
	bool again; /* the ring has been gone round */
	bool begun; /* something was asked for */
	uint32_t early; /* KV tiles that may still be asked for before the first work tile's Q is */
	bool waited; /* the launch before has ended: tickets are this one's */
	bool draws; /* the next ticket is to be drawn, once they are */
	bool late; /* with a work tile's last KV tiles, not with its first (LATE_WAVES) */
	uint32_t next; /* the ticket; of the first lane alone */

	__device__ void step(uint32_t n)
	{
		struct ring<T::slots> next = at.ahead(n);

		again = again || next.parity != at.parity;
		at = next;
	}
};

/* Bit j: KV block j is there. */
__device__ inline uint32_t kv_blocks_there(const uint4 &source)
{
	return (source.x != DEVICE_NONE) | (source.y != DEVICE_NONE) << 1 |
	       (source.z != DEVICE_NONE) << 2 | (source.w != DEVICE_NONE) << 3;
}

/* Where KV blocks of a KV tile are missing for the first time, shared memory holds anything; 0 x
 * NaN is NaN. */
template <typename T>
__device__ inline void clear_missing(char *slot, uint32_t there, uint32_t lane)
{
#pragma unroll 1
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
#pragma unroll 1
		for (uint32_t i = lane; !(there >> j & 1) && i < T::value_bytes / 16; i += 32)
			((uint4 *)(slot + j * T::kv_block_bytes + T::key_bytes))[i] =
				make_uint4(0, 0, 0, 0);
	}
	fence_async();
	__syncwarp();
}

#define NO_LIMIT UINT32_MAX

/* The next ticket, of which no more than n_entries are drawn. An atomicAdd would become one for the
 * whole warp, which waits for the answer at once. */
__device__ inline uint32_t draw(const struct device_attend &a)
{
	return gridDim.x + atomicInc(&a.ticket[0], a.n_entries);
}

/* Now, or once the launch before has ended; which is over at once where it was waited for. */
template <typename T> __device__ inline void draw_next(struct fetch<T> &f)
{
	const struct device_attend &a = *f.a;

	f.draws = !f.waited;
	if (f.draws)
		return;
	launch_wait();
	f.next = a.n_entries > gridDim.x && f.lane == 0 ? draw(a) : a.n_entries;
}

/* What is asked for first comes first, and nothing can begin without Q: a ring full of KV would be
 * before it. Q is there once the launch before has ended: KV that is old was asked for without
 * waiting, a ticket is drawn behind the wait. */
template <typename T> __device__ inline void await_q(struct fetch<T> &f)
{
	named_barrier(FIRST_Q_BARRIER, (DEVICE_WARPS + 1) * 32);
	f.early = NO_LIMIT;
	f.waited = true;
	if (f.draws)
		draw_next(f);
}

#if __CUDA_ARCH__ >= 900
/* How many of these KV blocks lie side by side, from the first on. */
template <typename T> __device__ inline uint32_t run_of(const uint4 &source)
{
	constexpr uint32_t step = T::kv_block_bytes / KV_SOURCE_BYTES;

	return source.y != source.x + step	 ? 1
	       : source.z != source.x + 2 * step ? 2
	       : source.w != source.x + 3 * step ? 3
						 : 4;
}

/* Metas of KV tiles one behind the other, that come by one copy. */
struct meta_run {
	const struct device_kv_tile *first;
	uint32_t n; /* 0: none is to come */
};

/* The lane's KV tile: its KV blocks, run by run, and metas from its own on: all walk the ring in
 * order, so who comes to a KV tile has waited for those before it. The barrier knows how much
 * comes. */
template <typename T>
__device__ inline void fetch_copy(uint32_t base, uint32_t slot, const char *head, uint4 source,
				  struct meta_run metas)
{
	typedef layout<T> at;
	constexpr uint32_t kv_block_bytes = T::kv_block_bytes;
	constexpr uint32_t meta_size = sizeof(*metas.first);
	uint32_t full = base + at::full + slot * 8, meta_bytes = metas.n * meta_size;
	uint32_t to = base + slot * T::kv_tile_bytes, end = to + T::kv_tile_bytes;

	barrier_expect(full, __popc(kv_blocks_there(source)) * kv_block_bytes + meta_bytes);
#pragma unroll 1
	while (to < end) {
		uint32_t run = run_of<T>(source);

		if (source.x == DEVICE_NONE)
			run = 1;
		else
			bulk_copy(to, head + (uint64_t)source.x * KV_SOURCE_BYTES,
				  run * kv_block_bytes, full);
		to += run * kv_block_bytes;
		source = run == 1   ? make_uint4(source.y, source.z, source.w, DEVICE_NONE)
			 : run == 2 ? make_uint4(source.z, source.w, DEVICE_NONE, DEVICE_NONE)
				    : make_uint4(source.w, DEVICE_NONE, DEVICE_NONE, DEVICE_NONE);
	}
	if (metas.n)
		bulk_copy(base + at::metas + slot * meta_size, metas.first, meta_bytes, full);
}

/* KV tiles of these lanes, which nothing was ever copied to. */
template <typename T>
__device__ inline void clear_slots(char *shared, uint32_t lanes, uint32_t slot, uint32_t there,
				   uint32_t lane)
{
	for (; lanes; lanes &= lanes - 1) {
		uint32_t from = __ffs(lanes) - 1;

		clear_missing<T>(shared + __shfl_sync(~0u, slot, from) * T::kv_tile_bytes,
				 __shfl_sync(~0u, there, from), lane);
	}
}

/* Of k KV tiles that are asked for together, how many have their metas brought with those of this
 * one: they lie side by side, but where the ring begins anew. */
template <uint32_t SLOTS>
__device__ inline uint32_t metas_of(uint32_t ahead, uint32_t slot, uint32_t k)
{
	return ahead == 0 ? min(k, SLOTS - slot) : slot == 0 ? k - ahead : 0;
}

/* Of n KV tiles from the i-th on, how many may be asked for now: one at least. ahead: of the lane,
 * which asks whether that one is free; the block's first are. */
template <typename T>
__device__ inline uint32_t free_slots(struct fetch<T> &f, uint32_t base, uint32_t ahead, uint32_t i,
				      uint32_t n)
{
	typedef layout<T> at;
	struct ring<T::slots> to = f.at.ahead(ahead);
	bool free;

	if (!f.begun) {
		f.begun = true;
		return min(n, min(T::slots, f.early));
	}
	if (f.early == 0)
		await_q(f);
	barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
	free = ahead < min(n - i, T::slots) &&
	       barrier_test(base + at::empty + to.slot * 8, to.parity ^ 1);
	return min(__ffs(~(__ballot_sync(~0u, free) >> i)) - 1, f.early);
}

/* n KV tiles, whose sources the lanes hold one each. A lane takes as long for its KV tile as all of
 * them for theirs: so as many at a time as there is room for. */
template <typename T>
__device__ inline void fetch_kv_tiles(struct fetch<T> &f, const char *head,
				      const struct device_kv_tile *metas, uint4 mine, uint32_t n)
{
	uint32_t base = shared_address(f.shared), there = kv_blocks_there(mine);

	for (uint32_t i = 0, k; i < n; i += k) {
		uint32_t ahead = f.lane - i;
		struct ring<T::slots> to = f.at.ahead(ahead);
		bool again = f.again || to.parity != f.at.parity;

		k = free_slots<T>(f, base, ahead, i, n);
		f.early -= f.early == NO_LIMIT ? 0 : k;
		clear_slots<T>(f.shared, __ballot_sync(~0u, ahead < k && !again && there != 0xf),
			       to.slot, there, f.lane);
		if (ahead < k)
			fetch_copy<T>(base, to.slot, head, mine,
				      {&metas[f.lane], metas_of<T::slots>(ahead, to.slot, k)});
		__syncwarp();
		f.step(k);
	}
}
#else
/* n KV tiles, whose sources the lanes hold one each. */
template <typename T>
__device__ inline void fetch_kv_tiles(struct fetch<T> &f, const char *head,
				      const struct device_kv_tile *metas, uint4 mine, uint32_t n)
{
	typedef layout<T> at;
	constexpr uint32_t kv_block_bytes = T::kv_block_bytes;
	uint32_t base = shared_address(f.shared);

	for (uint32_t i = 0; i < n; i++) {
		uint4 from = make_uint4(__shfl_sync(~0u, mine.x, i), __shfl_sync(~0u, mine.y, i),
					__shfl_sync(~0u, mine.z, i), __shfl_sync(~0u, mine.w, i));
		const uint32_t source[DEVICE_KV_TILE_BLOCKS] = {from.x, from.y, from.z, from.w};
		uint32_t to = base + f.at.slot * T::kv_tile_bytes;
		uint32_t meta = base + at::metas + f.at.slot * (uint32_t)sizeof(*metas);

		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again && kv_blocks_there(from) != 0xf)
			clear_missing<T>(f.shared + f.at.slot * T::kv_tile_bytes,
					 kv_blocks_there(from), f.lane);
		for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
			const char *kv_block = head + (uint64_t)source[j] * KV_SOURCE_BYTES;

			for (uint32_t b = f.lane * 16;
			     source[j] != DEVICE_NONE && b < kv_block_bytes; b += 32 * 16)
				copy_16(to + j * kv_block_bytes + b, kv_block + b);
		}
		if (f.lane < sizeof(*metas) / 16)
			copy_16(meta + f.lane * 16, (const char *)&metas[i] + f.lane * 16);
		copy_arrive(base + at::full + f.at.slot * 8);
		__syncwarp();
		f.step(1);
	}
}
#endif

/* Goes on to where a wide tile can begin. Those who compute do the same. */
template <typename T> __device__ inline void fetch_align(struct fetch<T> &f)
{
	typedef layout<T> at;
	uint32_t base = shared_address(f.shared);

	while (f.at.slot % DEVICE_WIDE_KV_TILES) {
		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again)
			clear_missing<T>(f.shared + f.at.slot * T::kv_tile_bytes, 0, f.lane);
		if (LARGE ? f.lane == 0 : true)
			barrier_arrive(base + at::full + f.at.slot * 8);
		__syncwarp();
		f.step(1);
	}
}

/* KV tiles [begin, begin + n) of a work tile, a lane for each: they stand one behind the other. n
 * 0: there are none. */
struct stretch {
	uint32_t begin, n, at;
};

__device__ inline struct stretch stretch_from(const struct device_work_tile &work_tile,
					      uint32_t begin, uint32_t most)
{
	uint32_t end = begin < work_tile.n_shared ? work_tile.n_shared : work_tile.n_kv_tiles;

	return {begin, min(end - begin, most), device_kv_tile_at(&work_tile, begin)};
}

__device__ inline struct stretch first_stretch(const struct device_work_tile &work_tile)
{
	return stretch_from(work_tile, 0, DEVICE_FIRST_KV_TILES);
}

__device__ inline struct stretch next_stretch(const struct device_work_tile &work_tile,
					      const struct stretch &now)
{
	return stretch_from(work_tile, now.begin + now.n, 32);
}

/* And draws the next ticket. first: of lanes below DEVICE_FIRST_KV_TILES, sources of the work
 * tile's first KV tiles. */
template <typename T>
__device__ inline void fetch_work_tile(struct fetch<T> &f, const struct device_work_tile &work_tile,
				       uint32_t head, uint4 first)
{
	const char *pool = f.a->pool + head * f.a->shape.head_bytes;
	const uint4 *sources = (const uint4 *)f.a->sources;
	uint4 mine = first;

	/* it may have no KV tiles at all */
	if (!f.late || work_tile.n_kv_tiles <= DEVICE_FIRST_KV_TILES)
		draw_next(f);
	if (work_tile.flags & DEVICE_WORK_TILE_WIDE) {
		fetch_align<T>(f);
		/* one of them before Q; where the ring holds all, as ever: 1.3 us sooner */
		if (!f.begun && f.early != NO_LIMIT && work_tile.n_kv_tiles > T::slots)
			f.early = DEVICE_WIDE_KV_TILES;
	}
	for (struct stretch now = first_stretch(work_tile), next; now.n; now = next) {
		uint4 then = make_uint4(0, 0, 0, 0);

		next = next_stretch(work_tile, now);
		if (f.late && now.begin > 0 && !next.n)
			draw_next(f);
		if (f.lane < next.n)
			then = sources[next.at + f.lane];
		fetch_kv_tiles<T>(f, pool, f.a->kv_tiles + now.at, mine, now.n);
		mine = then;
	}
}

/* The last block to end leaves the counters as it found them. */
__device__ inline void return_tickets(const struct device_attend &a)
{
	if (atomicAdd(&a.ticket[1], 1) != gridDim.x - 1)
		return;
	a.ticket[0] = 0;
	a.ticket[1] = 0;
}

/* What a ticket stands for, with as much of what comes next as can be asked for at the same
 * time. */
struct entry {
	struct device_work_tile work_tile;
	uint32_t head;
	uint4 first; /* as fetch_work_tile wants it */
};

/* Its work tile and its head: entries are drawn work tile by work tile, or head by head where each
 * has its own. The quotient is at most one too small before it is looked at. */
__device__ inline uint2 entry_place(const struct device_attend &a, uint32_t ticket)
{
	uint32_t quotient = __umulhi(ticket, a.entry_inverse),
		 rest = ticket - quotient * a.entry_divisor;

	if (rest >= a.entry_divisor) {
		quotient++;
		rest -= a.entry_divisor;
	}
	return a.head_work_tiles ? make_uint2(ticket, a.first_head + quotient)
				 : make_uint2(quotient, rest);
}

/* Past the first-level cache, which may hold them as they were before the launch that patched
 * them. */
__device__ inline struct entry read_entry(const struct device_attend &a, uint32_t ticket,
					  uint32_t lane)
{
	uint2 place = entry_place(a, ticket);
	union {
		struct device_work_tile work_tile;
		uint4 words[3];
	} v;
	uint4 first = make_uint4(0, 0, 0, 0);

	v.words[0] = __ldcg((const uint4 *)&a.work_tiles[place.x]);
	v.words[1] = __ldcg((const uint4 *)&a.work_tiles[place.x] + 1);
	v.words[2] = __ldcg((const uint4 *)&a.work_tiles[place.x] + 2);
	if (lane < DEVICE_FIRST_KV_TILES)
		first = __ldcg((const uint4 *)a.firsts + place.x * DEVICE_FIRST_KV_TILES + lane);
	return (struct entry){v.work_tile, place.y, first};
}

/* now: of the block's first ticket, which is dealt; what follows is drawn. All blocks draw at the
 * same stage of a work tile: else those that are sooner take what others should have. */
template <typename T>
__device__ void fetch_run(const struct device_attend &a, char *shared, struct entry now)
{
	typedef layout<T> at;
	struct fetch<T> f = {
		.a = &a, .shared = shared, .lane = threadIdx.x % 32
	};
	uint32_t ticket = blockIdx.x, base = shared_address(shared);
	work_ring to = {0, 0};

	f.early = KV_TILES_BEFORE_Q;
	f.late = a.n_entries < LATE_WAVES * gridDim.x;
	f.waited = !LARGE; /* there launches do not overlap */
	for (;; to.step()) {
		struct work *work = (struct work *)(shared + at::work) + to.slot;
		bool over = ticket >= a.n_entries;

		/* a schedule that the launch before makes says nothing yet */
		if (!f.waited && !over &&
		    (a.head_work_tiles || !(now.work_tile.flags & DEVICE_WORK_TILE_OLD))) {
			launch_wait();
			f.waited = true;
			if (a.patched)
				now = read_entry(a, ticket, f.lane);
		}
		barrier_wait(base + at::work_empty + to.slot * 8, to.parity ^ 1);
		if (f.lane == 0) {
			work->work_tile = now.work_tile;
			work->head = now.head;
			if (over)
				work->work_tile.blocks_log2 = DEVICE_NONE;
			barrier_arrive(base + at::work_full + to.slot * 8);
		}
		__syncwarp();
		if (over)
			break;
		fetch_work_tile<T>(f, now.work_tile, now.head, now.first);
		if (f.early != NO_LIMIT)
			await_q(f);
		ticket = __shfl_sync(~0u, f.next, 0);
		if (ticket < a.n_entries)
			now = read_entry(a, ticket, f.lane);
	}
	if (f.lane == 0 && a.n_entries > gridDim.x)
		return_tickets(a);
}

/* ---- Q -------------------------------------------------------------------------------------- */

/* Where Q of a token of the work tile begins, for its KV head; 0: nowhere. */
__device__ inline uint64_t q_address(const struct device_attend &a, const struct work &work,
				     uint32_t token, uint32_t dim)
{
	uint64_t q = a.rows[work.work_tile.row + token].q;

	return q ? q + (uint64_t)work.head * a.shape.group * dim * 2 : 0;
}

template <typename T, uint32_t N_THREADS>
__device__ inline void q_addresses(const struct device_attend &a, const struct work &work,
				   uint64_t *ret, uint32_t thread)
{
#pragma unroll 1
	for (uint32_t t = thread; t < work.work_tile.n_rows; t += N_THREADS)
		ret[t] = q_address(a, work, t, T::qk);
}

/* Rows up to the last row block that some warp takes; those that do not exist are 0. addresses: of
 * q_addresses; NULL: looked up by each thread for itself, which is sooner where there are few. */
template <typename T, uint32_t N_THREADS>
__device__ inline void q_work_tile(const struct device_attend &a, const struct work &work,
				   uint32_t rows, const uint64_t *addresses, uint32_t thread)
{
	constexpr uint32_t chunks = T::qk / KV_CHUNK_VALUES;
	uint32_t heads = a.shape.row_heads, inverse = a.heads_inverse, chunk = thread % chunks;

#pragma unroll 1
	for (uint32_t row = thread / chunks; row < DEVICE_BLOCK_ROWS << work.work_tile.blocks_log2;
	     row += N_THREADS / chunks) {
		uint32_t in_block = row % DEVICE_BLOCK_ROWS,
			 token = token_of(work.work_tile, row / DEVICE_BLOCK_ROWS, in_block,
					  inverse);
		uint32_t head = in_block - (in_block * inverse >> 16) * heads;
		uint64_t q = token >= work.work_tile.n_rows ? 0
			     : addresses		    ? addresses[token]
							    : q_address(a, work, token, T::qk);
		uint64_t from = q ? q + (head * T::qk + chunk * 8) * 2 : (uint64_t)a.rows;

		copy_some_16(rows + row / DEVICE_BLOCK_ROWS * T::rows_stride +
				     q_chunk_offset<T>(in_block, chunk),
			     (const void *)from, q ? 16 : 0);
	}
}

/* The first work tile's Q, by all who compute and have nothing to do before it comes; others copy
 * the rest of KV behind it. */
template <typename T>
__device__ inline void q_first(const struct device_attend &a, const struct work &work, char *shared)
{
	typedef layout<T> at;
	constexpr uint32_t n = DEVICE_WARPS * 32;
	uint64_t *addresses = NULL;

	if (work.work_tile.blocks_log2 > 1) {
		addresses = (uint64_t *)(shared + at::sums);
		q_addresses<T, n>(a, work, addresses, threadIdx.x);
		named_barrier(COMPUTE_BARRIER, n);
	}
	q_work_tile<T, n>(a, work, shared_address(shared) + at::rows, addresses, threadIdx.x);
	named_arrive(FIRST_Q_BARRIER, n + 32);
}

/* Those who wait for the first work tile's Q learn where it lies once they know the work tile:
 * until then it is on its way to the second-level cache. Of a few rows alone: more would be in KV's
 * way. */
__device__ inline void prefetch_q(const struct device_attend &a, uint32_t dim, uint32_t thread,
				  uint32_t n_threads)
{
	uint32_t lines = a.shape.n_kv_heads * a.shape.row_heads * dim / 64,
		 n = min(a.n_rows, PREFETCH_ROWS) * lines;

#pragma unroll 1
	for (uint32_t i = thread * gridDim.x + blockIdx.x; i < n; i += n_threads * gridDim.x) {
		uint64_t q = a.rows[i / lines].q;

		if (q)
			announce((const void *)(q + i % lines * 128));
	}
}

template <typename T> __device__ void q_run(const struct device_attend &a, char *shared)
{
	typedef layout<T> at;
	uint32_t base = shared_address(shared), thread = threadIdx.x - (DEVICE_WARPS + 1) * 32;
	uint64_t *addresses = (uint64_t *)(shared + at::sums);
	work_ring from = {0, 0};

	launch_wait();
	prefetch(a.rows, (uint64_t)a.n_rows * sizeof(*a.rows), thread, Q_WARPS * 32);
	prefetch_q(a, T::qk, thread, Q_WARPS * 32);
	for (uint32_t index = 0;; from.step(), index++) {
		struct work work;

		barrier_wait(base + at::work_full + from.slot * 8, from.parity);
		work = ((const struct work *)(shared + at::work))[from.slot];
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			barrier_arrive(base + at::work_empty + from.slot * 8);
		if (work.work_tile.blocks_log2 == DEVICE_NONE)
			return;
		if (index == 0)
			continue;
		barrier_wait(base + at::rows_empty, (index - 1) & 1);
		q_addresses<T, Q_WARPS * 32>(a, work, addresses, thread);
		named_barrier(Q_BARRIER, Q_WARPS * 32);
		q_work_tile<T, Q_WARPS * 32>(a, work, base + at::rows, addresses, thread);
		copy_arrive(base + at::rows_full);
	}
}
#endif

#endif
