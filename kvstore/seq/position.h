/*
 * position.h - where a sequence stands in its tree, and what is left of its prompt.
 */
#ifndef COPPICE_KVSTORE_POSITION_H
#define COPPICE_KVSTORE_POSITION_H

#include "kvstore/tree/claim.h"
#include "kvstore/tree/collapse.h"

/* Every call that changes something begins here: leases that are over end, and where nobody has
 * looked at a node yet, some may become one. */
static inline struct store *position_enter(const struct store_seq *q, uint64_t now_ns)
{
	struct store *s = node_store(q->node);

	pages_release(&s->pages);
	claim_expire(s, now_ns);
	collapse_some(s);
	return s;
}

/* At or below on the same path. The claim stays where it was. */
void position_move_down(struct store_seq *q, struct store_node *n, uint32_t n_path);
/* At or above. The claim has ended. */
void position_move_up(struct store_seq *q, struct store_node *n, uint32_t n_path);
/* Nobody else stands in the node. */
bool position_is_alone(const struct store_seq *q, const struct store_node *n);

/* The sequence has just moved down over ids: the prompt's part is computed, or the sequence has
 * left the prompt. */
void prompt_pass(struct store_seq *q, const uint32_t *ids, uint32_t n);
/* What is left of the prompt is of no interest any more. */
void prompt_drop(struct store_seq *q);
/* Are these tokens what comes next in the prompt, as far as it goes? */
bool prompt_agrees(const struct store_seq *q, uint32_t n_path, const uint32_t *ids, uint32_t n);

#endif
