/*
 * namespace.c - models, holdings and namespaces.
 *
 * Each is found by a hash of what it is called by, made when it is first needed, and freed by
 * whoever takes the last thing out of it. An open model stays though it is empty.
 */
#include "namespace.h"

#include "domain.h"
#include "node.h"
#include "walk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_MAX_PAGE_TOKENS 32768u /* rows of a slice are 16 bits wide */

static uint64_t model_hash(const struct store *s, const struct store_model_info *info)
{
	uint64_t hash = index_hash(s->seed, info->fingerprint[0], info->fingerprint[1]);

	for (const char *c = info->name; *c; c++)
		hash = index_hash(s->seed, hash, (unsigned char)*c);
	return hash;
}

static struct store_model *model_find(const struct store *s, const struct store_model_info *info,
				      uint64_t hash)
{
	for (struct index_link *l = index_find(&s->models, hash); l; l = index_find_next(l)) {
		struct store_model *m = INDEX_ENTRY(l, struct store_model, link);
		if (!strcmp(m->name, info->name) &&
		    !memcmp(m->fingerprint, info->fingerprint, sizeof(m->fingerprint)))
			return m;
	}
	return NULL;
}

static bool model_info_ok(const struct store_model_info *info)
{
	return info->name && strnlen(info->name, STORE_NAME_BYTES) < STORE_NAME_BYTES &&
	       info->page_tokens > 0 && info->page_tokens <= MODEL_MAX_PAGE_TOKENS &&
	       info->page_bytes > 0;
}

/* -EMSGSIZE: an extent has no room for a page; -EINVAL: the pool has too many. */
static int lent_of(const struct store *s, const struct store_model_info *info,
		   struct pages_lent *ret)
{
	uint64_t n_devices = info->striped ? s->pages.n_devices : 1;
	uint64_t extent_pages = s->config.extent_bytes / n_devices / info->page_bytes * n_devices;

	if (extent_pages == 0)
		return -EMSGSIZE;
	if (extent_pages * s->config.n_extents >= PAGES_NONE)
		return -EINVAL;
	*ret = (struct pages_lent){.page_bytes = info->page_bytes,
				   .page_tokens = info->page_tokens,
				   .part_bytes = info->striped
							 ? info->page_bytes
							 : info->page_bytes / s->pages.n_devices,
				   .extent_pages = (uint32_t)extent_pages,
				   .n_devices = (uint32_t)n_devices};
	return 0;
}

/* What was restored from a file does not know yet how it is striped. */
static int model_agree(struct store_model *m, const struct store_model_info *info)
{
	struct pages_lent lent;

	if (m->lent.page_tokens != info->page_tokens || m->lent.page_bytes != info->page_bytes)
		return -EINVAL;
	int r = lent_of(m->store, info, &lent);
	if (r || lent.n_devices == m->lent.n_devices)
		return r;
	if (m->lent.n_extents > 0)
		return -EINVAL;
	m->lent = lent;
	return 0;
}

static int model_new(struct store *s, const struct store_model_info *info, uint64_t hash,
		     struct store_model **ret)
{
	struct pages_lent lent;
	int r = lent_of(s, info, &lent);

	if (r)
		return r;
	struct store_model *m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->store = s;
	strcpy(m->name, info->name);
	memcpy(m->fingerprint, info->fingerprint, sizeof(m->fingerprint));
	m->lent = lent;
	index_insert(&s->models, &m->link, hash);
	LIST_INSERT_HEAD(&s->all_models, m, all);
	*ret = m;
	return 0;
}

void model_free(struct store_model *m)
{
	assert(LIST_EMPTY(&m->holdings));
	pages_leave(&m->store->pages, &m->lent);
	assert(m->lent.n_extents == 0);
	index_remove(&m->store->models, &m->link);
	LIST_REMOVE(m, all);
	free(m);
}

static void model_prune(struct store_model *m)
{
	if (m->n_refs > 0 || !LIST_EMPTY(&m->holdings))
		return;
	pages_release(&m->store->pages);
	model_free(m);
}

int store_model_open(struct store *s, const struct store_model_info *info, struct store_model **ret)
{
	if (!model_info_ok(info))
		return -EINVAL;
	uint64_t hash = model_hash(s, info);
	struct store_model *m = model_find(s, info, hash);
	int r = m ? model_agree(m, info) : model_new(s, info, hash, &m);
	if (r)
		return r;
	m->n_refs++;
	*ret = m;
	return 0;
}

