/*
 * attend.cu - attention over a program (device.h).
 *
 * Grid: as many blocks as the device has multiprocessors, each of 8 warps that compute and one that fetches. The fetching
 * warp draws (unit, head) from a counter, longest first, and runs ahead of the others by a ring of slots in shared
 * memory; a slot is free again when the warps that compute it have arrived (the fetching warp arrives for the rest). Q
 * and O of a warp's 16 rows stay in registers for the whole unit.
 *
 * A key that a row does not see scores -inf; values of V outside a slice are zeroed in registers, as 0 x NaN is NaN. A
 * row that sees nothing has no destination here; what it gets is written by the merge.
 */
#include "device.h"
#include "hopper.cuh"

#define THREADS ((DEVICE_WARPS + 1) * 32)
#define STAGE_BYTES 4096u /* of a warp: its Q on the way in, 64 columns of its O on the way out */
#define WORK_SLOTS 4u

/* Slots of the ring: what 227 KB (sm_90) or 163 KB (sm_80) leave room for. */
__host__ __device__ constexpr uint32_t ring_slots(uint32_t dim, bool large)
{
	return dim == 64 && large ? 23 : (large ? 12u * 128 : 8u * 128) / dim;
}

__host__ __device__ constexpr uint32_t slot_bytes(uint32_t dim)
{
	return DEVICE_SLOT_GROUPS * 32 * dim;
}

/* Of an entry, as the fetching warp hands it on. */
struct work {
	struct device_unit unit;
	uint32_t head;
	uint32_t pad[3];
};

struct warp_sums {
	float max, sum;
};

template <uint32_t DIM, uint32_t SLOTS> struct layout {
	static constexpr uint32_t stage = SLOTS * slot_bytes(DIM);
	static constexpr uint32_t notes = stage + DEVICE_WARPS * STAGE_BYTES; /* struct device_slot of each slot */
	static constexpr uint32_t sums = notes + SLOTS * sizeof(struct device_slot);
	static constexpr uint32_t work = sums + DEVICE_WARPS * DEVICE_BLOCK_ROWS * sizeof(struct warp_sums);
	static constexpr uint32_t full = work + WORK_SLOTS * sizeof(struct work);
	static constexpr uint32_t empty = full + SLOTS * 8;
	static constexpr uint32_t work_full = empty + SLOTS * 8;
	static constexpr uint32_t work_empty = work_full + WORK_SLOTS * 8;
	static constexpr uint32_t issued = work_empty + WORK_SLOTS * 8;
	static constexpr uint32_t bytes = issued + 8;
};

static_assert(layout<128, ring_slots(128, true)>::bytes <= 232448, "shared memory of sm_90");
static_assert(layout<256, ring_slots(256, true)>::bytes <= 232448, "shared memory of sm_90");
static_assert(layout<64, ring_slots(64, true)>::bytes <= 232448, "shared memory of sm_90");
static_assert(layout<64, ring_slots(64, false)>::bytes <= 166912, "shared memory of sm_80");

#if __CUDA_ARCH__ >= 800

#if __CUDA_ARCH__ >= 900
#define LARGE true
#else
#define LARGE false
#endif

/* ---- the fetching warp ------------------------------------------------------------------------------------------- */

struct fetch {
	const struct device_attend *a;
	char *shared;
	uint32_t lane;
	uint32_t slot; /* of the ring */
	uint32_t parity;
	uint32_t n_issued; /* since the launch */
};

