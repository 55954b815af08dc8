/*
 * write.c - see write.h.
 *
 * The slices of a path are written in order: first those of the ancestors, which are mostly on the
 * device and pass through a free place of host memory. Where the file is full, its oldest make
 * room, but never the path itself.
 */
#include "write.h"

#include "kvstore/tree/residency.h"
#include "demote.h"
#include "dirty.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/places.h"
#include "move.h"

#include <errno.h>
#include <string.h>

/* Where in host memory the slice is, or will be by token; with a reference for the move. -EAGAIN:
 * not now. */
static int source_take(struct store *s, struct store_node *n, uint32_t index,
		       struct move_source *ret)
{
	struct tiers *t = s->tiers;

	ret->token = 0;
	if (index >= node_n_device(n)) {
		ret->host = n->slices[index].page;
		if (t->places->host->filling[ret->host])
			return -EAGAIN;
		places_ref(t->places, STORE_HOST, ret->host);
		return 0;
	}
	ret->host = places_take_passing(&s->places, node_model(n));
	if (ret->host == TIER_NONE)
		return -EAGAIN;
	int r = move_down(s, n->namespace->holding, n->slices[index], ret->host, &ret->token);
	if (r)
		places_unref(s, STORE_HOST, ret->host);
	return r;
}

/* Begins to write one slice of the path to leaf. -EAGAIN: not now; -ENOSPC: the file has no room,
 * or its journal; -ENOMEM, -EIO. */
static int write_slice(struct store *s, struct store_node *n, uint32_t index,
		       const struct store_node *leaf)
{
	struct move_source from;

	if (!move_has_room(s->tiers, TIER_WRITE))
		return -EAGAIN;
	int r = demote_for_journal(s, n->namespace->holding, leaf);
	if (!r)
		r = residency_reserve(n, index + 1);
	if (r)
		return r;
	uint32_t file = demote_take(s, n->namespace->holding, STORE_FILE, leaf);
	if (file == TIER_NONE)
		return -ENOSPC;
	r = source_take(s, n, index, &from);
	if (!r) {
		r = move_write(s, n, index, from, file);
		if (r)
			places_unref(s, STORE_HOST, from.host);
	}
	if (r)
		places_unref(s, STORE_FILE, file);
	return r;
}

/* Begins what can be begun for the path to a node. 0: all of it is under way or done. */
static int write_path(struct store *s, struct store_node *leaf)
{
	uint32_t depth = node_path(s, leaf);

	for (uint32_t i = 0; i < depth; i++) {
		struct store_node *n = s->path.nodes[i];
		int r = residency_reserve(n, 0);
		while (!r && n->residency->n_backed + n->residency->n_writing < n->n_slices)
			r = write_slice(s, n, n->residency->n_backed + n->residency->n_writing,
					leaf);
		if (r)
			return r;
	}
	return depth > 0 ? 0 : -ENOMEM;
}

/* Will anything that is under way make room? */
static bool is_moving(const struct tiers *t)
{
	uint32_t n = 0;

	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		n += t->queues[way].n;
	return n > 0;
}

void write_begin_moves(struct store *s)
{
	struct tiers *t = s->tiers;

	for (uint32_t n_left = t->n_dirty; n_left > 0 && !TAILQ_EMPTY(&t->dirty); n_left--) {
		struct store_node *n = TAILQ_FIRST(&t->dirty);
		int r = move_has_room(t, TIER_WRITE) ? write_path(s, n) : -EAGAIN;
		if (r == -EAGAIN && is_moving(t))
			return;
		if (r || n->residency->n_backed == n->n_slices) {
			dirty_remove(t, n);
			continue;
		}
		TAILQ_REMOVE(&t->dirty, n, residency->dirty_order);
		TAILQ_INSERT_TAIL(&t->dirty, n, residency->dirty_order);
	}
}