void store_model_unref(struct store_model *m)
{
	assert(m->n_refs > 0);
	m->n_refs--;
	model_prune(m);
}

bool store_has_model(const struct store *s, const char *name)
{
	const struct store_model *m;

	LIST_FOREACH (m, &s->all_models, all)
		if (!strcmp(m->name, name))
			return true;
	return false;
}

static int holding_new(struct store_model *m, struct store_domain *d, struct store_holding **ret)
{
	struct store_holding *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->model = m;
	h->domain = d;
	h->tenant.account = &d->pages;
	h->pages = (struct pages_holder){
		.lent = &m->lent,
		.tenant = d->pages.max_extents ? &h->tenant : &m->tenant,
		.account = &d->pages,
	};
	for (enum store_tier i = 0; i < STORE_TIERS; i++)
		TAILQ_INIT(&h->lru[i]);
	LIST_INSERT_HEAD(&m->holdings, h, of_model);
	LIST_INSERT_HEAD(&d->holdings, h, of_domain);
	LIST_INSERT_HEAD(&m->store->all_holdings, h, all);
	*ret = h;
	return 0;
}

void holding_prune(struct store_holding *h)
{
	struct store_domain *d = h->domain;
	struct store_model *m = h->model;

	if (h->n_namespaces > 0 || h->n_moves > 0)
		return;
	for (enum store_tier i = 0; i < STORE_TIERS; i++)
		assert(TAILQ_EMPTY(&h->lru[i]));
	assert(h->n_idle_slices == 0 && h->tenant.n_extents == 0);
	LIST_REMOVE(h, of_model);
	LIST_REMOVE(h, of_domain);
	LIST_REMOVE(h, all);
	free(h);
	domain_prune(m->store, d);
	model_prune(m);
}

static int holding_get(struct store_model *m, uint64_t domain, struct store_holding **ret)
{
	struct store_domain *d = domain_find(m->store, domain);
	int r = d ? 0 : domain_new(m->store, domain, &d);

	if (r)
		return r;
	LIST_FOREACH (*ret, &d->holdings, of_domain)
		if ((*ret)->model == m)
			return 0;
	r = holding_new(m, d, ret);
	if (r)
		domain_prune(m->store, d);
	return r;
}

static struct store_namespace *namespace_find(const struct store *s, const struct store_holding *h,
					      uint64_t salt, uint64_t hash)
{
	for (struct index_link *l = index_find(&s->namespaces, hash); l; l = index_find_next(l)) {
		struct store_namespace *namespace = INDEX_ENTRY(l, struct store_namespace, link);
		if (namespace->holding == h && namespace->salt == salt)
			return namespace;
	}
	return NULL;
}

static int namespace_new(struct store_holding *h, uint64_t salt, uint64_t hash,
			 struct store_namespace **ret)
{
	struct store *s = h->model->store;
	struct store_namespace *namespace = calloc(1, sizeof(*namespace));

	if (!namespace)
		return -ENOMEM;
	namespace->holding = h;
	namespace->salt = salt;
	int r = node_new(namespace, 0, 0, &namespace->root);
	if (r) {
		free(namespace);
		return r;
	}
	index_insert(&s->namespaces, &namespace->link, hash);
	TAILQ_INSERT_TAIL(&s->all_namespaces, namespace, all);
	h->n_namespaces++;
	*ret = namespace;
	return 0;
}

int namespace_get(struct store_model *m, uint64_t domain, uint64_t salt,
		  struct store_namespace **ret)
{
	struct store_holding *h;
	int r = holding_get(m, domain, &h);

	if (r)
		return r;
	uint64_t hash = index_hash(m->store->seed, (uintptr_t)h, salt);
	struct store_namespace *namespace = namespace_find(m->store, h, salt, hash);
	if (!namespace) {
		r = namespace_new(h, salt, hash, &namespace);
		if (r) {
			holding_prune(h);
			return r;
		}
	}
	*ret = namespace;
	return 0;
}

void namespace_free(struct store_namespace *namespace)
{
	struct store_holding *h = namespace->holding;
	struct store *s = h->model->store;

	walk_cut(&s->walk, namespace->root);
	index_remove(&s->namespaces, &namespace->link);
	TAILQ_REMOVE(&s->all_namespaces, namespace, all);
	node_free(s, namespace->root);
	free(namespace);
	h->n_namespaces--;
	holding_prune(h);
}