/* Copies the groups of a slot and its note; the barrier knows how much comes. */
template <uint32_t DIM>
__device__ inline void fetch_copy(const struct fetch &f, uint32_t to, uint32_t note, uint32_t full, const char *head,
				  const uint32_t (&source)[DEVICE_SLOT_GROUPS], const struct device_slot *from)
{
	constexpr uint32_t group_bytes = 32 * DIM, step = group_bytes / DEVICE_SOURCE_BYTES;

#if __CUDA_ARCH__ >= 900
	uint32_t n = 0;

	if (f.lane != 0)
		return;
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++)
		n += source[j] != DEVICE_NONE;
	barrier_expect(full, n * group_bytes + (uint32_t)sizeof(*from));
	bulk_copy(note, from, sizeof(*from), full);
	if (n == 4 && source[1] == source[0] + step && source[2] == source[0] + 2 * step &&
	    source[3] == source[0] + 3 * step) {
		bulk_copy(to, head + (uint64_t)source[0] * DEVICE_SOURCE_BYTES, 4 * group_bytes, full);
		return;
	}
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j += 2) {
		const char *at = head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES;

		if (source[j] == DEVICE_NONE)
			break;
		if (source[j + 1] == source[j] + step) {
			bulk_copy(to + j * group_bytes, at, 2 * group_bytes, full);
			continue;
		}
		bulk_copy(to + j * group_bytes, at, group_bytes, full);
		if (source[j + 1] != DEVICE_NONE)
			bulk_copy(to + (j + 1) * group_bytes, head + (uint64_t)source[j + 1] * DEVICE_SOURCE_BYTES,
				  group_bytes, full);
	}
#else
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
		const char *at = head + (uint64_t)source[j] * DEVICE_SOURCE_BYTES;

		for (uint32_t i = f.lane * 16; source[j] != DEVICE_NONE && i < group_bytes; i += 32 * 16)
			copy_16(to + j * group_bytes + i, at + i);
	}
	if (f.lane < sizeof(*from) / 16)
		copy_16(note + f.lane * 16, (const char *)from + f.lane * 16);
	copy_arrive(full);
	(void)step;
#endif
}

template <uint32_t DIM, uint32_t SLOTS>
__device__ inline void fetch_unit(struct fetch &f, const struct device_unit &unit, uint32_t head)
{
	typedef layout<DIM, SLOTS> at;
	const char *pool = f.a->pool + head * f.a->shape.head_bytes;
	uint32_t base = shared_address(f.shared);

	for (uint32_t first = 0; first < unit.n_slots; first += 32) {
		uint32_t n = unit.n_slots - first < 32 ? unit.n_slots - first : 32;
		uint32_t mine[DEVICE_SLOT_GROUPS] = {0}, warps = 0;

		if (f.lane < n) {
			uint4 loaded = *(const uint4 *)&f.a->sources[unit.slot + first + f.lane];

			mine[0] = loaded.x;
			mine[1] = loaded.y;
			mine[2] = loaded.z;
			mine[3] = loaded.w;
			warps = f.a->warps[unit.slot + first + f.lane];
		}
		for (uint32_t i = 0; i < n; i++) {
			uint32_t source[DEVICE_SLOT_GROUPS], empty = base + at::empty + f.slot * 8;
			uint32_t idle = DEVICE_WARPS - __popc(__shfl_sync(~0u, warps, i));

			for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++)
				source[j] = __shfl_sync(~0u, mine[j], i);
			barrier_wait(empty, f.parity ^ 1);
			if (f.lane < idle)
				barrier_arrive(empty);
			__syncwarp();
			fetch_copy<DIM>(f, base + f.slot * slot_bytes(DIM),
					base + at::notes + f.slot * (uint32_t)sizeof(struct device_slot),
					base + at::full + f.slot * 8, pool, source, &f.a->slots[unit.slot + first + i]);
			f.n_issued++;
			if (f.lane == 0)
				store_release(base + at::issued, f.n_issued);
			f.slot++;
			if (f.slot == SLOTS) {
				f.slot = 0;
				f.parity ^= 1;
			}
		}
	}
}

__device__ inline uint32_t draw_ticket(const struct device_attend &a, uint32_t lane)
{
	uint32_t ticket = 0;

	if (lane == 0)
		ticket = gridDim.x + atomicAdd(&a.ticket[0], 1);
	return __shfl_sync(~0u, ticket, 0);
}

