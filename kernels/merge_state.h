/*
 * merge_state.h - the merge of merge.h a step at a time, for C, where O lies in memory, and for
 * kernels of a GPU, which have some columns of it in registers and merge several parts at once.
 *
 *      factor = merge_raise(&state, the greatest max of all)      o := o x factor
 *      weight = merge_take(&state, each part)                     o := o + part's o x weight
 *      output = o x merge_scale(&state), LSE = merge_lse(&state)
 *
 * A part that is an output and an LSE by now is one again by merge_of_lse: the output is its o.
 */
#ifndef COPPICE_MERGE_STATE_H
#define COPPICE_MERGE_STATE_H

#include <math.h>

#define MERGE_LOG2E 1.4426950408889634f
#define MERGE_LN2 0.6931471805599453f

#ifdef __CUDACC__
#define MERGE_INLINE __device__ inline
#else
#define MERGE_INLINE static inline
#endif
/* 2^x; whoever has a faster one names it before. */
#ifndef MERGE_EXP2
#define MERGE_EXP2 exp2f
#endif

struct merge_state {
	float max;
	float sum;
};

/* What a part counts for whose sums are relative to part_max, in sums relative to max, the greatest
 * of all parts'. A part of no keys counts for 0; a part_max that is no number stays none. */
MERGE_INLINE float merge_weight(float part_max, float max)
{
	return part_max == -INFINITY ? 0.0f : MERGE_EXP2(part_max - max);
}

/* Makes the sum relative to max; returns what o is to be multiplied with. */
MERGE_INLINE float merge_raise(struct merge_state *state, float max)
{
	float factor = merge_weight(state->max, max);

	state->max = max;
	state->sum *= factor;
	return factor;
}

/* Adds a part whose max is the state's at most; returns what its o counts for. A sum that is no
 * number is not lost, whatever its max. */
MERGE_INLINE float merge_take(struct merge_state *state, const struct merge_state *part)
{
	float weight = merge_weight(part->max, state->max);

	state->sum += part->sum * weight;
	return weight;
}

/* Of an output and its LSE. */
MERGE_INLINE struct merge_state merge_of_lse(float lse)
{
	struct merge_state state = {lse * MERGE_LOG2E, lse == -INFINITY ? 0.0f : 1.0f};

	return state;
}

/* What o must be multiplied with to be the output: 0 where there were no keys. */
MERGE_INLINE float merge_scale(const struct merge_state *state)
{
	return state->sum == 0.0f ? 0.0f : 1.0f / state->sum;
}

/* Natural logarithm of the sum of e^score; -inf where there were no keys. */
MERGE_INLINE float merge_lse(const struct merge_state *state)
{
	return state->sum == 0.0f ? -INFINITY : (state->max + log2f(state->sum)) * MERGE_LN2;
}

#endif
