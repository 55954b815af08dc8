/* residency.c - see residency.h. */
#include "residency.h"

#include "kvstore/tiers/promote.h"
#include "lru.h"
#include "node.h"
#include "radix.h"
#include "namespace.h"
#include "kvstore/tiers/tiers.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

bool node_goes_on(const struct store_node *n)
{
	const struct store_node *p = n->parent;
	uint32_t last = p->n_slices - 1;

	if (p->n_slices == 0 || n->slices[0].first == 0)
		return false;
	if (node_n_memory(n) == 0) /* in the file alone, and so is the parent's last or a copy */
		return node_n_backed(p) == p->n_slices &&
		       n->lower->images[0] == p->lower->images[last];
	return (node_n_device(n) > 0) == (node_n_device(p) == p->n_slices) &&
	       n->slices[0].page == p->slices[last].page;
}

static int images_reserve(struct store_lower *l, uint32_t n)
{
	if (n <= l->images_capacity)
		return 0;
	uint32_t capacity = n < 2 * l->images_capacity ? 2 * l->images_capacity : n;
	uint32_t *images = realloc(l->images, capacity * sizeof(*images));
	if (!images)
		return -ENOMEM;
	l->images = images;
	l->images_capacity = capacity;
	return 0;
}

int lower_reserve(struct store_node *n, uint32_t n_images)
{
	struct store_lower *l = n->lower;

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return -ENOMEM;
		l->n_device = n->n_slices;
		l->n_memory = n->n_slices;
		l->device_tokens = n->n_tokens;
		n->lower = l;
	}
	return images_reserve(l, n_images);
}

void lower_free(struct store *s, struct store_node *n)
{
	assert(!n->lower->listed[STORE_HOST] && !n->lower->listed[STORE_FILE]);
	assert(LIST_EMPTY(&n->lower->wants));
	if (n->lower->dirty) {
		TAILQ_REMOVE(&s->tiers->dirty, n, lower->dirty_order);
		s->tiers->n_dirty--;
	}
	free(n->lower->images);
	free(n->lower);
	n->lower = NULL;
}

void lower_share(struct store_node *n, uint32_t index)
{
	struct store_model *m = node_model(n);
	uint32_t place = n->slices[index].page;

	if (index < node_n_device(n))
		pages_at(&m->store->pages, &m->lent, place)->n_slices++;
	else if (index < node_n_memory(n))
		tiers_ref(m->store->tiers, STORE_HOST, place);
	if (index < node_n_backed(n))
		tiers_ref(m->store->tiers, STORE_FILE, n->lower->images[index]);
}

void lower_split(struct store_node *n, struct store_node *upper, uint32_t n_gone)
{
	struct store_lower *l = n->lower, *u = upper->lower;
	uint32_t k = upper->n_slices;

	if (!l)
		return;
	u->n_device = min_u32(l->n_device, k);
	u->n_memory = min_u32(l->n_memory, k);
	u->n_backed = min_u32(l->n_backed, k);
	u->device_tokens = min_u32(l->device_tokens, upper->n_tokens);
	u->backed_tokens = min_u32(l->backed_tokens, upper->n_tokens);
	if (u->n_backed > 0)
		memcpy(u->images, l->images, u->n_backed * sizeof(*u->images));
	l->n_device -= min_u32(l->n_device, n_gone);
	l->n_memory -= min_u32(l->n_memory, n_gone);
	l->device_tokens -= u->device_tokens;
	l->backed_tokens -= u->backed_tokens;
	uint32_t n_images_gone = min_u32(l->n_backed, n_gone);
	l->n_backed -= n_images_gone;
	if (l->n_backed > 0)
		memmove(l->images, l->images + n_images_gone, l->n_backed * sizeof(*l->images));
}

/* Of the image of a slice that begins a node, and begins inside the image, what comes before is
 * still referred to. */
static void image_shorten(struct tiers *t, const struct store_node *n, uint32_t place)
{
	struct tier_catalog *c = tier_file_catalog(t->file);
	const struct tier_image *image = c->images[place];

	if (image && n->pos > image->pos && n->pos < image->pos + image->n_tokens)
		tier_catalog_shorten(c, place, n->pos);
}

static void image_release(struct store *s, const struct store_node *n, uint32_t index)
{
	uint32_t place = n->lower->images[index];

	if (index == 0)
		image_shorten(s->tiers, n, place);
	tiers_unref(s, STORE_FILE, place);
}

void lower_release(struct store_node *n, uint32_t index)
{
	struct store_holding *h = n->space->holding;
	struct store *s = h->model->store;

	if (index < node_n_device(n))
		pages_drop(&s->pages, h->model, h->domain, n->slices[index]);
	else if (index < node_n_memory(n))
		tiers_unref(s, STORE_HOST, n->slices[index].page);
	if (index < node_n_backed(n))
		image_release(s, n, index);
}

void lower_appended(struct store_node *n)
{
	if (!n->lower)
		return;
	n->lower->n_device = n->n_slices;
	n->lower->n_memory = n->n_slices;
	n->lower->device_tokens = n->n_tokens;
}