/* The last block to end leaves the counters as it found them. */
__device__ inline void return_tickets(const struct device_attend &a)
{
	if (atomicAdd(&a.ticket[1], 1) != gridDim.x - 1)
		return;
	a.ticket[0] = 0;
	a.ticket[1] = 0;
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void fetch_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	struct fetch f = {&a, shared, threadIdx.x % 32, 0, 0, 0};
	uint32_t n_entries = a.n_units * a.shape.n_kv_heads, base = shared_address(shared);
	uint32_t ticket = blockIdx.x; /* the first ones are dealt, what follows is drawn */

	for (uint32_t i = 0;; i++) {
		uint32_t slot = i % WORK_SLOTS, next = ticket;
		struct work *work = (struct work *)(shared + at::work) + slot;
		struct device_unit unit = {};
		uint32_t head = ticket % a.shape.n_kv_heads;

		unit.blocks_log2 = DEVICE_NONE;
		if (ticket < n_entries) {
			unit = a.units[ticket / a.shape.n_kv_heads];
			next = draw_ticket(a, f.lane);
		}
		barrier_wait(base + at::work_empty + slot * 8, (i / WORK_SLOTS & 1) ^ 1);
		if (f.lane == 0) {
			work->unit = unit;
			work->head = head;
			barrier_arrive(base + at::work_full + slot * 8);
		}
		__syncwarp();
		if (ticket >= n_entries)
			break;
		fetch_unit<DIM, SLOTS>(f, unit, head);
		ticket = next;
	}
	if (f.lane == 0)
		return_tickets(a);
}

/* ---- the warps that compute -------------------------------------------------------------------------------------- */

/* What a warp knows of its unit. Lane i < 16 holds what concerns row i of the block as a whole (mine_*). */
struct warp_unit {
	struct device_unit unit;
	uint32_t head;
	uint32_t block, split, n_splits;
	uint64_t mine_q, mine_o, mine_lse; /* of the row and head; 0: none */
	uint32_t mine_dest; /* entry of the partials, DEVICE_NONE: mine_o, DEVICE_DEST_NOTHING */
	uint32_t token[2]; /* of the lane's rows, lane / 4 and 8 more */
	int32_t pos[2];
};

template <uint32_t DIM> struct warp_state {
	float o[DIM / 8][4];
	float max[2], sum[2]; /* of the lane's rows; sum of the lane's columns */
	uint32_t q[DIM / 16][4];
};

__device__ inline void unit_rows(const struct device_attend &a, struct warp_unit &w, uint32_t lane, uint32_t dim)
{
	uint32_t group = a.shape.group, row = w.block * DEVICE_BLOCK_ROWS + lane % DEVICE_BLOCK_ROWS;
	uint32_t token = row / group, head = row % group, pos = 0;

	w.mine_q = w.mine_o = w.mine_lse = 0;
	w.mine_dest = DEVICE_DEST_NOTHING;
	if (token < w.unit.n_rows) {
		const struct device_row *at = &a.rows[w.unit.row + token];
		uint32_t q_head = w.head * group + head;
		uint32_t dest = a.dests[w.unit.dest + token];

		pos = at->pos;
		w.mine_q = at->q + (uint64_t)q_head * dim * 2;
		w.mine_o = at->o ? at->o + (uint64_t)q_head * dim * 2 : 0;
		w.mine_lse = at->lse ? at->lse + q_head * 4 : 0;
		w.mine_dest = dest < DEVICE_DEST_NOTHING ? dest * a.shape.n_kv_heads * group + q_head : dest;
	}
	for (uint32_t i = 0; i < 2; i++) {
		w.pos[i] = (int32_t)__shfl_sync(~0u, pos, lane / 4 + 8 * i);
		w.token[i] = __shfl_sync(~0u, token, lane / 4 + 8 * i);
	}
}

__device__ inline uint4 load_chunk(uint64_t from, bool aligned)
{
	if (aligned)
		return *(const uint4 *)from;

	const uint16_t *at = (const uint16_t *)from;

	return make_uint4(at[0] | (uint32_t)at[1] << 16, at[2] | (uint32_t)at[3] << 16, at[4] | (uint32_t)at[5] << 16,
			  at[6] | (uint32_t)at[7] << 16);
}

