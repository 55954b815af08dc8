/*
 * walk.c - depth first, in pieces; see walk.h.
 *
 * A walker stands before the node that comes next, so that between two calls only that one node's
 * end or split concerns it, and both tell it.
 */
#include "walk.h"

#include "node.h"
#include "proto/arith.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

static struct store_node *root_from(struct store_namespace *namespace, uint64_t domain)
{
	while (namespace && domain != UINT64_MAX && namespace->holding->domain->id != domain)
	namespace = TAILQ_NEXT(namespace, all);
	return namespace ? namespace->root : NULL;
}

/* Depth first after a node, the same depth counted along. */
static struct store_node *node_after(const struct store_node *n, uint64_t domain,
				     uint32_t *ret_depth)
{
	struct store_node *child = LIST_FIRST(&n->children);

	if (child) {
		++*ret_depth;
		return child;
	}
	for (; n->parent; n = n->parent, --*ret_depth)
		if (LIST_NEXT(n, sibling))
			return LIST_NEXT(n, sibling);
	*ret_depth = 0;
	return root_from(TAILQ_NEXT(n->namespace, all), domain);
}

void walk_skip(struct walk *walk, const struct store_node *n)
{
	uint32_t depth = 0;

	for (uint32_t i = 0; i < WALK_WALKERS; i++) {
		struct walker *w = &walk->walkers[i];
		if (w->id && w->next == n)
			w->next = node_after(n, w->domain, &depth);
	}
}

void walk_split(struct walk *walk, const struct store_node *n, struct store_node *upper)
{
	for (uint32_t i = 0; walk->n_walkers > 0 && i < WALK_WALKERS; i++)
		if (walk->walkers[i].id && walk->walkers[i].next == n)
			walk->walkers[i].next = upper;
}

/* From the system, not the store's hash: a cursor is told, and should not tell of the seed. */
static uint64_t id_new(void)
{
	uint64_t id = 0;

	while (id == 0) {
		ssize_t n = getrandom(&id, sizeof(id), 0);
		assert(n == sizeof(id)); /* it was there when the store was made */
		(void)n;
	}
	return id;
}

static struct walker *walker_begin(struct store *s, uint64_t domain)
{
	struct walk *walk = &s->walk;
	struct walker *w = walk->walkers;

	for (uint32_t i = 1; i < WALK_WALKERS && w->id; i++)
		if (!walk->walkers[i].id || walk->walkers[i].used < w->used)
			w = &walk->walkers[i];
	walk->n_walkers += !w->id;
	*w = (struct walker){
		.id = id_new(),
		.domain = domain,
		.next = root_from(TAILQ_FIRST(&s->all_namespaces), domain),
	};
	return w;
}

static struct walker *walker_find(struct walk *walk, uint64_t domain, uint64_t id)
{
	for (uint32_t i = 0; i < WALK_WALKERS; i++)
		if (walk->walkers[i].id == id && walk->walkers[i].domain == domain)
			return &walk->walkers[i];
	return NULL;
}

static void node_describe(const struct store_node *n, uint32_t depth, struct store_node_info *ret)
{
	const struct store_namespace *namespace = n->namespace;

	*ret = (struct store_node_info){
		.id = node_number(n),
		.parent_id = n->parent ? node_number(n->parent) : 0,
		.model = namespace->holding->model->name,
		.domain = namespace->holding->domain->id,
		.salt = namespace->salt,
		.depth = depth,
		.pos = n->pos,
		.n_tokens = n->n_tokens,
		.n_pages = n->n_slices,
		.n_users = n->n_users,
		.hits = n->hits,
		.n_head = min_u32(n->n_tokens, 8),
	};
	ret->n_pages_in[STORE_DEVICE] = node_n_device(n);
	ret->n_pages_in[STORE_HOST] = node_n_memory(n) - node_n_device(n);
	ret->n_pages_in[STORE_FILE] = n->n_slices - node_n_memory(n);
	ret->n_pages_backed = node_n_backed(n);
	if (ret->n_head > 0)
		memcpy(ret->head, n->tokens, ret->n_head * sizeof(*ret->head));
}

uint32_t store_walk(struct store *s, uint64_t domain, uint64_t *cursor, struct store_node_info *ret,
		    uint32_t n)
{
	struct walker *w =
		*cursor ? walker_find(&s->walk, domain, *cursor) : walker_begin(s, domain);
	uint32_t n_done = 0;

	*cursor = 0;
	if (!w)
		return 0;
	w->used = ++s->walk.clock;
	uint32_t depth = w->next ? node_depth(w->next) : 0;
	while (n_done < n && w->next) {
		node_describe(w->next, depth, &ret[n_done++]);
		w->next = node_after(w->next, w->domain, &depth);
	}
	if (n_done > 0)
		*cursor = w->id;
	if (n_done == 0 || n_done < n) {
		w->id = 0;
		s->walk.n_walkers--;
	}
	return n_done;
}
