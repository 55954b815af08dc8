/*
 * fetch.cuh - the warps that fetch. One draws entries, longest first, and runs ahead of those that
 * compute by a ring of KV slots; three bring Q of the next unit's rows as soon as the place is
 * free. (The first unit's Q is brought by those who wait for it.) What the launch before this one
 * writes is waited for no sooner than needed: KV of old tokens is under way by then.
 */
#ifndef COPPICE_CUDA_FETCH_CUH
#define COPPICE_CUDA_FETCH_CUH

#include "layout.cuh"

#if __CUDA_ARCH__ >= 800

/* The blocks together bring what they will read in small pieces into the second-level cache. */
__device__ inline void prefetch(const void *from, uint64_t bytes, uint32_t thread,
				uint32_t n_threads)
{
	uint32_t i = thread * gridDim.x + blockIdx.x, n = (uint32_t)((bytes + 127) / 128),
		 step = n_threads * gridDim.x;

#pragma unroll 1
	for (; i < n; i += step)
		asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + i * 128ull));
}

#define PREFETCH_ROWS 256u

template <typename T> struct fetch {
	const struct device_attend *a;
	char *shared;
	uint32_t lane;
	struct ring<T::slots> at;
	bool again; /* the ring has been gone round */
	uint32_t early; /* slots that may still be asked for before the first unit's Q is */

	__device__ void step(uint32_t n)
	{
		struct ring<T::slots> next = at.ahead(n);

		again = again || next.parity != at.parity;
		at = next;
	}
};

/* Bit j: group j is there. */
__device__ inline uint32_t groups_there(const uint4 &source)
{
	return (source.x != DEVICE_NONE) | (source.y != DEVICE_NONE) << 1 |
	       (source.z != DEVICE_NONE) << 2 | (source.w != DEVICE_NONE) << 3;
}

/* Where groups of a slot are missing for the first time, shared memory holds anything; 0 x NaN is
 * NaN. */
template <typename T>
__device__ inline void clear_missing(char *slot, uint32_t there, uint32_t lane)
{
#pragma unroll 1
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
#pragma unroll 1
		for (uint32_t i = lane; !(there >> j & 1) && i < T::value_bytes / 16; i += 32)
			((uint4 *)(slot + j * T::group_bytes + T::key_bytes))[i] =
				make_uint4(0, 0, 0, 0);
	}
	fence_async();
	__syncwarp();
}

#define NO_LIMIT UINT32_MAX

/* What is asked for first comes first, and nothing can begin without Q: a ring full of KV would be
 * before it. */
template <typename T> __device__ inline void await_q(struct fetch<T> &f)
{
	named_barrier(FIRST_Q_BARRIER, (DEVICE_WARPS + 1) * 32);
	f.early = NO_LIMIT;
}

#if __CUDA_ARCH__ >= 900
/* How many of these groups lie side by side, from the first on. */
template <typename T> __device__ inline uint32_t run_of(const uint4 &source)
{
	constexpr uint32_t step = T::group_bytes / KV_SOURCE_BYTES;

	return source.y != source.x + step	 ? 1
	       : source.z != source.x + 2 * step ? 2
	       : source.w != source.x + 3 * step ? 3
						 : 4;
}

/* The lane's slot: its groups, run by run, and n_notes notes from its own on: all walk the ring in
 * order, so who comes to a slot has waited for those before it. The barrier knows how much
 * comes. */
