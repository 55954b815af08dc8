/*
 * fetch.cuh - the warps that fetch. One draws entries, longest first, and runs ahead of those that compute by a ring
 * of KV slots; three bring Q of the next unit's rows as soon as the place is free. (The first unit's Q is brought by
 * those who wait for it.) What the launch before this one writes is waited for no sooner than needed: KV of old tokens
 * is under way by then.
 */
#ifndef COPPICE_CUDA_FETCH_CUH
#define COPPICE_CUDA_FETCH_CUH

#include "layout.cuh"

#if __CUDA_ARCH__ >= 800

/* The blocks together bring what they will read in small pieces into the second-level cache. */
__device__ inline void prefetch(const void *from, uint64_t bytes, uint32_t thread, uint32_t n_threads)
{
	uint64_t i = ((uint64_t)thread * gridDim.x + blockIdx.x) * 128, step = (uint64_t)n_threads * gridDim.x * 128;

#pragma unroll 1
	for (; i < bytes; i += step)
		asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + i));
}

#define PREFETCH_ROWS 256u

template <uint32_t SLOTS> struct fetch {
	const struct device_attend *a;
	char *shared;
	uint32_t lane;
	struct ring<SLOTS> at;
	bool again; /* the ring has been gone round */
	uint32_t early; /* slots that may still be asked for before the first unit's Q is */

	__device__ void step(uint32_t n)
	{
		struct ring<SLOTS> next = at.ahead(n);

		again = again || next.parity != at.parity;
		at = next;
	}
};

/* Bit j: group j is there. */
__device__ inline uint32_t groups_there(const uint32_t (&source)[DEVICE_SLOT_GROUPS])
{
	uint32_t there = 0;

	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++)
		there |= (source[j] != DEVICE_NONE) << j;
	return there;
}

/* Where groups of a slot are missing for the first time, shared memory holds anything; 0 x NaN is NaN. */
template <uint32_t DIM> __device__ inline void clear_missing(char *slot, uint32_t there, uint32_t lane)
{
#pragma unroll 1
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
#pragma unroll 1
		for (uint32_t i = lane; !(there >> j & 1) && i < DIM; i += 32)
			((uint4 *)(slot + j * 32 * DIM + 16 * DIM))[i] = make_uint4(0, 0, 0, 0);
	}
	fence_async();
	__syncwarp();
}

#define NO_LIMIT UINT32_MAX

/* What is asked for first comes first, and nothing can begin without Q: a ring full of KV would be before it. */
template <uint32_t SLOTS> __device__ inline void await_q(struct fetch<SLOTS> &f)
{
	named_barrier(FIRST_Q_BARRIER, (DEVICE_WARPS + 1) * 32);
	f.early = NO_LIMIT;
}

#if __CUDA_ARCH__ >= 900
/* Of a slot's groups from j on, how many lie side by side. */
template <uint32_t DIM> __device__ inline uint32_t run_of(const uint32_t (&source)[DEVICE_SLOT_GROUPS], uint32_t j)
{
	uint32_t n = 1;

#pragma unroll
	for (uint32_t k = 1; k < DEVICE_SLOT_GROUPS; k++) {
		if (j + k < DEVICE_SLOT_GROUPS && n == k && source[j + k] == source[j] + k * (32 * DIM / DEVICE_SOURCE_BYTES))
			n++;
	}
	return n;
}

/* The lane's slot: its groups, run by run, and n_notes notes from its own on: all walk the ring in order, so who comes to a
 * slot has waited for those before it. The barrier knows how much comes. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_copy(uint32_t base, uint32_t slot, const char *head,
				  const uint32_t (&source)[DEVICE_SLOT_GROUPS], const struct device_slot *note,
				  uint32_t n_notes)
{
	typedef layout<DIM, SLOTS> at;
	constexpr uint32_t group_bytes = 32 * DIM;
	uint32_t full = base + at::full + slot * 8, note_bytes = n_notes * (uint32_t)sizeof(*note), done = 0;

	barrier_expect(full, __popc(groups_there(source)) * group_bytes + note_bytes);
#pragma unroll
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
		if (source[j] == DEVICE_NONE || j < done)
			continue;
		done = j + run_of<DIM>(source, j);
		bulk_copy(base + slot * slot_bytes(DIM) + j * group_bytes, head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES,
			  (done - j) * group_bytes, full);
	}
	if (n_notes)
		bulk_copy(base + at::notes + slot * (uint32_t)sizeof(*note), note, note_bytes, full);
}

/* Slots of these lanes, which nothing was ever copied to. */
template <uint32_t DIM>
__device__ inline void clear_slots(char *shared, uint32_t lanes, uint32_t slot, uint32_t there, uint32_t lane)
{
	for (; lanes; lanes &= lanes - 1) {
		uint32_t from = __ffs(lanes) - 1;

		clear_missing<DIM>(shared + __shfl_sync(~0u, slot, from) * slot_bytes(DIM), __shfl_sync(~0u, there, from), lane);
	}
}

