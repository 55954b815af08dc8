/*
 * gather.c - the slices of a path, in order, as they lie now.
 *
 * A gather refers to every place in host memory that it names, so that none becomes anybody else's
 * before its end. It does not hold pages of the device: who reads those has begun before the
 * store's next call.
 */
#include "gather.h"

#include "kvstore/tree/places.h"
#include "tail.h"
#include "kvstore/tiers/state.h"

#include <errno.h>
#include <stdlib.h>

bool store_seq_is_resident(const struct store_seq *q)
{
	return tail_is_resident(q);
}

const struct store_slice *store_seq_tail(const struct store_seq *q, uint32_t *ret_n_slices,
					 uint32_t *ret_n_tokens)
{
	*ret_n_slices = q->tail.n_slots;
	*ret_n_tokens = q->tail.n;
	return q->tail.slots;
}

uint64_t store_n_left(const struct store *s)
{
	return s->tiers ? s->tiers->n_left : 0;
}

static uint32_t count_slices(const struct store_seq *q)
{
	uint32_t n = 0;

	for (const struct store_node *at = q->node; at->parent; at = at->parent)
		n += at->n_slices;
	return n;
}

static int reserve(struct gather *g, uint32_t n)
{
	if (n <= g->capacity)
		return 0;
	struct store_slice *slices = realloc(g->slices, n * sizeof(*slices));
	if (!slices)
		return -ENOMEM;
	g->slices = slices;
	g->capacity = n;
	return 0;
}

/* From the last node up, to before index end; then the last slice is cut where the path ends. */
static void fill(struct gather *g, const struct store_seq *q, uint32_t end)
{
	uint32_t beyond = q->node->pos + q->node->n_tokens - q->n_path;

	for (const struct store_node *n = q->node; n->parent; n = n->parent) {
		end -= n->n_slices;
		for (uint32_t i = 0; i < n->n_slices; i++)
			g->slices[end + i] = n->slices[i];
		g->n_device += node_n_device(n);
		g->n_device_tokens += node_device_tokens(n);
	}
	for (; beyond > 0; g->n_slices--) {
		struct store_slice *last = &g->slices[g->n_slices - 1];
		if (last->count > beyond) {
			last->count = (uint16_t)(last->count - beyond);
			break;
		}
		beyond -= last->count;
	}
	if (g->n_device > g->n_slices)
		g->n_device = g->n_slices;
	if (g->n_device_tokens > g->n_tokens)
		g->n_device_tokens = g->n_tokens;
}

int gather_begin(struct gather *g, struct store_seq *q)
{
	struct store *s = node_store(q->node);
	uint32_t n = count_slices(q);
	int r = reserve(g, n);

	if (r)
		return r;
	g->store = s;
	g->seq = q;
	q->tail.held = true;
	g->n_slices = n;
	g->n_tokens = q->n_path;
	g->n_device = g->n_device_tokens = 0;
	g->n_left = store_n_left(s);
	fill(g, q, n);
	for (uint32_t i = g->n_device; i < g->n_slices; i++)
		places_ref(&s->places, STORE_HOST, g->slices[i].page);
	return 0;
}

/* Is the path's i-th slice, which it had on the device, the node's, and there? */
static bool lies_there(const struct gather *g, uint32_t i, const struct store_node *n, uint32_t at)
{
	const struct store_slice *was = &g->slices[i], *is = &n->slices[at];

	return i >= g->n_device ||
	       (at < node_n_device(n) && was->page == is->page && was->first == is->first);
}

/* Who cuts a node in the middle of a page makes two slices of one: then it is not known. */
static bool all_lie_there(const struct gather *g)
{
	uint32_t end = count_slices(g->seq);

	for (const struct store_node *n = g->seq->node; n->parent; n = n->parent) {
		end -= n->n_slices;
		for (uint32_t i = 0; i < n->n_slices; i++)
			if (!lies_there(g, end + i, n, i))
				return false;
	}
	return true;
}

bool gather_holds(struct gather *g)
{
	uint64_t n_left = store_n_left(g->store);

	if (g->n_left != n_left && !all_lie_there(g))
		return false;
	g->n_left = n_left;
	return true;
}

void gather_end(struct gather *g)
{
	for (uint32_t i = g->n_device; i < g->n_slices; i++)
		places_unref(g->store, STORE_HOST, g->slices[i].page);
	g->n_slices = g->n_device = 0;
	if (g->seq)
		g->seq->tail.held = false;
	g->seq = NULL;
}

void gather_done(struct gather *g)
{
	gather_end(g);
	free(g->slices);
	*g = (struct gather){0};
}

void *gather_memory(const struct gather *g, uint32_t index)
{
	return tier_host_at(g->store->places.host, g->slices[index].page);
}

bool gather_is_there(const struct gather *g, uint32_t index)
{
	return !g->store->places.host->filling[g->slices[index].page];
}
