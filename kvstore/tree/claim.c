/*
 * claim.c - who computes what is left of a shared prompt, and when it passes to the next.
 *
 *      nobody claims the position        the first who looks does: it computes
 *      another does                      who looks waits for it
 *      the lease is over                 claim_expire (claim.h) ends the claim; the epoch makes
 *                                        who waits look again, and the first who does takes over
 *      its sequence is closed            the same, by claim_end: who dies has his sequences closed
 *
 * A claim is found under the node, the length of path and the token that comes next; no two have
 * all three in common. All leases are equally long, so that the order in which they began is the
 * order in which they end.
 */
#include "claim.h"

#include "kvstore/base/tokens.h"
#include "proto/arith.h"

static uint32_t next_token(const struct store_seq *q)
{
	return *prompt_at(q, q->n_path);
}

static uint64_t claim_hash(const struct store *s, const struct store_seq *q)
{
	return index_hash(s->seed, q->node->id, (uint64_t)q->n_path << 32 | next_token(q));
}

static struct store_seq *find(const struct store *s, const struct store_seq *q, uint64_t hash)
{
	struct index_link *l = index_find(&s->claims, hash);

	for (; l; l = index_find_next(l)) {
		struct store_seq *c = INDEX_ENTRY(l, struct store_seq, claim_link);
		if (c->node == q->node && c->n_path == q->n_path && next_token(c) == next_token(q))
			return c;
	}
	return NULL;
}

struct store_seq *claim_find(const struct store *s, const struct store_seq *q)
{
	return find(s, q, claim_hash(s, q));
}

/* All leases are equally long, so the one that began last ends last. */
static void lease_begin(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	if (__builtin_add_overflow(now_ns, s->config.claim_ns, &q->lease_ns))
		q->lease_ns = UINT64_MAX;
	TAILQ_INSERT_TAIL(&s->claim_order, q, claim_order);
}

/* Tokens of q's prompt that the claimant computes; the last one is always q's own to compute. */
static uint32_t pending_of(const struct store_seq *q, const struct store_seq *claimant)
{
	uint32_t n_own = q->n_prompt - 1 - q->n_path;
	uint32_t n_theirs = claimant->n_prompt - claimant->n_path;

	return tokens_common(prompt_at(q, q->n_path), prompt_at(claimant, claimant->n_path),
			     min_u32(n_own, n_theirs));
}

bool claim_take(struct store *s, struct store_seq *q, uint64_t now_ns, uint32_t *ret_pending)
{
	uint64_t hash = claim_hash(s, q);
	struct store_seq *claimant = find(s, q, hash);

	if (claimant == q)
		return true;
	if (claimant) {
		*ret_pending = pending_of(q, claimant);
		return false;
	}
	index_insert(&s->claims, &q->claim_link, hash);
	lease_begin(s, q, now_ns);
	q->claims = true;
	return true;
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
	uint64_t hash = q->n_prompt > 0 ? claim_hash(s, q) : 0;
	if (q->n_prompt == 0 || find(s, q, hash))
		claim_drop(s, q);
	else
		index_insert(&s->claims, &q->claim_link, hash);
}

void claim_end(struct store *s, struct store_seq *q)
{
	if (!q->claims)
		return;
	index_remove(&s->claims, &q->claim_link);
	claim_drop(s, q);
}

uint64_t claim_next_ns(const struct store *s)
{
	const struct store_seq *q = TAILQ_FIRST(&s->claim_order);

	return q ? q->lease_ns : UINT64_MAX;
}