/* Through the warp's stage, at most 128 columns at a time: rows of 256 bytes, chunk c of row r at c ^ (r mod 8). */
template <uint32_t DIM>
__device__ inline void load_q(const struct device_attend &a, const struct warp_unit &w, char *stage, uint32_t lane,
			      struct warp_state<DIM> &s)
{
	constexpr uint32_t columns = DIM < 128 ? DIM : 128, chunks = columns / 8;

#pragma unroll
	for (uint32_t pass = 0; pass < DIM / columns; pass++) {
		__syncwarp();
#pragma unroll 8
		for (uint32_t i = lane; i < DEVICE_BLOCK_ROWS * chunks; i += 32) {
			uint32_t row = i / chunks, chunk = i % chunks;
			uint64_t from = __shfl_sync(~0u, w.mine_q, row);
			uint4 value = make_uint4(0, 0, 0, 0);

			if (from)
				value = load_chunk(from + (pass * columns + chunk * 8) * 2, a.shape.aligned);
			*(uint4 *)(stage + row * 256 + ((chunk ^ (row & 7)) << 4)) = value;
		}
		__syncwarp();
#pragma unroll
		for (uint32_t k = 0; k < columns / 16; k++) {
			uint32_t row = lane % 16, chunk = 2 * k + lane / 16;

			load_matrix(s.q[pass * columns / 16 + k],
				    shared_address(stage) + row * 256 + ((chunk ^ (row & 7)) << 4));
		}
	}
	__syncwarp();
}

/* Bits of the keys 2c and 2c + 1 of a group, c the lane's column, that lie in it. */
__device__ inline uint32_t value_bits(const struct device_group &group, uint32_t lane)
{
	uint32_t key = lane % 4 * 2, bits = 0;

	if (key >= group.first && key < group.end)
		bits |= 0xffffu;
	if (key + 1 >= group.first && key + 1 < group.end)
		bits |= 0xffff0000u;
	return bits;
}

__device__ inline void mask_scores(float (&scores)[4], const struct device_group &group, const struct warp_unit &w,
				   uint32_t lane)
{
	int32_t key = (int32_t)(lane % 4 * 2);

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		int32_t end = w.pos[i] - group.pos + 1;

		end = end < group.end ? end : group.end;
		if (w.token[i] < group.row_begin || w.token[i] >= group.row_end)
			end = 0;
		if (key < group.first || key >= end)
			scores[2 * i] = -INFINITY;
		if (key + 1 < group.first || key + 1 >= end)
			scores[2 * i + 1] = -INFINITY;
	}
}

/* New maxima of the lane's rows; what was summed so far shrinks accordingly. */
template <uint32_t DIM>
__device__ inline void raise_max(struct warp_state<DIM> &s, const float (&scores)[DEVICE_SLOT_GROUPS][4])
{
	float scale[2];
	bool same = true;

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		float max = s.max[i];

#pragma unroll
		for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++)
			max = fmaxf(max, fmaxf(scores[j][2 * i], scores[j][2 * i + 1]));
		max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
		max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
		scale[i] = max == s.max[i] ? 1 : exp2_fast(s.max[i] - max);
		same = same && max == s.max[i];
		s.max[i] = max;
	}
	if (__all_sync(~0u, same))
		return;
	s.sum[0] *= scale[0];
	s.sum[1] *= scale[1];
#pragma unroll
	for (uint32_t n = 0; n < DIM / 8; n++) {
		s.o[n][0] *= scale[0];
		s.o[n][1] *= scale[0];
		s.o[n][2] *= scale[1];
		s.o[n][3] *= scale[1];
	}
}

