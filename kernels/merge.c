/* merge.c - merges parts of a softmax-weighted sum; plain C, one rounding an operation. */
#include "merge.h"

#include "merge_weight.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void merge_empty(struct merge_state *state, float *o, uint32_t n)
{
	*state = (struct merge_state){.max = -INFINITY};
	memset(o, 0, n * sizeof(*o));
}

/* Of no keys; scores that are no numbers have a sum that is none, which is not lost. */
static bool is_empty(const struct merge_state *state)
{
	return state->max == -INFINITY && state->sum == 0;
}

void merge_fold(struct merge_state *state, float *o, const struct merge_state *part,
		const float *part_o, uint32_t n)
{
	if (is_empty(part))
		return;
	if (is_empty(state)) {
		*state = *part;
		memcpy(o, part_o, n * sizeof(*o));
		return;
	}

	float max = fmaxf(state->max, part->max);
	float ours = MERGE_WEIGHT(state->max, max, exp2f);
	float theirs = MERGE_WEIGHT(part->max, max, exp2f);

	*state = (struct merge_state){max, state->sum * ours + part->sum * theirs};
	for (uint32_t i = 0; i < n; i++)
		o[i] = o[i] * ours + part_o[i] * theirs;
}

void merge_fold_entries(float *to, const float *from, size_t n_entries, uint32_t head_dim)
{
	size_t n = 2 + (size_t)head_dim;

	for (size_t i = 0; i < n_entries; i++, to += n, from += n)
		merge_fold((struct merge_state *)to, to + 2, (const struct merge_state *)from,
			   from + 2, head_dim);
}

float merge_scale(const struct merge_state *state)
{
	return state->sum == 0.0f ? 0.0f : 1.0f / state->sum;
}

float merge_lse(const struct merge_state *state)
{
	if (state->sum == 0.0f)
		return -INFINITY;
	return (state->max + log2f(state->sum)) * (float)M_LN2;
}
