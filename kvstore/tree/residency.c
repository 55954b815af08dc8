/*
 * residency.c - the record of where a node's slices are.
 *
 * It is made when a slice first leaves the device or is written to the file, and goes with the
 * node. Along a path, and so along a node's slices, a first part is on the device, one at least as
 * long in memory, and one in the file: three numbers say which. What they count refers to pages and
 * places; a slice that is cut in two refers to its place twice.
 */
#include "residency.h"

#include "lru.h"
#include "places.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool node_goes_on(const struct store_node *n)
{
	const struct store_node *p = n->parent;
	uint32_t last = p->n_slices - 1;

	if (p->n_slices == 0 || n->slices[0].first == 0)
		return false;
	if (node_n_memory(n) == 0) /* in the file alone, and so is the parent's last or a copy */
		return node_n_backed(p) == p->n_slices &&
		       n->residency->images[0] == p->residency->images[last];
	return (node_n_device(n) > 0) == (node_n_device(p) == p->n_slices) &&
	       n->slices[0].page == p->slices[last].page;
}

/* Of a border inside a page: is what is left and right of it in one page or place, and in one image
 * or in none? */
static bool is_one_place(const struct store_node *n)
{
	const struct store_node *p = n->parent;
	uint32_t last = p->n_slices - 1;
	bool above = node_n_backed(p) == p->n_slices, below = node_n_backed(n) > 0;

	if (above != below || (below && n->residency->images[0] != p->residency->images[last]))
		return false;
	if ((node_n_device(p) == p->n_slices) != (node_n_device(n) > 0) ||
	    (node_n_memory(p) == p->n_slices) != (node_n_memory(n) > 0))
		return false;
	return node_n_memory(n) == 0 || n->slices[0].page == p->slices[last].page;
}

enum residency_border residency_border(const struct store_node *n)
{
	if (n->slices[0].first == 0)
		return RESIDENCY_BETWEEN_PAGES;
	return is_one_place(n) ? RESIDENCY_IN_PAGE : RESIDENCY_APART;
}

static int images_reserve(struct store_residency *res, uint32_t n)
{
	if (n <= res->images_capacity)
		return 0;
	uint32_t capacity = max_u32(n, 2 * res->images_capacity);
	uint32_t *images = realloc(res->images, capacity * sizeof(*images));
	if (!images)
		return -ENOMEM;
	res->images = images;
	res->images_capacity = capacity;
	return 0;
}

int residency_reserve(struct store_node *n, uint32_t n_images)
{
	struct store_residency *res = n->residency;

	if (!res) {
		res = calloc(1, sizeof(*res));
		if (!res)
			return -ENOMEM;
		res->n_device = n->n_slices;
		res->n_memory = n->n_slices;
		res->device_tokens = n->n_tokens;
		n->residency = res;
	}
	return images_reserve(res, n_images);
}

void residency_free(struct store_node *n)
{
	assert(!n->residency->listed[STORE_HOST] && !n->residency->listed[STORE_FILE]);
	assert(LIST_EMPTY(&n->residency->wants));
	assert(!n->residency->dirty);
	free(n->residency->images);
	free(n->residency);
	n->residency = NULL;
}

void residency_share(struct store_node *n, uint32_t index)
{
	struct store_model *m = node_model(n);
	uint32_t place = n->slices[index].page;

	if (index < node_n_device(n))
		pages_at(&m->store->pages, &m->lent, place)->n_slices++;
	else if (index < node_n_memory(n))
		places_ref(&m->store->places, STORE_HOST, place);
	if (index < node_n_backed(n))
		places_ref(&m->store->places, STORE_FILE, n->residency->images[index]);
}

/* For so many images at most. */
static void images_shrink(struct store_residency *res, uint32_t n)
{
	if (n >= res->images_capacity / 2)
		return;
	uint32_t *images = realloc(res->images, n * sizeof(*images));

	if (!images)
		return;
	res->images = images;
	res->images_capacity = n;
}

