/*
 * merge.c - merges parts of a softmax-weighted sum whose O lies in memory, by the steps of
 * merge_state.h. Plain C, one rounding an operation: the same bits whoever merges. What is empty
 * is told apart first, so that a merge with nothing changes no bit.
 */
#include "merge.h"
#include "accesses.h"

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

static ACCESSES_TOLD void add(float *o, float ours, const float *part_o, float theirs, uint32_t n)
{
	access_aligned(o, sizeof(*o));
	access_aligned(part_o, sizeof(*part_o));
	access_write(o, n * sizeof(*o));
	access_read(part_o, n * sizeof(*part_o));
	for (uint32_t i = 0; i < n; i++)
		o[i] = o[i] * ours + part_o[i] * theirs;
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

	float ours = merge_raise(state, fmaxf(state->max, part->max));
	float theirs = merge_take(state, part);

	add(o, ours, part_o, theirs, n);
}

void merge_fold_entries(float *to, const float *from, size_t n_entries, uint32_t head_dim)
{
	size_t n = 2 + (size_t)head_dim;

	for (size_t i = 0; i < n_entries; i++, to += n, from += n)
		merge_fold((struct merge_state *)to, to + 2, (const struct merge_state *)from,
			   from + 2, head_dim);
}
