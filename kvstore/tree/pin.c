/*
 * pin.c - pins by id, by age and by when they end.
 *
 * A pin is a user of the node in which its path ends. It is found by id in an index, ends by a heap
 * whose first entry ends first, and is listed in a queue along which ids rise. A domain has no more
 * of them than it may, and they keep no more than they may: what is pinned is not evicted for
 * anybody, for as long as a day, whether its user is there or not. Counted are whole nodes, as
 * nothing of a used node goes, each once.
 */
#include "pin.h"

#include "border.h"
#include "claim.h"
#include "node.h"
#include "residency.h"
#include "namespace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void heap_put(struct pin_heap *h, uint32_t i, struct store_pin *p)
{
	h->pins[i] = p;
	p->heap_index = i;
}

static void heap_rise(struct pin_heap *h, uint32_t i)
{
	struct store_pin *p = h->pins[i];

	for (; i > 0 && h->pins[(i - 1) / 2]->until_ns > p->until_ns; i = (i - 1) / 2)
		heap_put(h, i, h->pins[(i - 1) / 2]);
	heap_put(h, i, p);
}

static void heap_sink(struct pin_heap *h, uint32_t i)
{
	struct store_pin *p = h->pins[i];

	for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
		if (child + 1 < h->n && h->pins[child + 1]->until_ns < h->pins[child]->until_ns)
			child++;
		if (h->pins[child]->until_ns >= p->until_ns)
			break;
		heap_put(h, i, h->pins[child]);
	}
	heap_put(h, i, p);
}

static void heap_remove(struct pin_heap *h, struct store_pin *p)
{
	struct store_pin *last = h->pins[--h->n];

	if (last == p)
		return;
	heap_put(h, p->heap_index, last);
	heap_rise(h, last->heap_index);
	heap_sink(h, last->heap_index);
}

static int heap_reserve(struct pin_heap *h)
{
	if (h->n < h->capacity)
		return 0;
	uint32_t capacity = h->capacity ? 2 * h->capacity : 16;
	struct store_pin **pins = realloc(h->pins, capacity * sizeof(struct store_pin *));
	if (!pins)
		return -ENOMEM;
	h->pins = pins;
	h->capacity = capacity;
	return 0;
}

void pin_init(struct pin_heap *h)
{
	*h = (struct pin_heap){0};
	TAILQ_INIT(&h->by_age);
}

static struct store_domain *domain_of(const struct store_node *n)
{
	return n->namespace->holding->domain;
}

/* May the pins of the node's domain keep its path too, as far as none does yet? */
static bool pins_may_keep(const struct store *s, const struct store_node *n)
{
	uint64_t most = s->config.domain_pin_bytes, n_slices = 0;
	const struct store_node *at;

	for (at = n; at && at->n_pinned == 0; at = at->parent)
		n_slices += at->n_slices;
	return most == 0 || n_slices == 0 ||
	       domain_of(n)->pinned_bytes + n_slices * node_model(n)->lent.page_bytes <= most;
}

/* One pin more, or fewer, from the node up to the root. */
static void path_charge(struct store_node *n)
{
	for (; n; n = n->parent)
		if (n->n_pinned++ == 0)
			node_charge_pinned(n);
}

static void path_uncharge(struct store_node *n)
{
	for (; n; n = n->parent) {
		if (n->n_pinned == 1)
			node_uncharge_pinned(n);
		n->n_pinned--;
	}
}

int pin_new(struct store *s, struct store_node *n, uint32_t n_path, uint64_t until_ns,
	    uint64_t *ret_pin)
{
	struct pin_heap *h = &s->pin_heap;
	uint32_t most = s->config.max_domain_pins;

	if (most && domain_of(n)->n_pins >= most)
		return -EUSERS;
	if (!pins_may_keep(s, n))
		return -EDQUOT;
	if (heap_reserve(h))
		return -ENOMEM;
	struct store_pin *p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct store_pin){.id = ++h->last_id,
				.until_ns = until_ns,
				.node = n,
				.n_path = n_path};
	index_insert(&s->pins, &p->link, index_hash(s->seed, p->id, 0));
	heap_put(h, h->n++, p);
	heap_rise(h, p->heap_index);
	LIST_INSERT_HEAD(&n->pins, p, at_node);
	TAILQ_INSERT_TAIL(&h->by_age, p, by_age);
	domain_of(n)->n_pins++;
	path_charge(n);
	node_attach(n, NULL);
	*ret_pin = p->id;
	return 0;
}

