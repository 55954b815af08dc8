/*
 * prompt.c - the part of a prompt that lies behind its sequence's position.
 *
 * Its ids are memory that no pool bounds: who opens prompts and computes none of them would have as
 * much of it as there is. So they are charged to the domain and to the store until the prompt is
 * computed, left or closed; what is cached is neither kept nor charged, unless it is the lesser
 * part of what is kept as it is. Of the last part of what all may have a domain gets no more than
 * it leaves (reserve.h).
 *
 * Memory of megabytes takes milliseconds to bring and fill, in which others would wait. So a long
 * prompt is not copied, and those who fork share it, each charged for all of it.
 */
#include "prompt.h"

#include "kvstore/base/reserve.h"
#include "kvstore/tree/domain.h"
#include "kvstore/tree/node.h"
#include "proto/arith.h"

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
	return q->n_prompt ? (q->n_prompt - q->prompt->pos) * (uint64_t)sizeof(*q->prompt->ids) : 0;
}

/* With room for a copy of so many bytes, where its ids are. */
static struct prompt *ids_new(size_t bytes, uint32_t pos)
{
	struct prompt *prompt = malloc(sizeof(*prompt) + bytes);

	if (prompt)
		*prompt = (struct prompt){.n_refs = 1, .pos = pos, .ids = prompt->copy};
	return prompt;
}

static struct prompt *ids_copy(const struct prompt_from *from, uint32_t pos)
{
	size_t bytes = from->n_rest * sizeof(*from->rest);
	struct prompt *prompt = ids_new(bytes, pos);

	if (prompt)
		memcpy(prompt->copy, from->rest, bytes);
	return prompt;
}

/* Those that are kept whole. */
static struct prompt *ids_keep(const struct prompt_from *from)
{
	struct prompt *prompt = from->of ? from->of->prompt : ids_new(0, 0);

	if (from->of) {
		prompt->n_refs++;
	} else if (prompt) {
		prompt->ids = *from->give;
		*from->give = NULL;
	}
	return prompt;
}

static void ids_unref(struct prompt *prompt)
{
	if (--prompt->n_refs > 0)
		return;
	if (prompt->ids != prompt->copy)
		free(prompt->ids);
	free(prompt);
}

static int may_take(const struct store *s, const struct store_seq *q, uint64_t bytes)
{
	if (!fits(domain_of(q)->prompt_bytes, bytes, s->config.domain_prompt_bytes))
		return -EDQUOT;
	if (!fits(s->stats.prompt_bytes, bytes, s->config.prompt_bytes) ||
	    !leaves_enough(s, domain_of(q), bytes))
		return -ENOBUFS;
	return 0;
}

/* Where what is kept begins. */
static uint32_t first_of(const struct store_seq *q, const struct prompt_from *from)
{
	uint32_t first = from->of ? from->of->prompt->pos : from->give ? 0 : q->n_path;

	return q->n_path - first <= from->n_rest ? first : q->n_path;
}

int prompt_take(struct store_seq *q, const struct prompt_from *from)
{
	if (from->n_rest == 0)
		return 0;
	uint32_t n_prompt = q->n_path + from->n_rest, first = first_of(q, from);
	bool whole = from->of ? first == from->of->prompt->pos : from->give && first == 0;
	uint64_t bytes = (n_prompt - first) * (uint64_t)sizeof(*from->rest);
	struct store *s = node_store(q->node);
	int r = may_take(s, q, bytes);

	if (r)
		return r;
	q->prompt = whole ? ids_keep(from) : ids_copy(from, first);
	if (!q->prompt)
		return -ENOMEM;
	q->n_prompt = n_prompt;
	domain_of(q)->prompt_bytes += bytes;
	s->stats.prompt_bytes += bytes;
	return 0;
}

void prompt_drop(struct store_seq *q)
{
	struct store *s = node_store(q->node);
	uint64_t bytes = prompt_bytes(q);

	if (q->n_prompt == 0)
		return;
	domain_of(q)->prompt_bytes -= bytes;
	s->stats.prompt_bytes -= bytes;
	ids_unref(q->prompt);
	q->prompt = NULL;
	q->n_prompt = 0;
}

bool prompt_agrees(const struct store_seq *q, uint32_t n_path, const uint32_t *ids, uint32_t n)
{
	uint32_t n_left = q->n_prompt - n_path, n_same = min_u32(n, n_left);

	return !memcmp(prompt_at(q, n_path), ids, n_same * sizeof(*ids));
}

void prompt_pass(struct store_seq *q, const uint32_t *ids, uint32_t n)
{
	if (q->n_prompt == 0)
		return;
	if (q->n_path >= q->n_prompt || !prompt_agrees(q, q->n_path - n, ids, n))
		prompt_drop(q);
	node_store(q->node)->epoch++;
}
