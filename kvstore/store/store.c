/* store.c - the store's beginning and end, its clock, its figures, and what others read of nodes;
 * see store.h. */
#include "kvstore/store.h"

#include "kvstore/tree/claim.h"
#include "kvstore/tree/collapse.h"
#include "kvstore/tree/domain.h"
#include "kvstore/tiers/evict.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/namespace.h"
#include "kvstore/tiers/tiers.h"
#include "kvstore/tree/pin.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static bool config_ok(const struct store_config *c)
{
	return c->pool.commit && c->pool.release && c->n_extents > 0 && c->extent_bytes > 0 &&
	       c->max_seq_tokens > 0 && c->n_devices <= PAGES_DEVICES_MAX &&
	       c->max_path_nodes <= STORE_PATH_NODES_MAX;
}

static void store_init(struct store *s, const struct store_config *config)
{
	s->config = *config;
	if (config->max_path_nodes == 0)
		s->config.max_path_nodes = STORE_PATH_NODES_MAX;
	node_slab_init(&s->slab);
	blocks_init(&s->blocks);
	index_init(&s->models);
	index_init(&s->domains);
	index_init(&s->namespaces);
	index_init(&s->children);
	index_init(&s->claims);
	index_init(&s->pins);
	pin_init(&s->pin_heap);
	TAILQ_INIT(&s->all_namespaces);
	TAILQ_INIT(&s->claim_order);
}

int store_new(const struct store_config *config, struct store **ret)
{
	if (!config_ok(config))
		return -EINVAL;
	struct store *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	store_init(s, config);
	int r = pages_init(&s->pages, config);
	if (!r && getrandom(s->seed, sizeof(s->seed), 0) != sizeof(s->seed)) {
		r = -errno;
		pages_done(&s->pages);
	}
	if (r) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	assert(s->stats.n_seqs == 0);
	pages_release(&s->pages);
	pin_done(s);
	tiers_stop(s);
	evict_all(s);
	while (!LIST_EMPTY(&s->all_models))
		model_free(LIST_FIRST(&s->all_models));
	tiers_free(s);
	pages_done(&s->pages);
	node_slab_done(&s->slab);
	blocks_done(&s->blocks);
	index_done(&s->models);
	index_done(&s->domains);
	index_done(&s->namespaces);
	index_done(&s->children);
	index_done(&s->claims);
	index_done(&s->pins);
	free(s->path.nodes);
	free(s);
}

uint64_t store_tick(struct store *s, uint64_t now_ns)
{
	pages_release(&s->pages);
	claim_expire(s, now_ns);
	pin_expire(s, now_ns);
	if (collapse_some(s))
		return now_ns;
	uint64_t claim_ns = claim_next_ns(s);
	uint64_t pin_ns = pin_next_ns(s);
	return min_u64(claim_ns, pin_ns);
}

uint64_t store_epoch(const struct store *s)
{
	return s->epoch;
}

uint64_t store_pages_evicted(const struct store *s)
{
	return s->stats.pages_evicted;
}

void store_stats(const struct store *s, struct store_stats *ret)
{
	*ret = s->stats;
	ret->n_models = s->models.n_links;
	ret->n_namespaces = s->namespaces.n_links;
	ret->n_claims = s->claims.n_links;
	ret->n_pins = s->pins.n_links;
	ret->n_pages = s->pages.n_used;
	ret->page_bytes = s->pages.used_bytes;
	ret->n_extents = s->pages.n_extents;
	ret->n_extents_used = s->pages.n_extents_used;
	ret->n_devices = s->pages.n_devices;
}

void store_set_ready(struct store *s, uint32_t extent, bool ready)
{
	pages_set_ready(&s->pages, extent, ready);
}

bool store_is_ready(const struct store *s, uint32_t extent)
{
	return s->pages.extents[extent].ready;
}

uint32_t store_last_ready(const struct store *s)
{
	return pages_last_ready(&s->pages);
}

uint32_t store_next_unready(const struct store *s)
{
	return pages_next_unready(&s->pages);
}

uint64_t store_device_bytes(const struct store *s, uint32_t device)
{
	return device < s->pages.n_devices ? s->pages.device_bytes[device] : 0;
}

uint64_t store_domain_bytes(const struct store *s, uint64_t domain)
{
	const struct store_domain *d = domain_find(s, domain);

	if (!d)
		return 0;
	return d->pages.max_extents ? d->pages.n_extents * s->config.extent_bytes : d->pages.bytes;
}

struct store_node *store_node_parent(const struct store_node *n)
{
	return n->parent;
}

uint32_t store_node_pos(const struct store_node *n)
{
	return n->pos;
}

uint32_t store_node_n_tokens(const struct store_node *n)
{
	return n->n_tokens;
}

const struct store_slice *store_node_slices(const struct store_node *n, uint32_t *ret_n)
{
	*ret_n = n->n_slices;
	return n->slices;
}

uint64_t *store_node_scratch(struct store_node *n)
{
	return &n->scratch;
}