void pin_end(struct store *s, struct store_pin *p)
{
	struct store_namespace *namespace = p->node->namespace;

	LIST_REMOVE(p, at_node);
	TAILQ_REMOVE(&s->pin_heap.by_age, p, by_age);
	domain_of(p->node)->n_pins--;
	path_uncharge(p->node);
	node_detach(p->node, NULL);
	border_note(p->node);
	index_remove(&s->pins, &p->link);
	heap_remove(&s->pin_heap, p);
	free(p);
	namespace_prune(namespace);
}

void pin_expire(struct store *s, uint64_t now_ns)
{
	while (s->pin_heap.n > 0 && s->pin_heap.pins[0]->until_ns <= now_ns)
		pin_end(s, s->pin_heap.pins[0]);
}

uint64_t pin_next_ns(const struct store *s)
{
	return s->pin_heap.n ? s->pin_heap.pins[0]->until_ns : UINT64_MAX;
}

void pin_done(struct store *s)
{
	while (s->pin_heap.n > 0)
		pin_end(s, s->pin_heap.pins[0]);
	free(s->pin_heap.pins);
}

int store_node_pin(struct store *s, uint64_t node_id, uint64_t until_ns, uint64_t *ret_pin)
{
	struct store_node *n = node_by_number(s, node_id);

	return n ? pin_new(s, n, node_end(n), until_ns, ret_pin) : -ENOENT;
}

/* NULL: no such pin any more. */
static struct store_pin *pin_find(const struct store *s, uint64_t id)
{
	struct index_link *l = index_find(&s->pins, index_hash(s->seed, id, 0));

	for (; l; l = index_find_next(l)) {
		struct store_pin *p = INDEX_ENTRY(l, struct store_pin, link);
		if (p->id == id)
			return p;
	}
	return NULL;
}

static bool is_of_domain(const struct store_pin *p, uint64_t domain)
{
	return domain == UINT64_MAX || domain == domain_of(p->node)->id;
}

int store_unpin(struct store *s, uint64_t pin, uint64_t domain, uint64_t now_ns)
{
	claim_expire(s, now_ns);
	struct store_pin *p = pin_find(s, pin);

	if (!p || !is_of_domain(p, domain))
		return -ENOENT;
	pin_end(s, p);
	return 0;
}

bool store_unpin_oldest(struct store *s, const char *model)
{
	struct store_pin *p = TAILQ_FIRST(&s->pin_heap.by_age);

	while (p && model && strcmp(node_model(p->node)->name, model))
		p = TAILQ_NEXT(p, by_age);
	if (p)
		pin_end(s, p);
	return p != NULL;
}

/* Pages of the path up to n_path: one that a node goes on in counts with the node above. */
static uint64_t path_pages(const struct store_node *n, uint32_t n_path)
{
	uint64_t n_pages = 0;

	for (; n->parent; n_path = n->pos, n = n->parent)
		n_pages += node_slices_to(n, n_path - n->pos) - node_goes_on(n);
	return n_pages;
}

static void pin_describe(const struct store_pin *p, struct store_pin_info *ret)
{
	const struct store_model *m = node_model(p->node);

	*ret = (struct store_pin_info){
		.id = p->id,
		.node_id = node_number(p->node),
		.model = m->name,
		.domain = domain_of(p->node)->id,
		.salt = p->node->namespace->salt,
		.n_tokens = p->n_path,
		.bytes = path_pages(p->node, p->n_path) * m->lent.page_bytes,
		.until_ns = p->until_ns,
	};
}

/* The first of the domain's from p on. */
static const struct store_pin *pin_of_domain(const struct store_pin *p, uint64_t domain)
{
	while (p && !is_of_domain(p, domain))
		p = TAILQ_NEXT(p, by_age);
	return p;
}

/* The one that comes after a pin, which may be gone. */
static const struct store_pin *pin_after(const struct store *s, uint64_t id)
{
	const struct store_pin *p = pin_find(s, id);

	if (p)
		return TAILQ_NEXT(p, by_age);
	p = TAILQ_FIRST(&s->pin_heap.by_age);
	while (p && p->id <= id)
		p = TAILQ_NEXT(p, by_age);
	return p;
}

uint32_t store_pins(const struct store *s, uint64_t domain, uint64_t *cursor,
		    struct store_pin_info *ret, uint32_t n)
{
	const struct store_pin *p = pin_of_domain(pin_after(s, *cursor), domain);
	uint32_t n_done = 0;

	for (; p && n_done < n; p = pin_of_domain(TAILQ_NEXT(p, by_age), domain)) {
		*cursor = p->id;
		pin_describe(p, &ret[n_done++]);
	}
	if (!p)
		*cursor = 0;
	return n_done;
}