void lower_unback(struct store_node *n)
{
	struct store_lower *l = n->lower;

	assert(l->n_backed > 0 && l->n_backed <= l->n_memory);
	image_release(node_store(n), n, l->n_backed - 1);
	l->n_backed--;
	l->backed_tokens -= n->slices[l->n_backed].count;
	lru_settle(n);
}

void lower_unback_last(struct store_node *n)
{
	if (n->lower && n->lower->n_backed == n->n_slices)
		lower_unback(n);
}

static void node_cut(struct store *s, struct store_node *n)
{
	struct store_space *space = n->space;

	radix_cut(n);
	s->stats.nodes_evicted++;
	space_settle(space);
}

/* The last of several slices. */
static void slice_drop(struct store *s, struct store_node *n)
{
	struct store_lower *l = n->lower;
	uint32_t i = n->n_slices - 1, count = n->slices[i].count;

	if (n->listed && i < l->n_device)
		n->space->holding->n_idle_slices--;
	lower_release(n, i);
	if (i < l->n_device)
		l->device_tokens -= count;
	if (i < l->n_backed)
		l->backed_tokens -= count;
	l->n_device = min_u32(l->n_device, i);
	l->n_memory = min_u32(l->n_memory, i);
	l->n_backed = min_u32(l->n_backed, i);
	n->n_slices--;
	n->n_tokens -= count;
	s->stats.n_tokens -= count;
	lru_settle(n);
}

void lower_drop_last(struct store *s, struct store_node *n)
{
	assert(LIST_EMPTY(&n->children) && n->n_users == 0);
	s->tiers->stats.slices_dropped++;
	if (n->n_slices == 1)
		node_cut(s, n);
	else
		slice_drop(s, n);
}

/* Who wants or has pinned more of a node than n_path. */
static void users_end(struct store *s, struct store_node *n, uint32_t n_path)
{
	struct store_seq *q = n->lower ? LIST_FIRST(&n->lower->wants) : NULL;
	struct store_pin *p = LIST_FIRST(&n->pins);

	while (q) {
		struct store_seq *next = LIST_NEXT(q, at_want);
		if (q->want_path > n_path)
			fetch_end(s, q);
		q = next;
	}
	while (p) {
		struct store_pin *next = LIST_NEXT(p, at_node);
		if (p->n_path > n_path)
			pin_end(s, p);
		p = next;
	}
	s->epoch++;
}

static void children_cut(struct store *s, struct store_node *top)
{
	struct store_node *n = top;

	while (!LIST_EMPTY(&top->children)) {
		while (!LIST_EMPTY(&n->children))
			n = LIST_FIRST(&n->children);
		struct store_node *parent = n->parent;
		users_end(s, n, n->pos);
		s->tiers->stats.slices_dropped += n->n_slices;
		node_cut(s, n);
		n = parent;
	}
}

/* Tokens of the first n_slices of a node. */
static uint32_t tokens_of(const struct store_node *n, uint32_t n_slices)
{
	uint32_t n_tokens = 0;

	for (uint32_t i = 0; i < n_slices; i++)
		n_tokens += n->slices[i].count;
	return n_tokens;
}

void lower_forget(struct store *s, struct store_node *n, uint32_t n_slices)
{
	uint32_t left = n->n_slices;

	children_cut(s, n);
	users_end(s, n, n->pos + tokens_of(n, n_slices));
	if (n_slices == 0) {
		s->tiers->stats.slices_dropped += left;
		node_cut(s, n);
		return;
	}
	for (; left > n_slices; left--) {
		s->tiers->stats.slices_dropped++;
		slice_drop(s, n);
	}
}

void lower_cut_all(struct store *s)
{
	while (!TAILQ_EMPTY(&s->all_spaces)) {
		struct store_space *space = TAILQ_FIRST(&s->all_spaces);
		space->root->n_users++; /* so that it outlives its last child */
		children_cut(s, space->root);
		space->root->n_users--;
		space_settle(space);
	}
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
	struct store_lower *l = n->lower;

	for (; l && l->n_device < n->n_slices; l->n_device++) {
		struct store_slice *slice = &n->slices[l->n_device];
		if (l->n_device < l->n_memory)
			tiers_unref(s, STORE_HOST, slice->page);
		else
			l->n_memory++;
		slice->page = slots_use(node_model(n), from, *slice);
		l->device_tokens += slice->count;
		n->space->holding->n_idle_slices += n->listed;
	}
	lru_settle(n);
}

uint32_t lower_fill(struct store *s, struct store_node *n, struct store_slice *slots,
		    uint32_t n_slots)
{
	struct slots from = {.slots = slots, .n = n_slots};
	uint32_t depth = tiers_path(s->tiers, n);

	assert(depth > 0);
	for (uint32_t i = 0; i < depth; i++)
		node_fill(s, s->tiers->path[i], &from);
	memmove(slots, from.slots, from.n * sizeof(*slots));
	if (from.n > 0) {
		slots[0].first = (uint16_t)(slots[0].first + from.used);
		slots[0].count = (uint16_t)(slots[0].count - from.used);
	}
	return from.n;
}
