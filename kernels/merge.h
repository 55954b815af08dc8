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
 * its steps (merge_state.h). (Online normalizer calculation for softmax, arXiv:1805.02867;
 * recursive attention states of Cascade inference.)
 */
#ifndef COPPICE_MERGE_H
#define COPPICE_MERGE_H

#include "merge_state.h"

#include <stddef.h>
#include <stdint.h>

void merge_empty(struct merge_state *state, float *o, uint32_t n);
/* state, o := merge of it and part. A part is taken over bit for bit where state is empty, and
 * changes nothing where it is empty itself. */
void merge_fold(struct merge_state *state, float *o, const struct merge_state *part,
		const float *part_o, uint32_t n);
/* n_entries of max, sum and output, one after the other ([n_entries][2 + head_dim]): to := merge of
 * it and from. */
void merge_fold_entries(float *to, const float *from, size_t n_entries, uint32_t head_dim);

#endif