/* Folds a slot, whose groups begin at the shared address. */
template <typename DTYPE, uint32_t DIM>
__device__ inline void fold_slot(const struct device_attend &a, const struct warp_unit &w, uint32_t at,
				 const struct device_slot *note, bool plain, uint32_t lane, struct warp_state<DIM> &s)
{
	constexpr uint32_t group_bytes = 32 * DIM;
	float scores[DEVICE_SLOT_GROUPS][4] = {};
	uint32_t row = lane % 8;

#pragma unroll
	for (uint32_t k = 0; k < DIM / 32; k++) {
		uint32_t chunk = k * 4 + lane / 8;
		uint32_t from = at + chunk / 8 * 1024 + row * 128 + (((chunk & 7) ^ row) << 4);

#pragma unroll
		for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
			uint32_t b[4];

			load_matrix(b, from + j * group_bytes);
			DTYPE::multiply(scores[j], s.q[2 * k], b[0], b[1]);
			DTYPE::multiply(scores[j], s.q[2 * k + 1], b[2], b[3]);
		}
	}
#pragma unroll
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[j][i] *= a.shape.scale_log2;
		if (!plain)
			mask_scores(scores[j], note->groups[j], w, lane);
	}
	raise_max<DIM>(s, scores);

	uint32_t p[DEVICE_SLOT_GROUPS / 2][4], bits[DEVICE_SLOT_GROUPS];
	float low[2];

#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
		low[i] = s.max[i] == -INFINITY ? 0 : s.max[i];
#pragma unroll
	for (uint32_t j = 0; j < DEVICE_SLOT_GROUPS; j++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[j][i] = exp2_fast(scores[j][i] - low[i / 2]);
		s.sum[0] += scores[j][0] + scores[j][1];
		s.sum[1] += scores[j][2] + scores[j][3];
		p[j / 2][j % 2 * 2] = DTYPE::pack(scores[j][0], scores[j][1]);
		p[j / 2][j % 2 * 2 + 1] = DTYPE::pack(scores[j][2], scores[j][3]);
		bits[j] = plain ? ~0u : value_bits(note->groups[j], lane);
	}
#pragma unroll
	for (uint32_t n = 0; n < DIM / 16; n++) {
		uint32_t chunk = 2 * n + lane / 16;
		uint32_t from = at + group_bytes / 2 + lane / 8 % 2 * group_bytes + chunk / 8 * 1024 + row * 128 +
				(((chunk & 7) ^ row) << 4);

#pragma unroll
		for (uint32_t t = 0; t < DEVICE_SLOT_GROUPS / 2; t++) {
			uint32_t b[4];

			load_matrix_transposed(b, from + t * 2 * group_bytes);
			if (!plain) {
				b[0] &= bits[2 * t];
				b[1] &= bits[2 * t + 1];
				b[2] &= bits[2 * t];
				b[3] &= bits[2 * t + 1];
			}
			DTYPE::multiply(s.o[2 * n], p[t], b[0], b[1]);
			DTYPE::multiply(s.o[2 * n + 1], p[t], b[2], b[3]);
		}
	}
}

/* ---- the end of a unit ------------------------------------------------------------------------------------------- */

/* The warps of a row block wait for each other. Units of other shapes, which other warps may be at, have other barriers. */
__device__ inline void block_sync(const struct warp_unit &w)
{
	if (w.n_splits == 1)
		__syncwarp();
	else
		named_barrier((1u << w.unit.blocks_log2) + w.block, w.n_splits * 32);
}

__device__ inline uint32_t warp_of(const struct warp_unit &w, uint32_t split)
{
	return w.block + (split << w.unit.blocks_log2);
}

/* max and sum over the warps of the block, of row lane % 16. */
__device__ inline struct warp_sums add_splits(const struct warp_unit &w, const struct warp_sums *sums, uint32_t lane)
{
	struct warp_sums all = {-INFINITY, 0};

	for (uint32_t i = 0; i < w.n_splits; i++)
		all.max = fmaxf(all.max, sums[warp_of(w, i) * DEVICE_BLOCK_ROWS + lane % 16].max);
	for (uint32_t i = 0; i < w.n_splits; i++) {
		struct warp_sums part = sums[warp_of(w, i) * DEVICE_BLOCK_ROWS + lane % 16];

		if (part.max != -INFINITY)
			all.sum += part.sum * exp2_fast(part.max - all.max);
	}
	return all;
}

