/*
 * seq.c - opening, matching again, forking, pinning, trimming and closing sequences; see store.h.
 *
 * Opening follows the prompt down the tree as far as it is on the device. What is left is wanted
 * from lower tiers, or waited for where another claims it, or claimed; at any time it is one of the
 * three.
 */
#include "live_rows.h"
#include "position.h"
#include "prompt.h"
#include "kvstore/tiers/want.h"
#include "kvstore/store.h"
#include "kvstore/tree/border.h"
#include "kvstore/tree/claim.h"
#include "kvstore/tree/collapse.h"
#include "kvstore/tree/lru.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/pin.h"
#include "kvstore/tree/radix.h"
#include "kvstore/tree/namespace.h"
#include "tail.h"

#include <errno.h>

#define NODES_COUNTED 64u /* of a path, one by one: soon, however others leave it */

/* A sequence that stands at a position, with the prompt's rest: as prompt_take. */
static int seq_new(struct store_position at, const struct prompt_from *from, struct store_seq **ret)
{
	struct blocks *blocks = &node_store(at.node)->blocks;
	size_t bytes = sizeof(struct store_seq);
	struct store_seq *q = blocks_get(blocks, &bytes);

	if (!q)
		return -ENOMEM;
	lru_prefetch(at.node);
	blocks_clear(q, sizeof(*q));
	q->node = at.node;
	q->n_path = at.n_path;
	int r = prompt_take(q, from);
	if (r) {
		blocks_put(blocks, q, sizeof(*q));
		return r;
	}
	LIST_INSERT_HEAD(&at.node->seqs, q, at_node);
	node_attach(at.node, NULL);
	node_store(at.node)->stats.n_seqs++;
	*ret = q;
	return 0;
}

/* Part of the prompt is left: it comes from a lower tier; or somebody computes it, or from now on
 * we do, as claim.c decides. */
static void seq_look(struct store *s, struct store_seq *q, uint64_t now_ns, struct store_match *ret)
{
	*ret = (struct store_match){.cached = q->n_path};
	if (want_update(s, q, now_ns)) {
		claim_end(s, q);
		ret->pending = q->want_path - q->n_path;
		return;
	}
	ret->claimed = claim_take(s, q, now_ns, &ret->pending);
}

static void count_hits(struct store_node *n, const struct store_node *stop)
{
	for (; n != stop; n = n->parent)
		n->hits++;
}

int store_seq_open(struct store *s, const struct store_open *open, uint64_t now_ns,
		   struct store_seq **ret, struct store_match *ret_match)
{
	struct store_namespace *namespace;

	if (!open->model || !open->tokens || open->n_tokens == 0 ||
	    open->n_tokens > s->config.max_seq_tokens)
		return -EINVAL;
	pages_release(&s->pages);
	claim_expire(s, now_ns);
	collapse_some(s);
	if (open->at_home && open->home >= s->pages.n_devices)
		return -EINVAL;
	int r = namespace_get(open->model, open->domain, open->salt, &namespace);
	if (r)
		return r;
	namespace->at_home = open->at_home && open->model->lent.n_devices > 1;
	namespace->home = open->home;
	struct store_position at = {.node = namespace->root};
	uint32_t n_cached = radix_match(s, &at, open->tokens, open->n_tokens - 1);
	struct prompt_from from = {.rest = open->tokens + n_cached,
				   .n_rest = open->n_tokens - n_cached,
				   .give = open->give};
	struct store_seq *q;
	r = seq_new(at, &from, &q);
	if (r) {
		namespace_prune(namespace);
		return r;
	}
	count_hits(at.node, NULL);
	s->stats.tokens_matched += n_cached;
	seq_look(s, q, now_ns, ret_match);
	*ret = q;
	return 0;
}

/* Goes down to where others have published of our prompt. What came to host memory alone may be on
 * the device by now, and more behind it. */
static void seq_follow(struct store *s, struct store_seq *q)
{
	struct store_position at = {.node = q->node, .n_path = q->n_path};

	if (want_is_there(q)) {
		at = (struct store_position){.node = q->want, .n_path = q->want_path};
		s->tiers->n_left++;
	}
	if (at.n_path <= at.node->pos + node_device_tokens(at.node))
		radix_match(s, &at, prompt_at(q, at.n_path), q->n_prompt - 1 - at.n_path);
	uint32_t n = at.n_path - q->n_path;
	if (n == 0)
		return;
	count_hits(at.node, q->node);
	q->path_version++;
	position_move_down(q, at.node, at.n_path);
	claim_move(s, q);
	s->stats.tokens_matched += n;
}

