/*
 * prompt.c - the part of a prompt that lies behind its sequence's position.
 *
 * Its ids are memory that no pool bounds: who opens prompts and computes none of them would have as
 * much of it as there is. So they are charged to the domain and to the store from the copy to the
 * moment when the prompt is computed, left or closed; what is not there is not copied. Of the last
 * part of what all may have a domain gets no more than it leaves (reserve.h).
 */
#include "prompt.h"

#include "kvstore/base/reserve.h"
#include "kvstore/tree/domain.h"
#include "kvstore/tree/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct store_domain *domain_of(const struct store_seq *q)
{
	return q->node->namespace->holding->domain;
}

static bool fits(uint64_t taken, uint64_t bytes, uint64_t limit)
{
	return limit == 0 || (taken <= limit && bytes <= limit - taken);
}

static bool leaves_enough(const struct store *s, const struct store_domain *d, uint64_t bytes)
{
	const struct store_config *c = &s->config;

	if (c->prompt_bytes == 0 || c->domain_prompt_bytes == 0 || domain_is_owners(c, d->id))
		return true;
	return bytes <= reserve_room(reserve_of(c->prompt_bytes, c->domain_prompt_bytes),
				     d->prompt_bytes, c->prompt_bytes - s->stats.prompt_bytes);
}

uint64_t prompt_bytes(const struct store_seq *q)
{
	return q->n_prompt ? (q->n_prompt - q->prompt_pos) * (uint64_t)sizeof(*q->prompt) : 0;
}

int prompt_take(struct store_seq *q, const uint32_t *rest, uint32_t n_rest)
{
	struct store *s = node_store(q->node);
	uint64_t bytes = n_rest * (uint64_t)sizeof(*rest);

	if (n_rest == 0)
		return 0;
	if (!fits(domain_of(q)->prompt_bytes, bytes, s->config.domain_prompt_bytes))
		return -EDQUOT;
	if (!fits(s->stats.prompt_bytes, bytes, s->config.prompt_bytes) ||
	    !leaves_enough(s, domain_of(q), bytes))
		return -ENOBUFS;
	q->prompt = malloc(bytes);
	if (!q->prompt)
		return -ENOMEM;
	memcpy(q->prompt, rest, bytes);
	q->n_prompt = q->n_path + n_rest;
	q->prompt_pos = q->n_path;
	domain_of(q)->prompt_bytes += bytes;
	s->stats.prompt_bytes += bytes;
	return 0;
}

void prompt_drop(struct store_seq *q)
{
	uint64_t bytes = prompt_bytes(q);

	if (q->n_prompt == 0)
		return;
	domain_of(q)->prompt_bytes -= bytes;
	node_store(q->node)->stats.prompt_bytes -= bytes;
	free(q->prompt);
	q->prompt = NULL;
	q->n_prompt = 0;
}

bool prompt_agrees(const struct store_seq *q, uint32_t n_path, const uint32_t *ids, uint32_t n)
{
	uint32_t n_left = q->n_prompt - n_path, n_same = n < n_left ? n : n_left;

	return !memcmp(q->prompt + (n_path - q->prompt_pos), ids, n_same * sizeof(*ids));
}

void prompt_pass(struct store_seq *q, const uint32_t *ids, uint32_t n)
{
	if (q->n_prompt == 0)
		return;
	if (q->n_path >= q->n_prompt || !prompt_agrees(q, q->n_path - n, ids, n))
		prompt_drop(q);
	node_store(q->node)->epoch++;
}
