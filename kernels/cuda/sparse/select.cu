/*
 * select.cu - see select.h.
 *
 * Grid: a warp for each row of masses, which looks for the line between what is kept and what is
 * not: the largest mass such that all that weigh as much do. Masses are in the order of their bits,
 * so that is 31 sums of the row, always in the same order. Of those on the line the ones nearer to
 * the end are kept, as many as it takes. Where masses are no numbers everything is.
 */
#include "select.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>

#define SELECT_WARPS 4u
#define ALL ~0u
#define INFINITY_BITS 0x7f800000u

/* A row: blocks [begin, end) may be left out, of seen ones. */
struct row {
	const float *mass;
	uint32_t begin, end, seen;
	uint32_t n_queries;
	double always, total, need; /* masses; need: NaN where everything is kept */
};

__device__ inline double warp_sum(double sum)
{
#pragma unroll
	for (uint32_t i = 16; i > 0; i /= 2)
		sum += __shfl_xor_sync(ALL, sum, i);
	return sum;
}

/* Mass of blocks [begin, end) that weigh as much as the line, or more. */
__device__ inline double mass_from(const float *mass, uint32_t begin, uint32_t end, uint32_t line)
{
	double sum = 0;

#pragma unroll 8
	for (uint32_t i = begin + threadIdx.x % 32; i < end; i += 32) {
		float m = mass[i];

		sum += __float_as_uint(m) >= line ? (double)m : 0;
	}
	return warp_sum(sum);
}

__device__ inline struct row row_of(const struct device_select &s, uint32_t index)
{
	uint32_t range = index % s.n_ranges, from = s.skip + range * s.block_tokens,
		 left = s.n - from;
	uint32_t to = from + min_u32(left, s.block_tokens);
	uint32_t last, own, recent;
	struct row r = {s.mass + (uint64_t)index * s.n_blocks};

	from = range ? from : 0;
	last = (s.pos + to - 1) / s.block_tokens;
	own = last - (s.pos + from) / s.block_tokens + 1;
	recent = max_u32(s.recent_blocks, own);
	r.n_queries = to - from;
	r.seen = last + 1;
	r.begin = min_u32(s.sink_blocks, r.seen);
	r.end = recent < r.seen - r.begin ? r.seen - recent : r.begin;
	r.always = mass_from(r.mass, 0, r.begin, 0) + mass_from(r.mass, r.end, r.seen, 0);
	r.total = r.always + mass_from(r.mass, r.begin, r.end, 0);
	r.need = s.tau < 1 ? s.tau * r.total : NAN;
	return r;
}

/* Those of the field that are heavier are kept, and some of those that weigh as much. */
struct line {
	uint32_t bits;
	uint32_t n_on; /* of those */
	double kept;
};

__device__ inline struct line find_line(const struct row &r)
{
	uint32_t low = 0, high = INFINITY_BITS + 1;
	struct line line = {INFINITY_BITS, 0, r.always};

	if (r.always >= r.need)
		return line;
	if (!(r.total >= r.need))
		return {0, ALL, r.total};
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (r.always + mass_from(r.mass, r.begin, r.end, middle) >= r.need)
			low = middle;
		else
			high = middle;
	}
	line.bits = low;
	line.kept = r.always + mass_from(r.mass, r.begin, r.end, low + 1);
	for (; line.kept < r.need && line.n_on < r.end - r.begin; line.n_on++)
		line.kept += (double)__uint_as_float(low);
	return line;
}

/* Of blocks [at, at + 32) those that are kept. on: of those on the line, how many still may be. */
__device__ inline uint32_t kept_at(const struct row &r, const struct line &line, uint32_t at,
				   uint32_t *on)
{
	uint32_t i = at + threadIdx.x % 32;
	bool field = i >= r.begin && i < r.end;
	uint32_t bits = field ? __float_as_uint(r.mass[i]) : 0;
	uint32_t kept = __ballot_sync(ALL, i < r.seen && (!field || bits > line.bits));
	uint32_t some = __ballot_sync(ALL, field && bits == line.bits);

	while ((uint32_t)__popc(some) > *on)
		some &= some - 1;
	*on -= __popc(some);
	return kept | some;
}

__global__ void __launch_bounds__(SELECT_WARPS * 32)
	select_kernel(const __grid_constant__ struct device_select s)
{
	uint32_t index = blockIdx.x * SELECT_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32,
		 n_kept = 0;
	uint64_t mine = 0;

	if (index >= s.n_rows)
		return;
	const struct row r = row_of(s, index);
	const struct line line = find_line(r);
	uint32_t on = line.n_on;

	for (uint32_t i = s.n_words; i-- > 0;) {
		uint32_t upper = kept_at(r, line, i * 64 + 32, &on),
			 lower = kept_at(r, line, i * 64, &on);

		n_kept += __popc(upper) + __popc(lower);
		if (lane == i % 32)
			mine = (uint64_t)upper << 32 | lower;
		if (i % 32 == 0 && i + lane < s.n_words)
			s.kept[(uint64_t)index * s.n_words + i + lane] = mine;
	}
	if (lane == 0)
		s.selected[index] = {line.kept, r.total, n_kept, r.seen, r.n_queries, 0};
}

extern "C" int device_select(const struct device_select *select, device_stream stream)
{
	uint32_t n_blocks = ceil_div(select->n_rows, SELECT_WARPS);

	select_kernel<<<n_blocks, SELECT_WARPS * 32, 0, stream>>>(*select);
	return cudaGetLastError();
}
