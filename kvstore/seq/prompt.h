/*
 * prompt.h - what of a sequence's prompt is not computed: its token ids, and who is charged for
 * them.
 */
#ifndef COPPICE_KVSTORE_PROMPT_H
#define COPPICE_KVSTORE_PROMPT_H

#include "kvstore/tree/core.h"

/* Where token ids come from: at most one of give and of. */
struct prompt_from {
	const uint32_t *rest; /* what comes next; NULL: nothing */
	uint32_t n_rest;
	uint32_t **give; /* as of struct store_open; rest is their end */
	const struct store_seq *of; /* stands at the same place, and has the same prompt */
};

/* A sequence that stands somewhere keeps what comes next: what is given, or another's, as it is,
 * unless more than half of that has come before; else a copy. -ENOMEM; -EDQUOT: its domain's
 * prompts would be more than they may, -ENOBUFS: all prompts, or it would leave too little. */
MUST_CHECK int prompt_take(struct store_seq *q, const struct prompt_from *from);
/* What is left of the prompt is of no interest any more. Of none: nothing. */
void prompt_drop(struct store_seq *q);
/* The sequence has just moved down over ids: the prompt's part is computed, or the sequence has
 * left the prompt. */
void prompt_pass(struct store_seq *q, const uint32_t *ids, uint32_t n);
/* Are these tokens what comes next in the prompt, as far as it goes? */
bool prompt_agrees(const struct store_seq *q, uint32_t n_path, const uint32_t *ids, uint32_t n);
/* Memory that its ids take, as if nobody shared them. */
uint64_t prompt_bytes(const struct store_seq *q);

#endif
