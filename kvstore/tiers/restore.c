/*
 * restore.c - see restore.h.
 *
 * Images come in order of their position, so that each finds the one before it in the tree: by the
 * node in which that one ends, or after a split an ancestor of it.
 */
#include "restore.h"

#include "kvstore/tree/residency.h"
#include "proto/cleanup.h"
#include "kvstore/tree/lru.h"
#include "kvstore/tree/places.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/radix.h"
#include "kvstore/tree/namespace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct restore {
	struct store *s;
	struct tier_catalog *catalog;
	/* owned: [number - 1], one reference each; NULL: of no use here */
	struct store_model **models;
	struct store_node **nodes; /* owned: [place] in which the image ends, or one below */
	struct store_tiers_found found;
};

static void models_open(struct restore *r)
{
	for (uint32_t i = 0; i < r->catalog->n_models; i++) {
		const struct tier_model *m = &r->catalog->models[i].model;
		struct store_model_info info = {
			.name = m->name,
			.fingerprint = {m->fingerprint[0], m->fingerprint[1]},
			.page_tokens = m->page_tokens,
			.page_bytes = m->page_bytes,
		};
		if (r->catalog->models[i].n_images == 0 ||
		    store_model_open(r->s, &info, &r->models[i]))
			r->models[i] = NULL;
		else
			r->models[i]->file_number = i + 1;
	}
}

/* The image's tokens and its place become the node's last. Room is there. */
static void node_extend(struct store_node *n, const struct tier_image *image)
{
	struct store_residency *res = n->residency;

	memcpy(n->tokens + n->n_tokens, image->tokens, image->n_tokens * sizeof(*n->tokens));
	n->n_tokens += image->n_tokens;
	n->first_token = n->tokens[0];
	n->slices[n->n_slices++] = (struct store_slice){
		.page = TIER_NONE,
		.first = (uint16_t)(image->pos % node_model(n)->lent.page_tokens),
		.count = (uint16_t)image->n_tokens,
	};
	res->images[res->n_backed++] = image->place;
	res->backed_tokens += image->n_tokens;
	node_store(n)->stats.n_tokens += image->n_tokens;
	lru_update(n);
}

/* Where the image's path continues; NULL node: nowhere. */
static struct store_position position_of(struct restore *r, const struct tier_image *image)
{
	struct store_position at = {.n_path = image->pos};
	struct store_namespace *namespace;

	if (image->pos > 0) {
		if (tier_catalog_follows(r->catalog, image) && r->nodes[image->before])
			at.node = radix_ancestor(r->nodes[image->before], image->pos);
		return at;
	}
	struct store_model *m = r->models[image->model - 1];
	if (m && places_units(&r->s->places, m) > 0 &&
	    !namespace_get(m, image->domain, image->salt, &namespace))
		at.node = namespace->root;
	return at;
}

/* -EINVAL: it is of no use. -ENOMEM. */
static int image_restore(struct restore *r, const struct tier_image *image)
{
	struct store_position at = position_of(r, image), end = at;
	struct radix_graft graft = {0};

	if (!at.node)
		return -EINVAL;
	struct store_namespace *namespace = at.node->namespace;
	if (radix_match_anywhere(r->s, &end, image->tokens, image->n_tokens) > 0)
		return -EINVAL;
	int e = radix_graft_prepare(at, image->n_tokens, 1, true, &graft);
	if (!e && graft.child)
		e = residency_reserve(graft.child, 1);
	else if (!e && !graft.upper)
		e = residency_reserve(at.node, node_n_backed(at.node) + 1);
	if (e) {
		node_free(r->s, graft.child);
		node_free(r->s, graft.upper);
		namespace_prune(namespace);
		return e;
	}
	struct store_node *n = radix_graft_commit(&graft, image->tokens[0]);
	node_extend(n, image);
	places_found(&r->s->places, namespace->holding->domain, STORE_FILE, image->place);
	r->nodes[image->place] = n;
	r->found.n_tokens += image->n_tokens;
	return 0;
}

static int images_restore(struct restore *r)
{
	CLEANUP_FREE struct tier_image **images = NULL;
	uint64_t n;
	int e = tier_catalog_images(r->catalog, &images, &n);

	if (e)
		return e;
	for (uint64_t i = 0; i < n; i++) {
		if (!image_restore(r, images[i]))
			continue;
		r->found.n_lost++;
		tier_catalog_unref(r->catalog, images[i]->place);
	}
	return 0;
}

int restore_all(struct store *s, struct store_tiers_found *ret)
{
	struct tier_catalog *c = tier_file_catalog(s->places.file);
	size_t n_units = (size_t)c->room.n_chunks * c->room.chunk_units;
	struct restore r = {.s = s, .catalog = c};
	int e = -ENOMEM;

	r.models = calloc(c->n_models + 1, sizeof(struct store_model *));
	r.nodes = calloc(n_units, sizeof(struct store_node *));
	if (r.models && r.nodes) {
		models_open(&r);
		e = images_restore(&r);
		for (uint32_t i = 0; i < c->n_models; i++)
			if (r.models[i])
				store_model_unref(r.models[i]);
	}
	free(r.models);
	free(r.nodes);
	if (!e)
		*ret = r.found;
	return e;
}