template <typename T>
__device__ inline void fetch_copy(uint32_t base, uint32_t slot, const char *head, uint4 source,
				  const struct device_slot *note, uint32_t n_notes)
{
	typedef layout<T> at;
	constexpr uint32_t group_bytes = T::group_bytes;
	uint32_t full = base + at::full + slot * 8, note_bytes = n_notes * (uint32_t)sizeof(*note);
	uint32_t to = base + slot * T::slot_bytes, end = to + T::slot_bytes;

	barrier_expect(full, __popc(groups_there(source)) * group_bytes + note_bytes);
#pragma unroll 1
	while (to < end) {
		uint32_t run = run_of<T>(source);

		if (source.x == DEVICE_NONE)
			run = 1;
		else
			bulk_copy(to, head + (uint64_t)source.x * KV_SOURCE_BYTES,
				  run * group_bytes, full);
		to += run * group_bytes;
		source = run == 1   ? make_uint4(source.y, source.z, source.w, DEVICE_NONE)
			 : run == 2 ? make_uint4(source.z, source.w, DEVICE_NONE, DEVICE_NONE)
				    : make_uint4(source.w, DEVICE_NONE, DEVICE_NONE, DEVICE_NONE);
	}
	if (n_notes)
		bulk_copy(base + at::notes + slot * (uint32_t)sizeof(*note), note, note_bytes,
			  full);
}

/* Slots of these lanes, which nothing was ever copied to. */
template <typename T>
__device__ inline void clear_slots(char *shared, uint32_t lanes, uint32_t slot, uint32_t there,
				   uint32_t lane)
{
	for (; lanes; lanes &= lanes - 1) {
		uint32_t from = __ffs(lanes) - 1;

		clear_missing<T>(shared + __shfl_sync(~0u, slot, from) * T::slot_bytes,
				 __shfl_sync(~0u, there, from), lane);
	}
}

/* Of k slots that are asked for together, how many have their notes brought with those of this one:
 * they lie side by side, but where the ring begins anew. */
template <uint32_t SLOTS>
__device__ inline uint32_t notes_of(uint32_t ahead, uint32_t slot, uint32_t k)
{
	return ahead == 0 ? min(k, SLOTS - slot) : slot == 0 ? k - ahead : 0;
}

/* Of n slots from the i-th on, how many may be asked for now: one at least. ahead: of the lane,
 * which asks whether that one is free; the block's first are. */
template <typename T>
__device__ inline uint32_t free_slots(struct fetch<T> &f, uint32_t base, uint32_t ahead, uint32_t i,
				      uint32_t n)
{
	typedef layout<T> at;
	struct ring<T::slots> to = f.at.ahead(ahead);
	bool free;

	if (f.early == SLOTS_BEFORE_Q)
		return min(n, min(T::slots, SLOTS_BEFORE_Q));
	if (f.early == 0)
		await_q(f);
	barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
	free = ahead < min(n - i, T::slots) &&
	       barrier_test(base + at::empty + to.slot * 8, to.parity ^ 1);
	return min(__ffs(~(__ballot_sync(~0u, free) >> i)) - 1, f.early);
}

/* n slots, whose sources the lanes hold one each. A lane takes as long for its slot as all of them
 * for theirs: so as many at a time as there is room for. */