/* Of k slots that are asked for together, how many have their notes brought with those of this one: they lie side by side,
 * but where the ring begins anew. */
template <uint32_t SLOTS> __device__ inline uint32_t notes_of(uint32_t ahead, uint32_t slot, uint32_t k)
{
	return ahead == 0 ? min(k, SLOTS - slot) : slot == 0 ? k - ahead : 0;
}

/* n slots, whose sources the lanes hold one each. A lane takes as long for its slot as all of them for theirs: so as
 * many at a time as there is room for. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_slots(struct fetch<SLOTS> &f, const char *head, const struct device_slot *notes, uint4 mine,
				   uint32_t n)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(f.shared), source[DEVICE_SLOT_GROUPS] = {mine.x, mine.y, mine.z, mine.w};

	for (uint32_t i = 0, k; i < n; i += k) {
		if (f.early == 0)
			await_q(f);

		uint32_t ahead = f.lane - i;
		struct ring<SLOTS> to = f.at.ahead(ahead);
		bool again = f.again || to.parity != f.at.parity, free;

		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		free = ahead < min(n - i, SLOTS) && barrier_test(base + at::empty + to.slot * 8, to.parity ^ 1);
		k = min(__ffs(~(__ballot_sync(~0u, free) >> i)) - 1, f.early);
		f.early -= f.early == NO_LIMIT ? 0 : k;
		clear_slots<DIM>(f.shared, __ballot_sync(~0u, ahead < k && !again && groups_there(source) != 0xf), to.slot,
				 groups_there(source), f.lane);
		if (ahead < k)
			fetch_copy<DIM, SLOTS>(base, to.slot, head, source, &notes[f.lane], notes_of<SLOTS>(ahead, to.slot, k));
		__syncwarp();
		f.step(k);
	}
}
#else
/* n slots, whose sources the lanes hold one each. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_slots(struct fetch<SLOTS> &f, const char *head, const struct device_slot *notes, uint4 mine,
				   uint32_t n)
{
	typedef layout<DIM, SLOTS> at;
	constexpr uint32_t group_bytes = 32 * DIM;
	uint32_t base = shared_address(f.shared);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t source[DEVICE_SLOT_GROUPS] = {
			__shfl_sync(~0u, mine.x, i), __shfl_sync(~0u, mine.y, i), __shfl_sync(~0u, mine.z, i), __shfl_sync(~0u, mine.w, i)};
		uint32_t to = base + f.at.slot * slot_bytes(DIM);
		uint32_t note = base + at::notes + f.at.slot * (uint32_t)sizeof(*notes);

		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again && groups_there(source) != 0xf)
			clear_missing<DIM>(f.shared + f.at.slot * slot_bytes(DIM), groups_there(source), f.lane);
		for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
			const char *from = head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES;

			for (uint32_t b = f.lane * 16; source[j] != DEVICE_NONE && b < group_bytes; b += 32 * 16)
				copy_16(to + j * group_bytes + b, from + b);
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
template <uint32_t DIM, uint32_t SLOTS> __device__ inline void fetch_align(struct fetch<SLOTS> &f)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(f.shared);

	while (f.at.slot % DEVICE_STAGE_SLOTS) {
		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again)
			clear_missing<DIM>(f.shared + f.at.slot * slot_bytes(DIM), 0, f.lane);
		if (LARGE ? f.lane == 0 : true)
			barrier_arrive(base + at::full + f.at.slot * 8);
		__syncwarp();
		f.step(1);
	}
}

/* first: of lanes below DEVICE_FIRST_SLOTS, sources of the unit's first slots. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_unit(struct fetch<SLOTS> &f, const struct device_unit &unit, uint32_t head, uint4 first)
{
	const char *pool = f.a->pool + head * f.a->shape.head_bytes;
	const struct device_slot *slots = f.a->slots + unit.slot;
	const uint4 *sources = (const uint4 *)f.a->sources + unit.slot;
	uint4 mine = first;

	if (unit.flags & DEVICE_UNIT_WIDE)
		fetch_align<DIM, SLOTS>(f);
	for (uint32_t done = 0, n = DEVICE_FIRST_SLOTS; done < unit.n_slots; done += n, n = 32) {
		uint4 next = make_uint4(0, 0, 0, 0);

		if (done + n + f.lane < unit.n_slots)
			next = sources[done + n + f.lane];
		fetch_slots<DIM, SLOTS>(f, pool, slots + done, mine, unit.n_slots - done < n ? unit.n_slots - done : n);
		mine = next;
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

/* What a ticket stands for, with as much of what comes next as can be asked for at the same time. */
struct entry {
	struct device_unit unit;
	uint4 first; /* as fetch_unit wants it */
};

