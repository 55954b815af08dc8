/*
 * want.c - wants: begun, met, ended.
 *
 * A want counts as a user of its path, so that nothing of it is evicted while it is under way. It
 * waits in the order of asking, until all of it is on the device, or in memory where it is to stay
 * there; met or not it goes on counting until the sequence moves or no longer wants it.
 */
#include "want.h"

#include "kvstore/tree/border.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/radix.h"

/* How many slices of a node on the path are wanted. */
uint32_t want_n_slices(const struct store_seq *q, const struct store_node *n)
{
	uint32_t i = 0;

	if (n != q->want)
		return n->n_slices;
	for (uint32_t end = n->pos; end < q->want_path; i++)
		end += n->slices[i].count;
	return i;
}

static void count_hits(struct store *s, struct store_seq *q)
{
	struct store_tiers_stats *stats = &s->tiers->stats;

	q->want_tier = STORE_HOST;
	for (const struct store_node *n = q->want; n->parent; n = n->parent) {
		uint32_t n_slices = want_n_slices(q, n);
		if (node_n_device(n) == n->n_slices)
			break;
		if (node_n_memory(n) < n_slices) {
			stats->tiers[STORE_FILE].hits += n_slices - node_n_memory(n);
			n_slices = node_n_memory(n);
			q->want_tier = STORE_FILE;
		}
		if (node_n_device(n) < n_slices)
			stats->tiers[STORE_HOST].hits += n_slices - node_n_device(n);
	}
}

static void want_begin(struct store *s, struct store_seq *q, struct store_position at,
		       uint64_t now_ns)
{
	q->want = at.node;
	q->want_path = at.n_path;
	q->want_waits = true;
	q->want_stays = false;
	q->want_since_ns = now_ns;
	LIST_INSERT_HEAD(&at.node->residency->wants, q, at_want);
	TAILQ_INSERT_TAIL(&s->tiers->wants, q, want_order);
	s->tiers->n_wants++;
	node_attach(at.node, NULL);
	count_hits(s, q);
}

static void want_rest(struct store *s, struct store_seq *q)
{
	if (!q->want_waits)
		return;
	q->want_waits = false;
	TAILQ_REMOVE(&s->tiers->wants, q, want_order);
	s->tiers->n_wants--;
}

void want_end(struct store *s, struct store_seq *q)
{
	struct store_node *n = q->want;

	if (!n)
		return;
	want_rest(s, q);
	LIST_REMOVE(q, at_want);
	q->want = NULL;
	node_detach(n, NULL);
	border_note(n);
}

bool want_update(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	struct store_position at = {.node = q->node, .n_path = q->n_path};
	uint32_t n = 0;

	if (!s->tiers)
		return false;
	if (!q->want_failed)
		n = radix_match_anywhere(s, &at, prompt_at(q, q->n_path),
					 q->n_prompt - 1 - q->n_path);
	if (n > 0 && q->want == at.node && q->want_path == at.n_path)
		return true;
	want_end(s, q);
	if (n > 0)
		want_begin(s, q, at, now_ns);
	return n > 0;
}

bool want_is_there(const struct store_seq *q)
{
	return q->want && q->want_stays && node_n_memory(q->want) >= want_n_slices(q, q->want);
}

static bool is_met(const struct store_seq *q)
{
	if (q->want_stays)
		return want_is_there(q);
	return q->want->pos + node_device_tokens(q->want) >= q->want_path;
}

void want_note_met(struct store *s, uint64_t now_ns)
{
	struct store_seq *q = TAILQ_FIRST(&s->tiers->wants);

	while (q) {
		struct store_seq *next = TAILQ_NEXT(q, want_order);
		if (is_met(q)) {
			want_rest(s, q);
			s->tiers->stats.tiers[q->want_tier].waited_ns += now_ns - q->want_since_ns;
			s->epoch++;
		}
		q = next;
	}
}

/* What cannot be had is not waited for: the sequence computes it. */
void want_give_up(struct store *s, struct store_seq *q)
{
	s->tiers->stats.wants_failed++;
	q->want_failed = true;
	want_end(s, q);
	s->epoch++;
}