template <typename T>
__device__ inline void fetch_slots(struct fetch<T> &f, const char *head,
				   const struct device_slot *notes, uint4 mine, uint32_t n)
{
	uint32_t base = shared_address(f.shared), there = groups_there(mine);

	for (uint32_t i = 0, k; i < n; i += k) {
		uint32_t ahead = f.lane - i;
		struct ring<T::slots> to = f.at.ahead(ahead);
		bool again = f.again || to.parity != f.at.parity;

		k = free_slots<T>(f, base, ahead, i, n);
		f.early -= f.early == NO_LIMIT ? 0 : k;
		clear_slots<T>(f.shared, __ballot_sync(~0u, ahead < k && !again && there != 0xf),
			       to.slot, there, f.lane);
		if (ahead < k)
			fetch_copy<T>(base, to.slot, head, mine, &notes[f.lane],
				      notes_of<T::slots>(ahead, to.slot, k));
		__syncwarp();
		f.step(k);
	}
}
#else
/* n slots, whose sources the lanes hold one each. */
template <typename T>
__device__ inline void fetch_slots(struct fetch<T> &f, const char *head,
				   const struct device_slot *notes, uint4 mine, uint32_t n)
{
	typedef layout<T> at;
	constexpr uint32_t group_bytes = T::group_bytes;
	uint32_t base = shared_address(f.shared);

	for (uint32_t i = 0; i < n; i++) {
		uint4 from = make_uint4(__shfl_sync(~0u, mine.x, i), __shfl_sync(~0u, mine.y, i),
					__shfl_sync(~0u, mine.z, i), __shfl_sync(~0u, mine.w, i));
		const uint32_t source[DEVICE_SLOT_GROUPS] = {from.x, from.y, from.z, from.w};
		uint32_t to = base + f.at.slot * T::slot_bytes;
		uint32_t note = base + at::notes + f.at.slot * (uint32_t)sizeof(*notes);

		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again && groups_there(from) != 0xf)
			clear_missing<T>(f.shared + f.at.slot * T::slot_bytes, groups_there(from),
					 f.lane);
		for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
			const char *group = head + (uint64_t)source[j] * KV_SOURCE_BYTES;

			for (uint32_t b = f.lane * 16; source[j] != DEVICE_NONE && b < group_bytes;
			     b += 32 * 16)
				copy_16(to + j * group_bytes + b, group + b);
		}
		if (f.lane < sizeof(*notes) / 16)
			copy_16(note + f.lane * 16, (const char *)&notes[i] + f.lane * 16);
		copy_arrive(base + at::full + f.at.slot * 8);
		__syncwarp();
		f.step(1);
	}
}
#endif

/* Goes on to where a stage can begin. Those who compute do the same. */
template <typename T> __device__ inline void fetch_align(struct fetch<T> &f)
{
	typedef layout<T> at;
	uint32_t base = shared_address(f.shared);

	while (f.at.slot % DEVICE_STAGE_SLOTS) {
		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again)
			clear_missing<T>(f.shared + f.at.slot * T::slot_bytes, 0, f.lane);
		if (LARGE ? f.lane == 0 : true)
			barrier_arrive(base + at::full + f.at.slot * 8);
		__syncwarp();
		f.step(1);
	}
}

/* first: of lanes below DEVICE_FIRST_SLOTS, sources of the unit's first slots. */
template <typename T>
__device__ inline void fetch_unit(struct fetch<T> &f, const struct device_unit &unit, uint32_t head,
				  uint4 first)
{
	const char *pool = f.a->pool + head * f.a->shape.head_bytes;
	const struct device_slot *slots = f.a->slots + unit.slot;
	const uint4 *sources = (const uint4 *)f.a->sources + unit.slot;
	uint4 mine = first;

	if (unit.flags & DEVICE_UNIT_WIDE)
		fetch_align<T>(f);
	for (uint32_t done = 0, n = DEVICE_FIRST_SLOTS; done < unit.n_slots; done += n, n = 32) {
		uint4 next = make_uint4(0, 0, 0, 0);

		if (done + n + f.lane < unit.n_slots)
			next = sources[done + n + f.lane];
		fetch_slots<T>(f, pool, slots + done, mine,
			       unit.n_slots - done < n ? unit.n_slots - done : n);
		mine = next;
	}
}

/* The next ticket, of which no more than n_entries are drawn. An atomicAdd would become one for the
 * whole warp, which waits for the answer at once. */
__device__ inline uint32_t draw(const struct device_attend &a)
{
	return gridDim.x + atomicInc(&a.ticket[0], a.n_entries);
}

/* By the first lane; to the others the answer means nothing. The wait is over at once where it is
 * not the first. */
__device__ inline uint32_t draw_for(const struct device_attend &a, uint32_t lane)
{
	launch_wait();
	return a.n_entries > gridDim.x && lane == 0 ? draw(a) : a.n_entries;
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
	struct device_unit unit;
	uint32_t head;
	uint4 first; /* as fetch_unit wants it */
};

/* Its unit and its head: entries are drawn unit by unit, or head by head where each has its own.
 * The quotient is at most one too small before it is looked at. */
