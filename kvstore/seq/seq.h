/*
 * seq.h - sequences: where one stands, and what is left of its prompt.
 */
#ifndef COPPICE_KVSTORE_SEQ_H
#define COPPICE_KVSTORE_SEQ_H

#include "kvstore/tree/core.h"

/* Every call that changes something begins here: leases that are over end. */
struct store *seq_enter(struct store_seq *q, uint64_t now_ns);
/* To a place at or below on the same path. The claim stays where it was. */
void seq_move_down(struct store_seq *q, struct store_node *n, uint32_t n_path);
/* Nobody else stands in the node. */
bool seq_stands_alone(const struct store_seq *q, const struct store_node *n);
/* The sequence has just moved down over ids: the prompt's part is computed, or the sequence has
 * left the prompt. */
void seq_prompt_pass(struct store_seq *q, const uint32_t *ids, uint32_t n);
/* What is left of the prompt is of no interest any more. */
void seq_prompt_drop(struct store_seq *q);
/* Are these tokens what comes next in the prompt, as far as it goes? */
bool seq_prompt_agrees(const struct store_seq *q, uint32_t n_path, const uint32_t *ids, uint32_t n);

#endif
