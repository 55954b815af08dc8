/*
 * claim.c - claims by position, and in the order in which their leases end.
 *
 * A claim is found under the node, the length of path and the token that comes next; no two have
 * all three in common. All leases are equally long, so that the order in which they began is the
 * order in which they end.
 */
#include "claim.h"

static uint32_t next_token(const struct store_seq *q)
{
	return q->prompt[q->n_path - q->prompt_pos];
}

static uint64_t claim_hash(const struct store *s, const struct store_seq *q)
{
	return index_hash(s->seed, q->node->id, (uint64_t)q->n_path << 32 | next_token(q));
}

struct store_seq *claim_find(const struct store *s, const struct store_seq *q)
{
	struct index_link *l = index_find(&s->claims, claim_hash(s, q));

	for (; l; l = index_find_next(l)) {
		struct store_seq *c = INDEX_ENTRY(l, struct store_seq, claim_link);
		if (c->node == q->node && c->n_path == q->n_path && next_token(c) == next_token(q))
			return c;
	}
	return NULL;
}

/* All leases are equally long, so the one that began last ends last. */
static void lease_begin(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	if (__builtin_add_overflow(now_ns, s->config.claim_ns, &q->lease_ns))
		q->lease_ns = UINT64_MAX;
	TAILQ_INSERT_TAIL(&s->claim_order, q, claim_order);
}

void claim_begin(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	index_insert(&s->claims, &q->claim_link, claim_hash(s, q));
	lease_begin(s, q, now_ns);
	q->claims = true;
}

void claim_renew(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	if (!q->claims)
		return;
	TAILQ_REMOVE(&s->claim_order, q, claim_order);
	lease_begin(s, q, now_ns);
}

static void claim_drop(struct store *s, struct store_seq *q)
{
	TAILQ_REMOVE(&s->claim_order, q, claim_order);
	q->claims = false;
	s->epoch++;
}

void claim_move(struct store *s, struct store_seq *q)
{
	if (!q->claims)
		return;
	index_remove(&s->claims, &q->claim_link);
	if (q->n_prompt == 0 || claim_find(s, q)) {
		claim_drop(s, q);
		return;
	}
	index_insert(&s->claims, &q->claim_link, claim_hash(s, q));
}

void claim_end(struct store *s, struct store_seq *q)
{
	if (!q->claims)
		return;
	index_remove(&s->claims, &q->claim_link);
	claim_drop(s, q);
}

void claim_expire(struct store *s, uint64_t now_ns)
{
	struct store_seq *q;

	while ((q = TAILQ_FIRST(&s->claim_order)) && q->lease_ns <= now_ns)
		claim_end(s, q);
}

uint64_t claim_next_ns(const struct store *s)
{
	const struct store_seq *q = TAILQ_FIRST(&s->claim_order);

	return q ? q->lease_ns : UINT64_MAX;
}
