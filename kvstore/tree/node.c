/*
 * node.c - nodes, their arrays and their users.
 *
 * A node's memory stays where it is for as long as the store lives, and is the next node's when it
 * is freed; the id tells one from the other. A user counts on every node from where it stands to
 * the root, so that a node without users has none below it either.
 */
#include "node.h"

#include "kvstore/base/prefetch.h"
#include "residency.h"
#include "lru.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BITS 32

void node_slab_init(struct node_slab *slab)
{
	*slab = (struct node_slab){0};
	numbers_init(&slab->slots);
}

void node_slab_done(struct node_slab *slab)
{
	for (uint32_t i = 0; i < slab->n_chunks; i++)
		free(slab->chunks[i]);
	free(slab->chunks);
	numbers_done(&slab->slots);
}

static int slab_grow_table(struct node_slab *slab)
{
	uint32_t capacity = slab->chunks_capacity ? 2 * slab->chunks_capacity : 16;

	if (numbers_reserve(&slab->slots, capacity * NODE_SLAB_NODES))
		return -ENOMEM;
	struct store_node **chunks = realloc(slab->chunks, capacity * sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	slab->chunks = chunks;
	slab->chunks_capacity = capacity;
	return 0;
}

static int slab_grow(struct node_slab *slab)
{
	if (slab->n_chunks == slab->chunks_capacity && slab_grow_table(slab))
		return -ENOMEM;
	struct store_node *chunk = aligned_alloc(_Alignof(struct store_node),
						 NODE_SLAB_NODES * sizeof(struct store_node));
	if (!chunk)
		return -ENOMEM;
	uint32_t first = slab->n_chunks * NODE_SLAB_NODES;
	for (uint32_t i = 0; i < NODE_SLAB_NODES; i++)
		chunk[i] = (struct store_node){.id = first + i + 1};
	numbers_put_run(&slab->slots, first, NODE_SLAB_NODES);
	slab->chunks[slab->n_chunks++] = chunk;
	return 0;
}

static struct store_node *slab_at(const struct node_slab *slab, uint32_t slot)
{
	return &slab->chunks[slot / NODE_SLAB_NODES][slot % NODE_SLAB_NODES];
}

struct store_node *node_by_number(const struct store *s, uint64_t number)
{
	if (number == 0 || number > (uint64_t)s->slab.n_chunks * NODE_SLAB_NODES)
		return NULL;
	struct store_node *n = slab_at(&s->slab, (uint32_t)number - 1);
	return n->namespace ? n : NULL;
}

struct store_node *node_by_id(const struct store *s, uint64_t id)
{
	struct store_node *n = node_by_number(s, (uint32_t)id);

	return n && n->id == id ? n : NULL;
}

/* The slot that is the next to be had. */
PREFETCHES void slab_prefetch(const struct node_slab *slab)
{
	uint32_t slot = numbers_next(&slab->slots);

	if (slot == NUMBERS_NONE)
		return;
	const char *n = (const char *)slab_at(slab, slot);
	for (size_t line = 0; line < sizeof(struct store_node); line += BLOCKS_LINE_BYTES)
		__builtin_prefetch(n + line, 1);
}

int node_new(struct store_namespace *namespace, uint32_t n_tokens, uint32_t n_slices,
	     struct store_node **ret)
{
	struct node_slab *slab = &namespace->holding->model->store->slab;

	uint32_t slot = numbers_take(&slab->slots);
	if (slot == NUMBERS_NONE) {
		if (slab_grow(slab))
			return -ENOMEM;
		slot = numbers_take(&slab->slots);
	}
	struct store_node *n = slab_at(slab, slot);
	uint64_t id = n->id;
	slab_prefetch(slab);
	blocks_clear(n, sizeof(*n));
	n->id = id;
	n->namespace = namespace;
	if (node_reserve(n, n_tokens, n_slices)) {
		node_free(namespace->holding->model->store, n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

void node_free(struct store *s, struct store_node *n)
{
	if (!n)
		return;
	assert(!n->listed && n->n_users == 0);
	if (n->residency)
		residency_free(n);
	blocks_put(&s->blocks, n->tokens, n->tokens_capacity * sizeof(*n->tokens));
	blocks_put(&s->blocks, n->slices, n->slices_capacity * sizeof(*n->slices));
	n->namespace = NULL;
	n->id += UINT64_C(1) << NUMBER_BITS;
	numbers_put(&s->slab.slots, node_number(n) - 1);
}

/* Room for items in all; at least double what there was, but exact at first: most nodes never
 * grow. */
static int array_grow(struct blocks *blocks, void **array, uint32_t *capacity, uint32_t items,
		      size_t item_bytes)
{
	if (items < 2 * *capacity)
		items = 2 * *capacity;
	size_t bytes = items * item_bytes;
	void *grown = blocks_get(blocks, &bytes);
	if (!grown)
		return -ENOMEM;
	if (*array)
		memcpy(grown, *array, *capacity * item_bytes);
	blocks_put(blocks, *array, *capacity * item_bytes);
	*array = grown;
	*capacity = (uint32_t)(bytes / item_bytes);
	return 0;
}

int node_reserve(struct store_node *n, uint32_t n_tokens, uint32_t n_slices)
{
	struct blocks *blocks = &node_store(n)->blocks;
	int r = 0;

	n_tokens += n->n_tokens;
	n_slices += n->n_slices;
	if (n_tokens > n->tokens_capacity)
		r = array_grow(blocks, (void **)&n->tokens, &n->tokens_capacity, n_tokens,
			       sizeof(*n->tokens));
	if (!r && n_slices > n->slices_capacity)
		r = array_grow(blocks, (void **)&n->slices, &n->slices_capacity, n_slices,
			       sizeof(*n->slices));
	return r;
}

/* A slice that continues the node's last one becomes part of it. */
static bool slice_merge(struct store_node *n, struct store_slice slice)
{
	struct store_slice *last = n->n_slices ? &n->slices[n->n_slices - 1] : NULL;
	struct store_model *m = n->namespace->holding->model;

	if (!last || last->page != slice.page)
		return false;
	assert(last->first + last->count == slice.first);
	residency_unback_last(n);
	last->count = (uint16_t)(last->count + slice.count);
	pages_at(&m->store->pages, &m->lent, slice.page)->n_slices--;
	return true;
}

void node_append(struct store_node *n, const uint32_t *ids, uint32_t n_ids,
		 const struct store_slice *slices, uint32_t n_slices)
{
	assert(!n->listed);
	assert(n->n_tokens + n_ids <= n->tokens_capacity);
	memcpy(n->tokens + n->n_tokens, ids, n_ids * sizeof(*ids));
	n->n_tokens += n_ids;
	n->first_token = n->tokens[0];
	node_store(n)->stats.n_tokens += n_ids;
	for (uint32_t i = 0; i < n_slices; i++)
		if (i > 0 || !slice_merge(n, slices[i]))
			n->slices[n->n_slices++] = slices[i];
	residency_appended(n);
}

struct array_items {
	uint32_t n;
	size_t bytes; /* of one */
};

/* Those behind the first. */
static void array_drop_first(struct blocks *blocks, void **array, uint32_t *capacity,
			     uint32_t n_first, struct array_items items)
{
	size_t bytes = *capacity * items.bytes;

	*array = blocks_keep(blocks, *array, &bytes, n_first * items.bytes,
			     (items.n - n_first) * items.bytes);
	*capacity = (uint32_t)(bytes / items.bytes);
}

void node_drop_first(struct store_node *n, uint32_t n_tokens, uint32_t n_slices)
{
	struct blocks *blocks = &node_store(n)->blocks;

	array_drop_first(blocks, (void **)&n->tokens, &n->tokens_capacity, n_tokens,
			 (struct array_items){n->n_tokens, sizeof(*n->tokens)});
	array_drop_first(blocks, (void **)&n->slices, &n->slices_capacity, n_slices,
			 (struct array_items){n->n_slices, sizeof(*n->slices)});
	n->n_tokens -= n_tokens;
	n->n_slices -= n_slices;
}

uint32_t node_tokens_of(const struct store_node *n, uint32_t n_slices)
{
	uint32_t n_tokens = 0;

	for (uint32_t i = 0; i < n_slices; i++)
		n_tokens += n->slices[i].count;
	return n_tokens;
}

uint32_t node_slices_to(const struct store_node *n, uint32_t n_tokens)
{
	uint32_t i = 0;

	for (uint32_t seen = 0; seen < n_tokens; i++)
		seen += n->slices[i].count;
	return i;
}

static int path_reserve(struct node_path *p, uint32_t n)
{
	if (n <= p->capacity)
		return 0;
	uint32_t capacity = max_u32(n, 2 * p->capacity);
	struct store_node **nodes = realloc(p->nodes, capacity * sizeof(struct store_node *));
	if (!nodes)
		return -ENOMEM;
	p->nodes = nodes;
	p->capacity = capacity;
	return 0;
}

uint32_t node_path(struct store *s, struct store_node *n)
{
	uint32_t depth = 0;

	for (const struct store_node *at = n; at->parent; at = at->parent)
		depth++;
	if (path_reserve(&s->path, depth))
		return 0;
	for (uint32_t i = depth; i-- > 0; n = n->parent)
		s->path.nodes[i] = n;
	return depth;
}

uint32_t node_depth(const struct store_node *n)
{
	uint32_t depth = 0;

	for (; n->parent; n = n->parent)
		depth++;
	return depth;
}

static uint64_t pinned_bytes(const struct store_node *n)
{
	return n->n_pinned > 0 ? n->n_slices * node_model(n)->lent.page_bytes : 0;
}

void node_uncharge_pinned(struct store_node *n)
{
	n->namespace->holding->domain->pinned_bytes -= pinned_bytes(n);
	node_store(n)->stats.pinned_bytes -= pinned_bytes(n);
}

void node_charge_pinned(struct store_node *n)
{
	n->namespace->holding->domain->pinned_bytes += pinned_bytes(n);
	node_store(n)->stats.pinned_bytes += pinned_bytes(n);
}

void node_attach(struct store_node *n, const struct store_node *stop)
{
	for (; n != stop; n = n->parent)
		if (n->n_users++ == 0 && (n->listed || n->residency))
			lru_leave(n);
}

void node_detach(struct store_node *n, const struct store_node *stop)
{
	for (; n != stop; n = n->parent) {
		assert(n->n_users > 0);
		if (--n->n_users == 0)
			lru_update(n);
	}
}