void residency_split(struct store_node *n, struct store_node *upper, uint32_t n_gone)
{
	struct store_residency *res = n->residency, *u = upper->residency;
	uint32_t k = upper->n_slices;

	if (!res)
		return;
	u->n_device = min_u32(res->n_device, k);
	u->n_memory = min_u32(res->n_memory, k);
	u->n_backed = min_u32(res->n_backed, k);
	u->device_tokens = min_u32(res->device_tokens, upper->n_tokens);
	u->backed_tokens = min_u32(res->backed_tokens, upper->n_tokens);
	if (u->n_backed > 0)
		memcpy(u->images, res->images, u->n_backed * sizeof(*u->images));
	res->n_device -= min_u32(res->n_device, n_gone);
	res->n_memory -= min_u32(res->n_memory, n_gone);
	res->device_tokens -= u->device_tokens;
	res->backed_tokens -= u->backed_tokens;
	uint32_t n_images_gone = min_u32(res->n_backed, n_gone);
	res->n_backed -= n_images_gone;
	if (res->n_backed > 0)
		memmove(res->images, res->images + n_images_gone,
			res->n_backed * sizeof(*res->images));
	images_shrink(res, n->n_slices - n_gone);
}

/* The child's first slice is about to be part of the node's last: what refers to both refers to one
 * of them from now on. */
static void slice_unshare(struct store_node *n, struct store_node *child)
{
	struct store_model *m = node_model(n);
	struct store *s = m->store;
	uint32_t place = child->slices[0].page;

	if (node_n_device(child) > 0)
		pages_at(&s->pages, &m->lent, place)->n_slices--;
	else if (node_n_memory(child) > 0)
		places_unref(s, STORE_HOST, place);
	if (node_n_backed(child) > 0)
		places_unref(s, STORE_FILE, child->residency->images[0]);
}

void residency_collapse(struct store_node *n, struct store_node *child,
			enum residency_border border)
{
	struct store_residency *res = n->residency;
	uint32_t shared = border == RESIDENCY_IN_PAGE;

	if (shared)
		slice_unshare(n, child);
	if (!res)
		return;
	uint32_t n_images = node_n_backed(child) > 0 ? node_n_backed(child) - shared : 0;
	if (n_images > 0)
		memcpy(res->images + res->n_backed, child->residency->images + shared,
		       n_images * sizeof(*res->images));
	res->n_backed += n_images;
	res->n_device += node_n_device(child) > 0 ? node_n_device(child) - shared : 0;
	res->n_memory += node_n_memory(child) > 0 ? node_n_memory(child) - shared : 0;
	res->device_tokens += node_device_tokens(child);
	res->backed_tokens += child->residency ? child->residency->backed_tokens : 0;
}

/* Of the image of a slice that begins a node, and begins inside the image, what comes before is
 * still referred to. */
static void image_shorten(const struct places *p, const struct store_node *n, uint32_t place)
{
	struct tier_catalog *c = tier_file_catalog(p->file);
	const struct tier_image *image = c->images[place];

	if (image && n->pos > image->pos && n->pos < image->pos + image->n_tokens)
		tier_catalog_shorten(c, place, n->pos);
}

static void image_release(struct store *s, const struct store_node *n, uint32_t index)
{
	uint32_t place = n->residency->images[index];

	if (index == 0)
		image_shorten(&s->places, n, place);
	places_unref(s, STORE_FILE, place);
}

void residency_release(struct store_node *n, uint32_t index)
{
	struct store_holding *h = n->namespace->holding;
	struct store *s = h->model->store;

	if (index < node_n_device(n))
		pages_drop(&s->pages, &h->pages, n->slices[index]);
	else if (index < node_n_memory(n))
		places_unref(s, STORE_HOST, n->slices[index].page);
	if (index < node_n_backed(n))
		image_release(s, n, index);
}

void residency_release_last(struct store_node *n)
{
	struct store_residency *res = n->residency;
	uint32_t i = n->n_slices - 1, count = n->slices[i].count;

	residency_release(n, i);
	if (!res)
		return;
	res->n_dropped++;
	if (i < res->n_device)
		res->device_tokens -= count;
	if (i < res->n_backed)
		res->backed_tokens -= count;
	res->n_device = min_u32(res->n_device, i);
	res->n_memory = min_u32(res->n_memory, i);
	res->n_backed = min_u32(res->n_backed, i);
}

void residency_appended(struct store_node *n)
{
	if (!n->residency)
		return;
	n->residency->n_device = n->n_slices;
	n->residency->n_memory = n->n_slices;
	n->residency->device_tokens = n->n_tokens;
}

void residency_unback(struct store_node *n)
{
	struct store_residency *res = n->residency;

	assert(res->n_backed > 0 && res->n_backed <= res->n_memory);
	image_release(node_store(n), n, res->n_backed - 1);
	res->n_backed--;
	res->backed_tokens -= n->slices[res->n_backed].count;
	lru_update(n);
}

void residency_unback_last(struct store_node *n)
{
	if (n->residency && n->residency->n_backed == n->n_slices)
		residency_unback(n);
}