template <typename DTYPE> __device__ inline void store_output(uint64_t to, const float4 &v, float scale, bool aligned)
{
	uint2 packed = make_uint2(DTYPE::pack(v.x * scale, v.y * scale), DTYPE::pack(v.z * scale, v.w * scale));
	uint16_t *at = (uint16_t *)to;

	if (aligned) {
		*(uint2 *)to = packed;
		return;
	}
	at[0] = (uint16_t)packed.x;
	at[1] = (uint16_t)(packed.x >> 16);
	at[2] = (uint16_t)packed.y;
	at[3] = (uint16_t)(packed.y >> 16);
}

/* 64 columns of the lane's rows into the warp's stage: blocks of 8 columns, b of row r at b ^ (r mod 8). */
template <uint32_t DIM>
__device__ inline void stage_o(const struct warp_state<DIM> &s, uint32_t pass, const float (&factor)[2], float *stage,
			       uint32_t lane)
{
#pragma unroll
	for (uint32_t n = 0; n < 8; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t row = lane / 4 + 8 * i;
			float2 v = make_float2(s.o[pass * 8 + n][2 * i] * factor[i],
					       s.o[pass * 8 + n][2 * i + 1] * factor[i]);

			*(float2 *)&stage[row * 64 + ((n ^ (row & 7)) << 3) + lane % 4 * 2] = v;
		}
	}
}

template <typename DTYPE, uint32_t DIM>
__device__ inline void finish_unit(const struct device_attend &a, const struct warp_unit &w, char *shared_stage,
				   struct warp_sums *sums, uint32_t warp, uint32_t lane, struct warp_state<DIM> &s)
{
	float *stages = (float *)shared_stage, factor[2];
	struct warp_sums all;

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		s.sum[i] += __shfl_xor_sync(~0u, s.sum[i], 1);
		s.sum[i] += __shfl_xor_sync(~0u, s.sum[i], 2);
		if (lane % 4 == 0)
			sums[warp * DEVICE_BLOCK_ROWS + lane / 4 + 8 * i] = (struct warp_sums){s.max[i], s.sum[i]};
	}
	block_sync(w);
	all = add_splits(w, sums, lane);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		float max = __shfl_sync(~0u, all.max, lane / 4 + 8 * i);

		factor[i] = s.max[i] == -INFINITY ? 0 : exp2_fast(s.max[i] - max);
	}

	float scale = all.sum > 0 ? 1 / all.sum : 0;

	if (w.split == 0 && lane < 16) {
		if (w.mine_dest < DEVICE_DEST_NOTHING)
			*(float2 *)&a.part_stats[(uint64_t)w.mine_dest * 2] = make_float2(all.max, all.sum);
		else if (w.mine_dest == DEVICE_NONE && w.mine_o && w.mine_lse)
			*(float *)w.mine_lse =
				all.sum > 0 ? (all.max + log2f(all.sum)) * 0.6931471805599453f : -INFINITY;
	}
#pragma unroll
	for (uint32_t pass = 0; pass < DIM / 64; pass++) {
		stage_o<DIM>(s, pass, factor, stages + warp * (STAGE_BYTES / 4), lane);
		block_sync(w);
		for (uint32_t i = w.split * 32 + lane; i < 256; i += w.n_splits * 32) {
			uint32_t row = i / 16, block = i % 16 / 2, half = i % 2;
			uint32_t at = row * 64 + ((block ^ (row & 7)) << 3) + half * 4;
			float4 sum = *(const float4 *)&stages[warp_of(w, 0) * (STAGE_BYTES / 4) + at];
			uint64_t column = pass * 64 + block * 8 + half * 4;
			uint32_t dest = __shfl_sync(~0u, w.mine_dest, row);
			uint64_t to = __shfl_sync(~0u, w.mine_o, row);
			float row_scale = __shfl_sync(~0u, scale, row);

			for (uint32_t k = 1; k < w.n_splits; k++) {
				float4 part = *(const float4 *)&stages[warp_of(w, k) * (STAGE_BYTES / 4) + at];

				sum.x += part.x;
				sum.y += part.y;
				sum.z += part.z;
				sum.w += part.w;
			}
			if (dest < DEVICE_DEST_NOTHING)
				*(float4 *)&a.part_o[(uint64_t)dest * DIM + column] = sum;
			else if (dest == DEVICE_NONE && to)
				store_output<DTYPE>(to + column * 2, sum, row_scale, a.shape.aligned);
		}
		block_sync(w);
	}
}