__device__ inline uint2 entry_place(const struct device_attend &a, uint32_t ticket)
{
	uint32_t quotient = __umulhi(ticket, a.entry_inverse),
		 rest = ticket - quotient * a.entry_divisor;

	if (rest >= a.entry_divisor) {
		quotient++;
		rest -= a.entry_divisor;
	}
	return a.head_units ? make_uint2(ticket, a.first_head + quotient)
			    : make_uint2(quotient, rest);
}

/* Past the first-level cache, which may hold them as they were before the launch that patched
 * them. */
__device__ inline struct entry read_entry(const struct device_attend &a, uint32_t ticket,
					  uint32_t lane)
{
	uint2 place = entry_place(a, ticket);
	union {
		struct device_unit unit;
		uint4 words[2];
	} v;
	uint4 first = make_uint4(0, 0, 0, 0);

	v.words[0] = __ldcg((const uint4 *)&a.units[place.x]);
	v.words[1] = __ldcg((const uint4 *)&a.units[place.x] + 1);
	if (lane < DEVICE_FIRST_SLOTS)
		first = __ldcg((const uint4 *)a.firsts + place.x * DEVICE_FIRST_SLOTS + lane);
	return (struct entry){v.unit, place.y, first};
}

/* now: of the block's first ticket, which is dealt; what follows is drawn. */
template <typename T>
__device__ void fetch_run(const struct device_attend &a, char *shared, struct entry now)
{
	typedef layout<T> at;
	struct fetch<T> f = {
		&a, shared, threadIdx.x % 32, {0, 0}, false, SLOTS_BEFORE_Q
	};
	uint32_t ticket = blockIdx.x, base = shared_address(shared);
	bool waited = false;
	work_ring to = {0, 0};

	for (;; to.step()) {
		struct work *work = (struct work *)(shared + at::work) + to.slot;
		uint32_t next;
		bool over = ticket >= a.n_entries;

		/* a program that the launch before makes says nothing yet */
		if (!waited && !over && (a.head_units || !(now.unit.flags & DEVICE_UNIT_OLD))) {
			launch_wait();
			waited = true;
			if (a.patched)
				now = read_entry(a, ticket, f.lane);
		}
		barrier_wait(base + at::work_empty + to.slot * 8, to.parity ^ 1);
		if (f.lane == 0) {
			work->unit = now.unit;
			work->head = now.head;
			if (over)
				work->unit.blocks_log2 = DEVICE_NONE;
			barrier_arrive(base + at::work_full + to.slot * 8);
		}
		__syncwarp();
		if (over)
			break;
		/* tickets are the launch's own once the one before has ended: where KV that is old
		 * was asked for without waiting, they are drawn behind it */
		if (waited)
			next = draw_for(a, f.lane);
		fetch_unit<T>(f, now.unit, now.head, now.first);
		if (f.early != NO_LIMIT)
			await_q(f);
		if (!waited)
			next = draw_for(a, f.lane);
		waited = true;
		ticket = __shfl_sync(~0u, next, 0);
		if (ticket < a.n_entries)
			now = read_entry(a, ticket, f.lane);
	}
	if (f.lane == 0 && a.n_entries > gridDim.x)
		return_tickets(a);
}

/* ---- Q -------------------------------------------------------------------------------------- */

/* Where Q of a token of the unit begins, for its KV head; 0: nowhere. */
__device__ inline uint64_t q_address(const struct device_attend &a, const struct work &work,
				     uint32_t token, uint32_t dim)
{
	uint64_t q = a.rows[work.unit.row + token].q;

	return q ? q + (uint64_t)work.head * a.shape.group * dim * 2 : 0;
}

__device__ inline void q_addresses(const struct device_attend &a, const struct work &work,
				   uint32_t dim, uint64_t *ret, uint32_t thread, uint32_t n_threads)
{
#pragma unroll 1
	for (uint32_t t = thread; t < work.unit.n_rows; t += n_threads)
		ret[t] = q_address(a, work, t, dim);
}