/* Entries are drawn unit by unit, or head by head where each has its own. */
__device__ inline uint32_t entries_of(const struct device_attend &a)
{
	return a.head_units ? a.n_units : a.n_units * a.shape.n_kv_heads;
}

__device__ inline uint32_t entry_head(const struct device_attend &a, uint32_t ticket)
{
	return a.head_units ? a.first_head + ticket / a.head_units : ticket % a.shape.n_kv_heads;
}

/* The unit that a ticket stands for. */
__device__ inline uint32_t entry_unit(const struct device_attend &a, uint32_t ticket)
{
	return a.head_units ? ticket : ticket / a.shape.n_kv_heads;
}

/* Past the first-level cache, which may hold them as they were before the launch that patched them. */
__device__ inline struct entry read_entry(const struct device_attend &a, uint32_t ticket, uint32_t lane)
{
	uint32_t index = entry_unit(a, ticket);
	union {
		struct device_unit unit;
		uint4 words[2];
	} v;
	uint4 first = make_uint4(0, 0, 0, 0);

	v.words[0] = __ldcg((const uint4 *)&a.units[index]);
	v.words[1] = __ldcg((const uint4 *)&a.units[index] + 1);
	if (lane < DEVICE_FIRST_SLOTS)
		first = __ldcg((const uint4 *)a.firsts + index * DEVICE_FIRST_SLOTS + lane);
	return (struct entry){v.unit, first};
}

/* On its way while the block makes itself ready. */
__device__ inline void prefetch_entry(const struct device_attend &a, uint32_t ticket, uint32_t lane)
{
	uint32_t index = entry_unit(a, ticket);

	if (lane == 0)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(&a.units[index]));
	else if (lane <= DEVICE_FIRST_SLOTS / 8)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(&a.firsts[index * DEVICE_FIRST_SLOTS + (lane - 1) * 8]));
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void fetch_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	struct fetch<SLOTS> f = {&a, shared, threadIdx.x % 32, {0, 0}, false, SLOTS_BEFORE_Q};
	uint32_t n_entries = entries_of(a), base = shared_address(shared);
	uint32_t ticket = blockIdx.x; /* the first ones are dealt, what follows is drawn */
	struct entry now = read_entry(a, ticket, f.lane);
	bool waited = false;
	work_ring to = {0, 0};

	for (;; to.step()) {
		struct work *work = (struct work *)(shared + at::work) + to.slot;
		uint32_t head = entry_head(a, ticket), next = n_entries;

		if (ticket >= n_entries) {
			now.unit.blocks_log2 = DEVICE_NONE;
		} else {
			/* a program that the launch before makes says nothing yet */
			if (!waited && (a.head_units || !(now.unit.flags & DEVICE_UNIT_OLD))) {
				launch_wait();
				waited = true;
				if (a.patched)
					now = read_entry(a, ticket, f.lane);
			}
			if (n_entries > gridDim.x && f.lane == 0)
				next = gridDim.x + atomicAdd(&a.ticket[0], 1);
		}
		barrier_wait(base + at::work_empty + to.slot * 8, to.parity ^ 1);
		if (f.lane == 0) {
			work->unit = now.unit;
			work->head = head;
			barrier_arrive(base + at::work_full + to.slot * 8);
		}
		__syncwarp();
		if (ticket >= n_entries)
			break;
		fetch_unit<DIM, SLOTS>(f, now.unit, head, now.first);
		if (f.early != NO_LIMIT)
			await_q(f);
		ticket = __shfl_sync(~0u, next, 0);
		if (ticket < n_entries)
			now = read_entry(a, ticket, f.lane);
	}
	if (f.lane == 0 && n_entries > gridDim.x)
		return_tickets(a);
}

/* ---- Q ----------------------------------------------------------------------------------------------------------- */