/* A warp that has nothing to do in slots before may come more than a round of the ring early; the parity of the barrier
 * means something only once this round's copy is under way. */
__device__ inline void wait_issued(uint32_t at, uint32_t index, uint32_t &issued)
{
	while (issued <= index)
		issued = load_acquire(at);
}

template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ inline void compute_unit(const struct device_attend &a, const struct work &work, char *shared,
				    uint32_t first)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = shared_address(shared);
	const struct device_slot *notes = (const struct device_slot *)(shared + at::notes);
	struct warp_unit w = {work.unit, work.head};
	uint32_t issued = 0;
	struct warp_state<DIM> s;

	w.block = warp & ((1u << w.unit.blocks_log2) - 1);
	w.split = warp >> w.unit.blocks_log2;
	w.n_splits = DEVICE_WARPS >> w.unit.blocks_log2;
	unit_rows(a, w, lane, DIM);
	load_q<DIM>(a, w, shared + at::stage + warp * STAGE_BYTES, lane, s);
	s.max[0] = s.max[1] = -INFINITY;
	s.sum[0] = s.sum[1] = 0;
#pragma unroll
	for (uint32_t n = 0; n < DIM / 8; n++)
		s.o[n][0] = s.o[n][1] = s.o[n][2] = s.o[n][3] = 0;
	for (uint32_t from = 0; from < w.unit.n_slots; from += 32) {
		uint32_t slot = from + lane;
		uint32_t warps = slot < w.unit.n_slots ? a.warps[w.unit.slot + slot] : 0;
		uint32_t left = __ballot_sync(~0u, warps >> warp & 1);

		while (left) {
			uint32_t index = first + from + __ffs(left) - 1, in_ring = index % SLOTS;
			const struct device_slot *note = &notes[in_ring];

			left &= left - 1;
			wait_issued(base + at::issued, index, issued);
			barrier_wait(base + at::full + in_ring * 8, index / SLOTS & 1);
			fold_slot<DTYPE, DIM>(a, w, base + in_ring * slot_bytes(DIM), note, note->plain >> warp & 1, lane,
					      s);
			__syncwarp();
			if (lane == 0)
				barrier_arrive(base + at::empty + in_ring * 8);
		}
	}
	finish_unit<DTYPE, DIM>(a, w, shared + at::stage, (struct warp_sums *)(shared + at::sums), warp, lane, s);
}

template <typename DTYPE, uint32_t DIM, uint32_t SLOTS>
__device__ void compute_run(const struct device_attend &a, char *shared)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(shared), lane = threadIdx.x % 32, first = 0;

	for (uint32_t i = 0;; i++) {
		uint32_t slot = i % WORK_SLOTS;
		struct work work;

		barrier_wait(base + at::work_full + slot * 8, i / WORK_SLOTS & 1);
		work = ((const struct work *)(shared + at::work))[slot];
		__syncwarp();
		if (lane == 0)
			barrier_arrive(base + at::work_empty + slot * 8);
		if (work.unit.blocks_log2 == DEVICE_NONE)
			return;
		compute_unit<DTYPE, DIM, SLOTS>(a, work, shared, first);
		first += work.unit.n_slots;
	}
}

/* The blocks together bring the program into the second-level cache, as reading it is a chain of misses. */
__device__ inline void prefetch(const void *from, uint64_t bytes)
{
	uint64_t i = ((uint64_t)threadIdx.x * gridDim.x + blockIdx.x) * 128, step = (uint64_t)blockDim.x * gridDim.x * 128;

	for (; i < bytes; i += step)
		asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + i));
}

