/*
 * live_rows.c - rows of live extensions: kept, given back, or handed to nodes.
 *
 * The slots of an extension have its rows in order. Rows go from the last to the first, so that a
 * page takes back what it handed out last.
 */
#include "live_rows.h"

#include "kvstore/tree/lru.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/places.h"

#include <assert.h>
#include <string.h>

/* Decode and drafts need not ask for memory; a prompt's chunk leaves none behind, as a session has
 * many sequences. */
#define ROOM_KEPT_TOKENS 256u

/* Of a slot that holds tokens [begin, begin + count) those in [first, end) stay. Returns false if
 * none does. */
static bool slot_keep(struct store_seq *q, struct store_slice *slot, uint32_t begin, uint32_t first,
		      uint32_t end)
{
	struct store_holding *h = q->node->namespace->holding;
	struct pages *pages = &h->model->store->pages;
	uint32_t slot_end = begin + slot->count;

	if (first == end || begin >= end || slot_end <= first) {
		pages_drop(pages, &h->pages, *slot);
		return false;
	}
	if (slot_end > end) {
		struct store_slice tail = *slot;
		tail.first = (uint16_t)(slot->first + (end - begin));
		tail.count = (uint16_t)(slot_end - end);
		pages_give_back(pages, h->pages.lent, tail);
		slot->count = (uint16_t)(end - begin);
	}
	if (begin < first) {
		slot->first = (uint16_t)(slot->first + (first - begin));
		slot->count = (uint16_t)(slot->count - (first - begin));
	}
	return true;
}

/* Of the live tokens only [first, end) keep their rows. From the last to the first, so that pages
 * can take rows back. */
void live_rows_keep(struct store_seq *q, uint32_t first, uint32_t end)
{
	uint32_t begin = q->n_live;
	uint32_t kept_at = q->n_slots;
	uint32_t n_kept = 0;

	for (uint32_t i = q->n_slots; i-- > 0;) {
		begin -= q->slots[i].count;
		if (!slot_keep(q, &q->slots[i], begin, first, end))
			continue;
		kept_at = i;
		n_kept++;
	}
	memmove(q->slots, q->slots + kept_at, n_kept * sizeof(*q->slots));
	q->n_slots = n_kept;
}

void live_rows_free(struct store_seq *q)
{
	struct blocks *blocks = &node_store(q->node)->blocks;

	blocks_put(blocks, q->ids, q->ids_capacity * sizeof(*q->ids));
	blocks_put(blocks, q->slots, q->slots_capacity * sizeof(*q->slots));
	q->ids = NULL;
	q->slots = NULL;
	q->ids_capacity = 0;
	q->slots_capacity = 0;
}

void live_rows_end(struct store_seq *q)
{
	q->n_slots = 0;
	q->n_live = 0;
	q->draft = false;
	if (q->ids_capacity > ROOM_KEPT_TOKENS)
		live_rows_free(q);
}

void live_rows_drop(struct store_seq *q)
{
	if (q->n_live == 0)
		return;
	live_rows_keep(q, 0, 0);
	q->path_version++;
	live_rows_end(q);
}

/* Rows of live slots that are about to become slices of the tree. */
struct slots {
	struct store_slice *slots;
	uint32_t n;
	uint32_t used; /* rows of the first */
};

/* The next so many rows are a slice's now. Returns their page. */
static uint32_t slots_use(struct store_model *m, struct slots *from, struct store_slice slice)
{
	struct store_slice slot = from->slots[0];
	struct page *page = pages_at(&m->store->pages, &m->lent, slot.page);

	assert(from->n > 0 && slot.first + from->used == slice.first);
	assert(from->used + slice.count <= slot.count);
	page->n_slices++;
	from->used += slice.count;
	if (from->used == slot.count) {
		page->n_slices--;
		from->slots++;
		from->n--;
		from->used = 0;
	}
	return slot.page;
}

static void node_fill(struct store *s, struct store_node *n, struct slots *from)
{
	struct store_residency *res = n->residency;

	for (; res && res->n_device < n->n_slices; res->n_device++) {
		struct store_slice *slice = &n->slices[res->n_device];
		if (res->n_device < res->n_memory)
			places_unref(s, STORE_HOST, slice->page);
		else
			res->n_memory++;
		slice->page = slots_use(node_model(n), from, *slice);
		res->device_tokens += slice->count;
		n->namespace->holding->n_idle_slices += n->listed;
	}
	lru_update(n);
}

uint32_t live_rows_fill(struct store *s, struct store_node *n, struct store_slice *slots,
			uint32_t n_slots)
{
	struct slots from = {.slots = slots, .n = n_slots};
	uint32_t depth = node_path(s, n);

	assert(depth > 0);
	for (uint32_t i = 0; i < depth; i++)
		node_fill(s, s->path.nodes[i], &from);
	memmove(slots, from.slots, from.n * sizeof(*slots));
	if (from.n > 0) {
		slots[0].first = (uint16_t)(slots[0].first + from.used);
		slots[0].count = (uint16_t)(slots[0].count - from.used);
	}
	return from.n;
}
