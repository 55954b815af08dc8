/*
 * likeliest.c - what comes of a row of logits, for one instruction set (isa.h).
 *
 * A row is looked through a block at a time: most blocks have nothing that is larger than the least
 * of those kept, which vectors find out.
 */
#include "isa.h"
#include "exp.h"
#include "lanes.h"

#include <math.h>

#define BLOCK 64
#define PARTS 16 /* of a sum or a maximum, whatever the vectors are */

static float largest(const float *x, uint32_t n)
{
	float part[PARTS], max = -INFINITY;
	uint32_t i = 0;
	for (uint32_t j = 0; j < PARTS; j++)
		part[j] = -INFINITY;
	for (; i + PARTS <= n; i += PARTS)
		for (uint32_t j = 0; j < PARTS; j++)
			part[j] = x[i + j] > part[j] ? x[i + j] : part[j];
	for (; i < n; i++)
		max = x[i] > max ? x[i] : max;
	for (uint32_t j = 0; j < PARTS; j++)
		max = part[j] > max ? part[j] : max;
	return max;
}

/* What is no number stays none, which exp_series would not see to. */
ALWAYS_INLINE float weight(float x, float max)
{
	return x == x ? exp_series(x - max) : x;
}

static float sum_of_block(const float *x, float max)
{
	float part[PARTS] = {0}, sum = 0;
	for (uint32_t i = 0; i < BLOCK; i += PARTS)
		for (uint32_t j = 0; j < PARTS; j++)
			part[j] += weight(x[i + j], max);
	for (uint32_t j = 0; j < PARTS; j++)
		sum += part[j];
	return sum;
}

double ROWS_NAME(rows_log_sum)(const float *x, uint32_t n)
{
	const float max = largest(x, n);
	double sum = 0;
	uint32_t i = 0;
	for (; i + BLOCK <= n; i += BLOCK)
		sum += (double)sum_of_block(x + i, max);
	for (; i < n; i++)
		sum += (double)weight(x[i], max);
	return (double)max + log(sum);
}

static bool any_above(const float *x, float least)
{
	uint32_t any = 0;
	for (uint32_t i = 0; i < BLOCK; i++)
		any |= x[i] > least;
	return any;
}

/* Behind all that are as large: those came with lower indices. */
static void insert(struct rows_score *kept, uint32_t last, struct rows_score entry)
{
	uint32_t at = last;
	for (; at > 0 && kept[at - 1].logit < entry.logit; at--)
		kept[at] = kept[at - 1];
	kept[at] = entry;
}

uint32_t ROWS_NAME(rows_likeliest)(struct rows_score *ret, uint32_t n_top, const float *x,
				   uint32_t n)
{
	uint32_t n_kept = 0;
	for (uint32_t i = 0; i < n && n_top; i++) {
		const bool full = n_kept == n_top;
		if (full && i % BLOCK == 0)
			while (i + BLOCK <= n && !any_above(x + i, ret[n_top - 1].logit))
				i += BLOCK;
		if (i < n && (full ? x[i] > ret[n_top - 1].logit : x[i] == x[i])) {
			insert(ret, full ? n_top - 1 : n_kept, (struct rows_score){i, x[i]});
			n_kept += !full;
		}
	}
	return n_kept;
}
