/*
 * deft.h - groups led by the KV: each token is read once, with all rows that see it (Yao et al.,
 * "DeFT: Decoding with Flash Tree-attention for Efficient Tree-structured LLM Inference", ICLR
 * 2025, section 3).
 *
 *      node        one item per node, however long
 *      node-chunk  nodes cut at chunk_tokens
 *      flatten     nodes laid end to end depth first, cut into even items of chunk_tokens at most,
 *                  across the borders of nodes; an item's rows are the union of its nodes', bit
 *                  masks say who sees which piece
 */
#ifndef COPPICE_PLAN_DEFT_H
#define COPPICE_PLAN_DEFT_H

#include "proto/must_check.h"
#include "build.h"

MUST_CHECK int deft_plan(struct build *build);

#endif