int store_seq_rematch(struct store_seq *q, uint64_t now_ns, struct store_match *ret_match)
{
	struct store *s = position_enter(q, now_ns);

	if (q->n_live > 0)
		return -EBUSY;
	if (q->n_prompt == 0) {
		*ret_match = (struct store_match){.cached = q->n_path + q->tail.n};
		return 0;
	}
	seq_follow(s, q);
	seq_look(s, q, now_ns, ret_match);
	return 0;
}

int store_seq_fork(struct store_seq *q, uint64_t now_ns, struct store_seq **ret)
{
	struct store_seq *fork;

	position_enter(q, now_ns);
	if (q->n_live > 0)
		return -EBUSY;
	int r = tail_join(q);
	if (r)
		return r;
	struct prompt_from from = {0};
	if (q->n_prompt)
		from = (struct prompt_from){.rest = prompt_at(q, q->n_path),
					    .n_rest = q->n_prompt - q->n_path,
					    .of = q};
	r = seq_new((struct store_position){.node = q->node, .n_path = q->n_path}, &from, &fork);
	if (r)
		return r;
	*ret = fork;
	return 0;
}

/* What keeps a path keeps its nodes: a tail is none yet. */
int store_seq_pin(struct store_seq *q, uint64_t until_ns, uint64_t *ret_pin)
{
	if (q->tail.n > 0 && (q->tail.held || q->n_live > 0))
		return -EBUSY;
	int r = tail_join(q);

	return r ? r : pin_new(node_store(q->node), q->node, q->n_path, until_ns, ret_pin);
}

void store_seq_close(struct store_seq *q, uint64_t now_ns)
{
	if (!q)
		return;
	struct store *s = position_enter(q, now_ns);
	struct store_namespace *namespace = q->node->namespace;

	want_end(s, q);
	claim_end(s, q);
	live_rows_drop(q);
	live_rows_free(q);
	tail_done(q);
	prompt_drop(q);
	LIST_REMOVE(q, at_node);
	node_detach(q->node, NULL);
	border_note(q->node);
	s->stats.n_seqs--;
	blocks_put(&s->blocks, q, sizeof(*q));
	namespace_prune(namespace);
}

int store_seq_trim(struct store_seq *q, uint32_t n_tokens, uint64_t now_ns)
{
	struct store *s = position_enter(q, now_ns);

	if (n_tokens > q->n_path + q->tail.n)
		return -EINVAL;
	want_end(s, q);
	claim_end(s, q);
	live_rows_drop(q);
	tail_cut(q, n_tokens > q->n_path ? n_tokens - q->n_path : 0);
	if (n_tokens < q->n_path) {
		prompt_drop(q);
		position_move_up(q, radix_ancestor(q->node, n_tokens), n_tokens);
	}
	return 0;
}

void store_seq_progress(struct store_seq *q, uint64_t now_ns)
{
	if (q->claims)
		claim_renew(position_enter(q, now_ns), q, now_ns);
}

uint64_t store_seq_path_version(const struct store_seq *q)
{
	const struct tiers *t = node_store(q->node)->tiers;

	return q->path_version + (t ? t->n_left : 0);
}

uint32_t store_seq_n_tokens(const struct store_seq *q)
{
	return q->n_path + q->tail.n;
}

struct store_seq_view store_seq_view(const struct store_seq *q)
{
	const struct store_node *node = q->node;
	uint32_t n_tokens = store_seq_n_tokens(q);
	bool ends = node->pos + node->n_tokens == n_tokens;

	return (struct store_seq_view){
		.path_version = store_seq_path_version(q),
		.n_tokens = n_tokens,
		.n_last = ends ? node->n_tokens : 0,
		.n_live = q->n_live,
		.slots = q->slots,
		.n_slots = q->n_slots,
	};
}

uint32_t store_seq_most_nodes(const struct store_seq *q)
{
	uint32_t most = q->node->namespace->root->height, n = 0;

	if (most <= NODES_COUNTED)
		return most;
	for (const struct store_node *node = q->node; n <= NODES_COUNTED; node = node->parent, n++)
		if (!node->parent)
			return n;
	return most;
}

struct store_node *store_seq_node(const struct store_seq *q)
{
	return q->node;
}