/* Rows up to the last row block that some warp takes; those that do not exist are 0. addresses: of
 * q_addresses; NULL: looked up by each thread for itself, which is sooner where there are few. */
template <typename T, uint32_t N_THREADS>
__device__ inline void q_unit(const struct device_attend &a, const struct work &work, uint32_t rows,
			      const uint64_t *addresses, uint32_t thread)
{
	constexpr uint32_t chunks = T::qk / KV_CHUNK_VALUES;
	uint32_t heads = a.shape.row_heads, inverse = a.heads_inverse, chunk = thread % chunks;

#pragma unroll 1
	for (uint32_t row = thread / chunks; row < DEVICE_BLOCK_ROWS << work.unit.blocks_log2;
	     row += N_THREADS / chunks) {
		uint32_t in_block = row % DEVICE_BLOCK_ROWS,
			 token = token_of(work.unit, row / DEVICE_BLOCK_ROWS, in_block, inverse);
		uint32_t head = in_block - (in_block * inverse >> 16) * heads;
		uint64_t q = token >= work.unit.n_rows ? 0
			     : addresses	       ? addresses[token]
						       : q_address(a, work, token, T::qk);
		uint64_t from = q ? q + (head * T::qk + chunk * 8) * 2 : (uint64_t)a.rows;

		copy_some_16(rows + row / DEVICE_BLOCK_ROWS * T::rows_stride +
				     in_block * T::qk * 2 + ((chunk ^ kv_swizzle(T::qk, row)) << 4),
			     (const void *)from, q ? 16 : 0);
	}
}

/* The first unit's Q, by all who compute and have nothing to do before it comes; others copy the
 * rest of KV behind it. */
template <typename T>
__device__ inline void q_first(const struct device_attend &a, const struct work &work, char *shared)
{
	typedef layout<T> at;
	constexpr uint32_t n = DEVICE_WARPS * 32;
	uint64_t *addresses = NULL;

	if (work.unit.blocks_log2 > 1) {
		addresses = (uint64_t *)(shared + at::sums);
		q_addresses(a, work, T::qk, addresses, threadIdx.x, n);
		named_barrier(COMPUTE_BARRIER, n);
	}
	q_unit<T, n>(a, work, shared_address(shared) + at::rows, addresses, threadIdx.x);
	named_arrive(FIRST_Q_BARRIER, n + 32);
}

/* Those who wait for the first unit's Q learn where it lies once they know the unit: until then it
 * is on its way to the second-level cache. Of a few rows alone: more would be in KV's way. */
__device__ inline void prefetch_q(const struct device_attend &a, uint32_t dim, uint32_t thread,
				  uint32_t n_threads)
{
	uint32_t lines = a.shape.n_kv_heads * a.shape.row_heads * dim / 64,
		 n = min(a.n_rows, PREFETCH_ROWS) * lines;

#pragma unroll 1
	for (uint32_t i = thread * gridDim.x + blockIdx.x; i < n; i += n_threads * gridDim.x) {
		uint64_t q = a.rows[i / lines].q;

		if (q)
			asm volatile("prefetch.global.L2 [%0];" ::"l"(q + i % lines * 128));
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
	for (uint32_t unit = 0;; from.step(), unit++) {
		struct work work;

		barrier_wait(base + at::work_full + from.slot * 8, from.parity);
		work = ((const struct work *)(shared + at::work))[from.slot];
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			barrier_arrive(base + at::work_empty + from.slot * 8);
		if (work.unit.blocks_log2 == DEVICE_NONE)
			return;
		if (unit == 0)
			continue;
		barrier_wait(base + at::rows_empty, (unit - 1) & 1);
		q_addresses(a, work, T::qk, addresses, thread, Q_WARPS * 32);
		named_barrier(Q_BARRIER, Q_WARPS * 32);
		q_unit<T, Q_WARPS * 32>(a, work, base + at::rows, addresses, thread);
		copy_arrive(base + at::rows_full);
	}
}
#endif

#endif
