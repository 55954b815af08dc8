/*
 * merge.h - the state of a softmax-weighted sum over part of the keys, and how two parts become
 * one.
 *
 *      max = largest score (times log2 e)
 *      sum = sum of 2^(score - max)
 *      o   = sum of 2^(score - max) x V
 *
 * The merge of disjoint sets of keys is associative and commutative (up to rounding), the state of
 * no keys, (-inf, 0, 0), is its neutral element, exactly. This is the one definition; whoever
 * exchanges parts between devices uses it, and kernels of a GPU, which merge several parts at once,
 * its weights (merge_weight.h). (Online normalizer calculation for softmax, arXiv:1805.02867;
 * recursive attention states of Cascade inference.)
 */
#ifndef COPPICE_MERGE_H
#define COPPICE_MERGE_H

#include <stddef.h>
#include <stdint.h>

struct merge_state {
	float max;
	float sum;
};

void merge_empty(struct merge_state *state, float *o, uint32_t n);
/* state, o := merge of it and part. A part is taken over bit for bit where state is empty, and
 * changes nothing where it is empty itself. */
void merge_fold(struct merge_state *state, float *o, const struct merge_state *part,
		const float *part_o, uint32_t n);
/* n_entries of max, sum and output, one after the other ([n_entries][2 + head_dim]): to := merge of
 * it and from. */
void merge_fold_entries(float *to, const float *from, size_t n_entries, uint32_t head_dim);
/* What o must be multiplied with to be the output: 0 where there were no keys. */
float merge_scale(const struct merge_state *state);
/* Natural logarithm of the sum of e^score; -inf where there were no keys. */
float merge_lse(const struct merge_state *state);

#endif
