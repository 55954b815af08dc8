/*
 * fetch.cuh - the warps that fetch. One draws entries, longest first, and runs ahead of those that compute by a ring
 * of KV slots; three bring Q of the next unit's rows as soon as the place is free. What the launch before this one
 * writes is waited for no sooner than needed: KV of old tokens is under way by then.
 */
#ifndef COPPICE_CUDA_FETCH_CUH
#define COPPICE_CUDA_FETCH_CUH

#include "layout.cuh"

#if __CUDA_ARCH__ >= 800

template <uint32_t SLOTS> struct fetch {
	const struct device_attend *a;
	char *shared;
	uint32_t lane;
	struct ring<SLOTS> at;
	bool again; /* the ring has been gone round */
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

/* Copies the groups of a slot and its note; the barrier knows how much comes. */
template <uint32_t DIM>
__device__ inline void fetch_copy(uint32_t lane, uint32_t to, uint32_t note, uint32_t full, const char *head,
				  const uint32_t (&source)[DEVICE_SLOT_GROUPS], const struct device_slot *from)
{
	constexpr uint32_t group_bytes = 32 * DIM, step = group_bytes / DEVICE_SOURCE_BYTES;

#if __CUDA_ARCH__ >= 900
	uint32_t there = groups_there(source), n = __popc(there);

	if (lane != 0)
		return;
	barrier_expect(full, n * group_bytes + (uint32_t)sizeof(*from));
	if (n == 4 && source[1] == source[0] + step && source[2] == source[0] + 2 * step &&
	    source[3] == source[0] + 3 * step) {
		bulk_copy(to, head + (uint64_t)source[0] * DEVICE_SOURCE_BYTES, 4 * group_bytes, full);
		bulk_copy(note, from, sizeof(*from), full);
		return;
	}
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j += 2) {
		const char *at = head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES;

		if ((there >> j & 3) == 3 && source[j + 1] == source[j] + step) {
			bulk_copy(to + j * group_bytes, at, 2 * group_bytes, full);
			continue;
		}
		if (there >> j & 1)
			bulk_copy(to + j * group_bytes, at, group_bytes, full);
		if (there >> j & 2)
			bulk_copy(to + (j + 1) * group_bytes, head + (uint64_t)source[j + 1] * DEVICE_SOURCE_BYTES,
				  group_bytes, full);
	}
	bulk_copy(note, from, sizeof(*from), full);
#else
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
		const char *at = head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES;

		for (uint32_t i = lane * 16; source[j] != DEVICE_NONE && i < group_bytes; i += 32 * 16)
			copy_16(to + j * group_bytes + i, at + i);
	}
	if (lane < sizeof(*from) / 16)
		copy_16(note + lane * 16, (const char *)from + lane * 16);
	copy_arrive(full);
	(void)step;
#endif
}