__device__ inline void prefetch_program(const struct device_attend &a)
{
	prefetch(a.units, (uint64_t)a.n_units * sizeof(*a.units));
	prefetch(a.sources, (uint64_t)a.n_slots * sizeof(*a.sources));
	prefetch(a.slots, (uint64_t)a.n_slots * sizeof(*a.slots));
	prefetch(a.warps, a.n_slots);
	prefetch(a.rows, (uint64_t)a.n_rows * sizeof(*a.rows));
	prefetch(a.dests, (uint64_t)a.n_dests * sizeof(*a.dests));
}

template <uint32_t DIM, uint32_t SLOTS> __device__ void init_barriers(char *shared)
{
	typedef layout<DIM, SLOTS> at;
	uint32_t base = shared_address(shared);

	if (threadIdx.x == 0)
		*(uint32_t *)(shared + at::issued) = 0;

	for (uint32_t i = threadIdx.x; i < SLOTS; i += blockDim.x) {
		barrier_init(base + at::full + i * 8, LARGE ? 1 : 32);
		barrier_init(base + at::empty + i * 8, DEVICE_WARPS);
	}
	for (uint32_t i = threadIdx.x; i < WORK_SLOTS; i += blockDim.x) {
		barrier_init(base + at::work_full + i * 8, 1);
		barrier_init(base + at::work_empty + i * 8, DEVICE_WARPS);
	}
#if __CUDA_ARCH__ >= 900
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
#endif

template <typename DTYPE, uint32_t DIM>
__global__ void __launch_bounds__(THREADS, 1) attend_kernel(const __grid_constant__ struct device_attend a)
{
#if __CUDA_ARCH__ >= 800
	constexpr uint32_t slots = ring_slots(DIM, LARGE);
	extern __shared__ __align__(1024) char shared[];

	init_barriers<DIM, slots>(shared);
	__syncthreads();
	launch_wait();
	launch_next();
	prefetch_program(a);
	if (threadIdx.x >= DEVICE_WARPS * 32)
		fetch_run<DIM, slots>(a, shared);
	else
		compute_run<DTYPE, DIM, slots>(a, shared);
#endif
}

/* ---- host -------------------------------------------------------------------------------------------------------- */

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
	return dim == 64  ? layout<64, ring_slots(64, true)>::bytes
	       : dim == 128 ? layout<128, ring_slots(128, true)>::bytes
			    : layout<256, ring_slots(256, true)>::bytes;
}

static uint32_t small_bytes(uint32_t dim)
{
	return dim == 64  ? layout<64, ring_slots(64, false)>::bytes
	       : dim == 128 ? layout<128, ring_slots(128, false)>::bytes
			    : layout<256, ring_slots(256, false)>::bytes;
}

static cudaError_t shared_bytes(uint32_t dim, bool bf16, uint32_t *ret)
{
	struct cudaFuncAttributes attributes;
	cudaError_t r = cudaFuncGetAttributes(&attributes, (const void *)find_kernel(dim, bf16));

	if (r == cudaSuccess)
		*ret = attributes.ptxVersion >= 90 ? large_bytes(dim) : small_bytes(dim);
	return r;
}

static uint32_t known_bytes[2][3]; /* of shared memory, by dtype and dim; written by device_attend_init */

static uint32_t *known(uint32_t dim, bool bf16)
{
	return &known_bytes[bf16][dim == 64 ? 0 : dim == 128 ? 1 : 2];
}

extern "C" int device_attend_init(uint32_t head_dim, bool bf16)
{
	uint32_t bytes;
	cudaError_t r = shared_bytes(head_dim, bf16, &bytes);

	if (r == cudaSuccess)
		r = cudaFuncSetAttribute((const void *)find_kernel(head_dim, bf16),
					 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	if (r == cudaSuccess)
		*known(head_dim, bf16) = bytes;
	return r;
}

extern "C" int device_attend(const struct device_attend *attend, device_stream stream)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	struct device_attend copy = *attend;

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(attend->n_blocks);
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = *known(attend->shape.head_dim, attend->shape.bf16);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	return cudaLaunchKernelEx(&config, find_kernel(attend->shape.head_dim, attend->shape.bf16), copy);
}
