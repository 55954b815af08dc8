/*
 * claim.h - single flight: who computes which prompt under a lease.
 *
 * A claim is a sequence with what is left of its prompt, held under the position where the sequence
 * stands and the first token that is left; no two claims have both in common. It moves
 * along as the sequence publishes, and ends with the prompt, with the sequence, or with the lease.
 */
#ifndef COPPICE_KVSTORE_CLAIM_H
#define COPPICE_KVSTORE_CLAIM_H

#include "core.h"

/* Who claims the position where the sequence stands, with the same next token? Itself, another, or
 * NULL. */
struct store_seq *claim_find(const struct store *s, const struct store_seq *q);
/* Part of the prompt is left. Whose is it to compute? True: the sequence's, whose claim it is from
 * now on if it was nobody's. False: another's, who computes so many of the tokens. */
bool claim_take(struct store *s, struct store_seq *q, uint64_t now_ns, uint32_t *ret_pending);
/* The lease runs anew. Without a claim nothing happens, here and below. */
void claim_renew(struct store *s, struct store_seq *q, uint64_t now_ns);
/* The sequence stands elsewhere: so does its claim, or it ends, if that position is claimed or the
 * prompt done. */
void claim_move(struct store *s, struct store_seq *q);
void claim_end(struct store *s, struct store_seq *q);
/* Ends the leases that are over. */
static inline void claim_expire(struct store *s, uint64_t now_ns)
{
	struct store_seq *q;

	while ((q = TAILQ_FIRST(&s->claim_order)) && q->lease_ns <= now_ns)
		claim_end(s, q);
}
/* UINT64_MAX: none. */
uint64_t claim_next_ns(const struct store *s);

#endif
