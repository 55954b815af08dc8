/* demote.c - see demote.h. */
#include "demote.h"

#include "kvstore/tree/residency.h"
#include "kvstore/tree/lru.h"
#include "move.h"
#include "write.h"

#include <assert.h>
#include <errno.h>

/* The last slice in host memory goes. If it is not in the file, it is the last of a leaf: what is
 * below would be in neither. */
static bool leave_host(struct store *s, struct store_node *n)
{
	struct store_lower *l = n->lower;
	uint32_t i = l->n_memory - 1;

	if (s->tiers->host->filling[n->slices[i].page])
		moves_retire_down(s);
	if (s->tiers->host->filling[n->slices[i].page])
		return false;
	if (i >= l->n_backed) {
		lower_drop_last(s, n);
		return true;
	}
	tiers_unref(s, STORE_HOST, n->slices[i].page);
	l->n_memory--;
	lru_settle(n);
	return true;
}

/* The last image goes. If its slice is not in memory, it is the last of a leaf, as above. */
static void leave_file(struct store *s, struct store_node *n)
{
	struct store_lower *l = n->lower;

	if (l->n_backed > l->n_memory)
		lower_drop_last(s, n);
	else
		lower_unback(n);
}

static bool is_above(const struct store_node *a, const struct store_node *n)
{
	while (n && n != a)
		n = n->parent;
	return n != NULL;
}

/* Of the domain if that is over its limit, else of the model if it has any, else of all. */
static struct store_node *victim_of(const struct store *s, const struct store_holding *h,
				    enum store_tier tier)
{
	struct store_node *n;

	if (tiers_over_limit(s, h, tier))
		return lru_oldest_of_domain(h->domain, tier);
	n = lru_oldest_of_model(h->model, tier);
	return n ? n : lru_oldest(s, tier);
}

bool spill_can_wait(const struct store *s, const struct store_holding *h)
{
	const struct tiers *t = s->tiers;

	if (tiers_units(t, h->model) == 0 || tiers_has_room(s, h, STORE_HOST))
		return false;
	const struct store_node *n = victim_of(s, h, STORE_HOST);
	if (!n || t->host->filling[n->slices[node_n_memory(n) - 1].page])
		return n != NULL;
	return node_n_backed(n) < node_n_memory(n) && t->n_dirty + t->queues[TIER_WRITE].n > 0;
}

bool spill_reclaim(struct store *s, struct store_holding *h, enum store_tier tier,
		   const struct store_node *avoid)
{
	struct store_node *n = victim_of(s, h, tier);

	if (!n || is_above(n, avoid))
		return false;
	if (tier == STORE_HOST)
		return leave_host(s, n);
	leave_file(s, n);
	return true;
}

/* Is anything below the node's first slices in memory? */
static bool is_held_up(const struct store_node *n, uint32_t n_slices)
{
	const struct store_node *child;

	if (n_slices < node_n_memory(n))
		return true;
	if (n_slices < n->n_slices)
		return false;
	LIST_FOREACH (child, &n->children, sibling)
		if (node_n_memory(child) > 0)
			return true;
	return false;
}

/* Host memory has a place for the node's slice. */
static bool to_host(struct store *s, struct store_node *n, uint32_t index, uint32_t place)
{
	uint64_t token;

	if (move_down(s, n->space->holding, n->slices[index], place, &token)) {
		tiers_unref(s, STORE_HOST, place);
		return false;
	}
	n->slices[index].page = place;
	return true;
}

static void leave_device(struct store *s, struct store_node *n, bool to_memory)
{
	struct store_lower *l = n->lower;

	l->n_device--;
	l->device_tokens -= n->slices[l->n_device].count;
	l->n_memory -= !to_memory;
	n->space->holding->n_idle_slices--;
	lru_settle(n);
	if (to_memory)
		write_want(s, n);
}

uint32_t spill_slice(struct store *s, struct store_node *n)
{
	struct store_holding *h = n->space->holding;
	uint64_t before = s->pages.n_used;

	assert(n->listed && node_n_device(n) > 0);
	if (lower_reserve(n, 0)) {
		lower_forget(s, n, 0);
		return (uint32_t)(before - s->pages.n_used);
	}
	uint32_t place = tiers_take(s, h, STORE_HOST, NULL);
	uint32_t i = node_n_device(n) - 1;
	struct store_slice slice = n->slices[i];
	bool to_memory = place != TIER_NONE && to_host(s, n, i, place);
	if (!to_memory && (i >= n->lower->n_backed || is_held_up(n, i + 1))) {
		lower_forget(s, n, i);
	} else {
		pages_drop(&s->pages, h->model, h->domain, slice);
		leave_device(s, n, to_memory);
	}
	return (uint32_t)(before - s->pages.n_used);
}

int spill_used(struct store *s, struct store_node *n)
{
	struct store_holding *h = n->space->holding;

	assert(!n->listed && node_n_device(n) > 0);
	if (lower_reserve(n, 0))
		return -ENOMEM;
	uint32_t place = tiers_take(s, h, STORE_HOST, NULL);
	if (place == TIER_NONE)
		return -ENOSPC;
	struct store_lower *l = n->lower;
	struct store_slice slice = n->slices[l->n_device - 1];
	if (!to_host(s, n, l->n_device - 1, place))
		return -ENOMEM;
	pages_drop(&s->pages, h->model, h->domain, slice);
	l->n_device--;
	l->device_tokens -= slice.count;
	lru_settle(n);
	write_want(s, n);
	s->tiers->n_left++;
	return 0;
}