/* Where Q of a token of the unit begins, for its KV head; 0: nowhere. */
__device__ inline uint64_t q_address(const struct device_attend &a, const struct work &work, uint32_t token, uint32_t dim)
{
	uint64_t q = a.rows[work.unit.row + token].q;

	return q ? q + (uint64_t)work.head * a.shape.group * dim * 2 : 0;
}

__device__ inline void q_addresses(const struct device_attend &a, const struct work &work, uint32_t dim, uint64_t *ret,
				   uint32_t thread, uint32_t n_threads)
{
	for (uint32_t t = thread; t < work.unit.n_rows; t += n_threads)
		ret[t] = q_address(a, work, t, dim);
}

/* Rows up to the last row block that some warp takes; those that do not exist are 0. addresses: of q_addresses; NULL: looked
 * up by each thread for itself, which is sooner where there are few. */
template <uint32_t DIM, uint32_t STRIDE, uint32_t N_THREADS>
__device__ inline void q_unit(const struct device_attend &a, const struct work &work, uint32_t rows,
			      const uint64_t *addresses, uint32_t thread)
{
	constexpr uint32_t chunks = DIM / 8;
	uint32_t group = a.shape.group, inverse = 65536 / group + 1, chunk = thread % chunks;

#pragma unroll 1
	for (uint32_t row = thread / chunks; row < DEVICE_BLOCK_ROWS << work.unit.blocks_log2; row += N_THREADS / chunks) {
		uint32_t in_block = row % DEVICE_BLOCK_ROWS, token = token_of(work.unit, row / DEVICE_BLOCK_ROWS, in_block, inverse);
		uint32_t head = in_block - (in_block * inverse >> 16) * group;
		uint64_t q = token >= work.unit.n_rows ? 0 : addresses ? addresses[token] : q_address(a, work, token, DIM);
		uint64_t from = q ? q + (head * DIM + chunk * 8) * 2 : (uint64_t)a.rows;

		copy_some_16(rows + row / DEVICE_BLOCK_ROWS * STRIDE + in_block * DIM * 2 + ((chunk ^ (row & 7)) << 4),
			     (const void *)from, q ? 16 : 0);
	}
}

/* The first unit's Q, by all who compute and have nothing to do before it comes; others copy the rest of KV behind it. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void q_first(const struct device_attend &a, const struct work &work, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	constexpr uint32_t n = DEVICE_WARPS * 32;
	uint64_t *addresses = NULL;

	if (work.unit.blocks_log2 > 1) {
		addresses = (uint64_t *)(shared + at::sums);
		q_addresses(a, work, DIM, addresses, threadIdx.x, n);
		named_barrier(COMPUTE_BARRIER, n);
	}
	q_unit<DIM, at::rows_stride, n>(a, work, shared_address(shared) + at::rows, addresses, threadIdx.x);
	named_arrive(FIRST_Q_BARRIER, n + 32);
}

/* Those who wait for the first unit's Q learn where it lies once they know the unit: until then it is on its way to the
 * second-level cache. Of a few rows alone: more would be in KV's way. */
__device__ inline void prefetch_q(const struct device_attend &a, uint32_t dim, uint32_t thread, uint32_t n_threads)
{
	uint32_t lines = a.shape.n_kv_heads * a.shape.group * dim / 64, n = min(a.n_rows, PREFETCH_ROWS) * lines;

#pragma unroll 1
	for (uint32_t i = thread * gridDim.x + blockIdx.x; i < n; i += n_threads * gridDim.x) {
		uint64_t q = a.rows[i / lines].q;

		if (q)
			asm volatile("prefetch.global.L2 [%0];" ::"l"(q + i % lines * 128));
	}
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void q_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(shared), thread = threadIdx.x - (DEVICE_WARPS + 1) * 32;
	uint64_t *addresses = (uint64_t *)(shared + at::sums);
	work_ring from = {0, 0};

	launch_wait();
	prefetch(a.rows, (uint64_t)a.n_rows * sizeof(*a.rows), thread, Q_WARPS * 32);
	prefetch_q(a, DIM, thread, Q_WARPS * 32);
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
		q_addresses(a, work, DIM, addresses, thread, Q_WARPS * 32);
		named_barrier(Q_BARRIER, Q_WARPS * 32);
		q_unit<DIM, at::rows_stride, Q_WARPS * 32>(a, work, base + at::rows, addresses, thread);
		copy_arrive(base + at::rows_full);
	}
}
#endif

#endif