/* The slots from first on of the unit, n of them, whose sources the lanes hold one each. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_slots(struct fetch<SLOTS> &f, const char *head, const struct device_slot *slots,
				   uint4 mine, uint32_t n)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(f.shared);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t source[DEVICE_SLOT_GROUPS] = {
			__shfl_sync(~0u, mine.x, i), __shfl_sync(~0u, mine.y, i), __shfl_sync(~0u, mine.z, i), __shfl_sync(~0u, mine.w, i)};

		barrier_wait(base + at::empty + f.at.slot * 8, f.at.parity ^ 1);
		if (!f.again && groups_there(source) != 0xf)
			clear_missing<DIM>(f.shared + f.at.slot * slot_bytes(DIM), groups_there(source), f.lane);
		fetch_copy<DIM>(f.lane, base + f.at.slot * slot_bytes(DIM),
				base + at::notes + f.at.slot * (uint32_t)sizeof(struct device_slot),
				base + at::full + f.at.slot * 8, head, source, &slots[i]);
		__syncwarp();
		f.at.step();
		f.again = f.again || f.at.slot == 0;
	}
}

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
		f.at.step();
		f.again = f.again || f.at.slot == 0;
	}
}

/* first: of lanes below DEVICE_FIRST_SLOTS, sources of the unit's first slots. */
template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_unit(struct fetch<SLOTS> &f, const struct device_unit &unit, uint32_t head, uint4 first)
{
	const char *pool = f.a->pool + head * f.a->shape.head_bytes;
	const struct device_slot *slots = f.a->slots + unit.slot;
	const uint4 *sources = (const uint4 *)f.a->sources + unit.slot;
	uint32_t done = DEVICE_FIRST_SLOTS;
	uint4 next = make_uint4(0, 0, 0, 0);

	if (done + f.lane < unit.n_slots)
		next = sources[done + f.lane];
	if (unit.flags & DEVICE_UNIT_WIDE)
		fetch_align<DIM, SLOTS>(f);
	fetch_slots<DIM, SLOTS>(f, pool, slots, first, unit.n_slots < done ? unit.n_slots : done);
	for (; done < unit.n_slots; done += 32) {
		uint4 mine = next;

		if (done + 32 + f.lane < unit.n_slots)
			next = sources[done + 32 + f.lane];
		fetch_slots<DIM, SLOTS>(f, pool, slots + done, mine, unit.n_slots - done < 32 ? unit.n_slots - done : 32);
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

/* Past the first-level cache, which may hold it as it was before the launch that patched it. */
__device__ inline struct device_unit load_fresh(const struct device_unit *from)
{
	union {
		struct device_unit unit;
		uint4 words[2];
	} v;

	v.words[0] = __ldcg((const uint4 *)from);
	v.words[1] = __ldcg((const uint4 *)from + 1);
	return v.unit;
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void fetch_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	struct fetch<SLOTS> f = {&a, shared, threadIdx.x % 32, {0, 0}, false};
	uint32_t n_entries = a.n_units * a.shape.n_kv_heads, base = shared_address(shared);
	uint32_t ticket = blockIdx.x; /* the first ones are dealt, what follows is drawn */
	bool waited = false;
	work_ring to = {0, 0};

	for (;; to.step()) {
		struct work *work = (struct work *)(shared + at::work) + to.slot;
		uint32_t index = ticket / a.shape.n_kv_heads, head = ticket % a.shape.n_kv_heads, next = n_entries;
		struct device_unit unit = {};
		uint4 first = make_uint4(0, 0, 0, 0);

		unit.blocks_log2 = DEVICE_NONE;
		if (ticket < n_entries) {
			unit = a.units[index];
			if (!waited && !(unit.flags & DEVICE_UNIT_OLD)) {
				launch_wait();
				waited = true;
				if (a.patched)
					unit = load_fresh(&a.units[index]);
			}
			if (f.lane < DEVICE_FIRST_SLOTS)
				first = ((const uint4 *)a.firsts)[index * DEVICE_FIRST_SLOTS + f.lane];
			if (n_entries > gridDim.x && f.lane == 0)
				next = gridDim.x + atomicAdd(&a.ticket[0], 1);
		}
		barrier_wait(base + at::work_empty + to.slot * 8, to.parity ^ 1);
		if (f.lane == 0) {
			work->unit = unit;
			work->head = head;
			barrier_arrive(base + at::work_full + to.slot * 8);
		}
		__syncwarp();
		if (ticket >= n_entries)
			break;
		fetch_unit<DIM, SLOTS>(f, unit, head, first);
		ticket = __shfl_sync(~0u, next, 0);
	}
	if (f.lane == 0 && n_entries > gridDim.x)
		return_tickets(a);
}

/* ---- Q ----------------------------------------------------------------------------------------------------------- */

/* Rows up to the last row block that some warp takes; those that do not exist are 0. */
template <uint32_t DIM, uint32_t STRIDE>
__device__ inline void q_unit(const struct device_attend &a, const struct work &work, char *rows, uint32_t thread)
{
	constexpr uint32_t chunks = DIM / 8;
	uint32_t group = a.shape.group, inverse = 65536 / group + 1, n = (DEVICE_BLOCK_ROWS << work.unit.blocks_log2) * chunks;

#pragma unroll 4
	for (uint32_t i = thread; i < n; i += Q_WARPS * 32) {
		uint32_t row = i / chunks, chunk = i % chunks, in_block = row % DEVICE_BLOCK_ROWS;
		uint32_t token = token_of(work.unit, row / DEVICE_BLOCK_ROWS, in_block, inverse);
		uint32_t q_head = work.head * group + in_block - (in_block * inverse >> 16) * group;
		char *to = rows + row / DEVICE_BLOCK_ROWS * STRIDE + in_block * DIM * 2 + ((chunk ^ (row & 7)) << 4);
		uint64_t from = 0;

		if (token < work.unit.n_rows)
			from = a.rows[work.unit.row + token].q;
		if (from)
			from += ((uint64_t)q_head * DIM + chunk * 8) * 2;
		if (from)
			copy_16(shared_address(to), (const void *)from);
		else
			*(uint4 *)to = make_uint4(0, 0, 0, 0);
	}
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void q_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(shared), parity = 1;
	work_ring from = {0, 0};

	launch_wait();
	for (;; from.step(), parity ^= 1) {
		struct work work;

		barrier_wait(base + at::work_full + from.slot * 8, from.parity);
		work = ((const struct work *)(shared + at::work))[from.slot];
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			barrier_arrive(base + at::work_empty + from.slot * 8);
		if (work.unit.blocks_log2 == DEVICE_NONE)
			return;
		barrier_wait(base + at::rows_empty, parity);
		q_unit<DIM, at::rows_stride>(a, work, shared + at::rows, threadIdx.x - (DEVICE_WARPS + 1) * 32);
		copy_arrive(base + at::rows_full);
		barrier_arrive(base + at::rows_full);
	}
}
#endif

#endif
