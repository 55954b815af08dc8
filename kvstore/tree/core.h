/*
 * core.h - what the store's own files share: the structures behind store.h.
 *
 *      store ---- models ------------.
 *         \------ domains ---- holding (model, domain) ---- namespaces (salt) ---- root ---- nodes
 *                               LRU list                                            sequences, pins
 *
 * A holding is what one domain holds of one model: the unit of the LRU lists, as eviction asks for
 * the oldest of a model or of a domain. Spaces, holdings and domains live as long as something is
 * in them; models as long as they are open or hold anything.
 */
#ifndef COPPICE_KVSTORE_CORE_H
#define COPPICE_KVSTORE_CORE_H

#include "kvstore/base/blocks.h"
#include "kvstore/base/index.h"
#include "kvstore/base/numbers.h"
#include "kvstore/files/tier_file.h"
#include "kvstore/files/tier_host.h"
#include "pages.h"
#include "kvstore/store.h"

#include <sys/queue.h>

LIST_HEAD(store_seq_list, store_seq);
LIST_HEAD(store_pin_list, store_pin);
LIST_HEAD(store_node_list, store_node);
LIST_HEAD(store_holding_list, store_holding);
TAILQ_HEAD(store_lru, store_node);
TAILQ_HEAD(store_claims, store_seq);
TAILQ_HEAD(store_namespaces, store_namespace);
TAILQ_HEAD(store_wants, store_seq);
TAILQ_HEAD(store_pin_queue, store_pin);

#define STORE_NAME_BYTES 128u
#define HOLDING_AHEAD 16u

struct store_model {
	struct index_link link; /* in store.models, by name and fingerprint */
	struct store *store;
	char name[STORE_NAME_BYTES];
	uint64_t fingerprint[2];
	uint32_t n_refs;
	struct pages_lent lent;
	struct pages_tenant tenant; /* where domains have no limit */
	uint32_t file_number; /* that the model had in the tier file last; 0: none */
	struct store_holding_list holdings;
	LIST_ENTRY(store_model) all;
};

struct store_domain {
	struct index_link link; /* in store.domains, by id */
	uint64_t id;
	struct pages_account pages;
	uint32_t n_pins;
	uint64_t pinned_bytes; /* of the nodes that they keep */
	uint64_t prompt_bytes; /* ids of its sequences' prompts */
	uint64_t tier_units[STORE_TIERS]; /* of lower tiers */
	uint64_t max_units[STORE_TIERS]; /* that it may have there */
	/* It has no more: the same, or what a restart found, fewer with each page that comes */
	uint64_t most_units[STORE_TIERS];
	struct store_holding_list holdings;
};

struct store_holding {
	struct store_model *model;
	struct store_domain *domain;
	struct pages_tenant tenant; /* where the domain has a limit */
	struct pages_holder pages; /* the model's extents, this tenant or the model's */
	/* Unused nodes with slices on the device, the oldest first; then with slices in host memory
	 * but not on the device; then with images in the file. */
	struct store_lru lru[STORE_TIERS];
	struct store_node *last_listed[HOLDING_AHEAD]; /* a ring; some may be gone */
	uint32_t n_listed; /* ever */
	/* on the device, of the nodes in lru: as many pages at most are to be had by eviction */
	uint64_t n_idle_slices;
	uint32_t n_namespaces;
	uint32_t n_moves; /* under way, that hold pages or places */
	LIST_ENTRY(store_holding) of_model;
	LIST_ENTRY(store_holding) of_domain;
	LIST_ENTRY(store_holding) all;
};

struct store_namespace {
	struct index_link link; /* in store.namespaces, by holding and salt */
	struct store_holding *holding;
	uint64_t salt;
	bool at_home; /* new pages are on one device */
	uint32_t home;
	struct store_node *root; /* owned */
	TAILQ_ENTRY(store_namespace) all;
};

/* Three cache lines. A match reads the first. */
struct store_node {
	_Alignas(64) struct index_link link; /* in store.children, by parent and first token */
	struct store_node *parent;
	struct store_node *hint; /* the child that was matched last; NULL: none */
	uint32_t *tokens; /* owned, a block */
	uint32_t first_token;
	uint32_t n_tokens;
	uint32_t pos;
	uint32_t n_users; /* sequences and pins here and below */
	uint64_t id;
	struct store_slice *slices; /* owned, a block */
	uint32_t n_slices;
	uint32_t slices_capacity;
	uint32_t tokens_capacity;
	bool listed; /* in its holding's lru[STORE_DEVICE] */
	bool noted; /* in store.borders */
	uint16_t height; /* no path goes on from here through more nodes: height.h */
	TAILQ_ENTRY(store_node) lru;
	LIST_ENTRY(store_node) sibling;
	/* was listed HOLDING_AHEAD later, and may be gone: to prefetch only */
	struct store_node *ahead;
	struct store_namespace *namespace;
	uint64_t stamp; /* of its entry in lru; never falls along the list */
	uint64_t hits : 40;
	uint64_t n_pinned : 24; /* pins here and below */
	struct store_node_list children;
	struct store_seq_list seqs; /* that stand in this node, not below */
	struct store_pin_list pins;
	uint64_t scratch;
	/* owned; NULL: all slices are on the device, and nowhere else */
	struct store_residency *residency;
};

_Static_assert(offsetof(struct store_node, slices) == 64, "a match reads one line of a node");
_Static_assert(sizeof(struct store_node) == 192, "a node is three lines");

/* Which of a node's slices are where, if not all are on the device alone; see residency.h. */
struct store_residency {
	uint32_t n_device;
	uint32_t n_memory;
	uint32_t n_backed;
	uint32_t device_tokens; /* of the slices on the device */
	uint32_t backed_tokens; /* of those in the file */
	/* Moves under way for the slices after n_device, n_memory, n_backed; more than that if the
	 * node has changed since: then they will come to nothing. */
	uint32_t n_rising, n_reading, n_writing;
	uint32_t n_dropped; /* slices, ever: what follows in their place is others */
	uint32_t images_capacity;
	uint32_t *images; /* owned */
	bool listed[STORE_TIERS]; /* in its holding's lru; of the device: see the node */
	bool dirty; /* in tiers.dirty */
	uint64_t stamps[STORE_TIERS];
	TAILQ_ENTRY(store_node) lru[STORE_TIERS];
	TAILQ_ENTRY(store_node) dirty_order;
	struct store_seq_list wants; /* that end in this node */
};

/* Where in a tree: a node, and a length of path that ends in it. node->pos < n_path <= end of node,
 * or the root and 0; so a border between two nodes is the end of the upper one, always. */
struct store_position {
	struct store_node *node;
	uint32_t n_path;
};

/* Nodes come from chunks that stay, the lowest free slot first. The number of a node, by which
 * people know it, is the slot plus one; its id has above that how often the slot was used. */
struct node_slab {
	struct store_node **chunks; /* owned, each too */
	uint32_t n_chunks;
	uint32_t chunks_capacity;
	struct numbers slots;
};

#define BORDERS_MAX 1024u

/* A ring; see border.h. */
struct borders {
	uint64_t ids[BORDERS_MAX];
	uint32_t first, n;
};

/* Tokens behind the path that are nobody else's yet; see tail.h. */
struct seq_tail {
	uint32_t n; /* 0: none */
	uint32_t n_slots;
	uint32_t *ids; /* owned */
	struct store_slice *slots; /* owned: one a page */
	uint32_t ids_capacity, slots_capacity;
	bool listed; /* in tiers.tails */
	bool held; /* a gather is about it: it stays where it is */
	TAILQ_ENTRY(store_seq) order;
};

/* Tokens of a path from pos on, behind the place of all who have it (prompt.h). */
struct prompt {
	uint32_t n_refs; /* sequences */
	uint32_t pos;
	uint32_t *ids; /* the copy, or owned: malloc's */
	uint32_t copy[]; /* empty where ids were given */
};

struct store_seq {
	struct store_node *node;
	uint32_t n_path;
	uint64_t path_version;
	uint32_t n_prompt; /* 0: the prompt is computed or left */
	struct prompt *prompt; /* a reference of its own; NULL when n_prompt is 0 */
	uint32_t n_live;
	bool draft;
	bool claims;
	uint32_t n_slots;
	uint32_t *ids; /* owned: of the live extension */
	struct store_slice *slots; /* owned */
	uint32_t ids_capacity;
	uint32_t slots_capacity;
	struct seq_tail tail;
	uint64_t lease_ns; /* end of the claim */
	struct index_link claim_link; /* in store.claims, by position and first token */
	TAILQ_ENTRY(store_seq) claim_order;
	LIST_ENTRY(store_seq) at_node;
	/* What is wanted from lower tiers: the path to here. It counts as used. */
	struct store_node *want; /* NULL: nothing */
	uint32_t want_path;
	bool want_waits; /* in tiers.wants: not all of it is there yet */
	bool want_failed; /* there was no room: not wanted again */
	bool want_stays; /* there was none on the device: it is to be in memory */
	enum store_tier want_tier; /* the lowest that it comes from */
	uint64_t want_since_ns;
	LIST_ENTRY(store_seq) at_want;
	TAILQ_ENTRY(store_seq) want_order;
};

_Static_assert(sizeof(struct store_seq) % BLOCKS_LINE_BYTES == 0, "a sequence is whole lines");

/* There is a prompt, and n_path is in it. */
static inline const uint32_t *prompt_at(const struct store_seq *q, uint32_t n_path)
{
	return q->prompt->ids + (n_path - q->prompt->pos);
}

struct store_pin {
	struct index_link link; /* in store.pins, by id */
	uint64_t id;
	uint64_t until_ns;
	struct store_node *node;
	uint32_t n_path; /* of the path that is pinned; ends in node */
	uint32_t heap_index;
	LIST_ENTRY(store_pin) at_node;
	TAILQ_ENTRY(store_pin) by_age;
};

struct pin_heap {
	struct store_pin **pins; /* owned, each too; the one that ends first, first */
	uint32_t n;
	uint32_t capacity;
	uint64_t last_id;
	struct store_pin_queue by_age; /* ids rise along it */
};

#define WALK_WALKERS STORE_WALKS

struct walker {
	uint64_t id; /* 0: free */
	uint64_t used; /* walk.clock at the last call */
	uint64_t domain;
	struct store_node *next; /* NULL: at the end */
};

struct walk {
	struct walker walkers[WALK_WALKERS];
	uint64_t clock;
	uint32_t n_walkers;
};

/* What lies below the device: places in host memory and in a file, and who is charged for them;
 * see places.h. */
struct places {
	struct tier_host *host; /* owned; NULL: nothing is below the device */
	struct tier_file *file; /* owned; NULL: none */
	struct store_domain **owners[STORE_TIERS]; /* owned: [place] who is charged; NULL: nobody */
	/* units of host memory that nobody is charged for: on the way to the file */
	uint32_t n_passing;
	uint32_t max_passing; /* pages on their way to the file at once; 0: none ever is */
	/* a domain may have, or the owner's; UINT64_MAX: no limit */
	uint64_t domain_units[STORE_TIERS], owner_units[STORE_TIERS];
	uint32_t n_over[STORE_TIERS]; /* domains that have more than they may */
};

/* Room for the nodes of a path, from below the root on. */
struct node_path {
	struct store_node **nodes; /* owned */
	uint32_t capacity;
};

struct store {
	struct store_config config;
	uint64_t seed[2];
	struct pages pages;
	struct node_slab slab;
	struct blocks blocks;
	struct index models, domains, namespaces, children, claims, pins;
	LIST_HEAD(, store_model) all_models;
	struct store_holding_list all_holdings;
	struct store_namespaces all_namespaces;
	struct store_claims claim_order; /* the lease that ends first, first */
	struct pin_heap pin_heap;
	struct walk walk;
	struct node_path path;
	struct places places;
	struct tiers *tiers; /* owned; NULL: none below the device */
	uint64_t stamp;
	uint64_t epoch;
	struct store_stats stats; /* what is counted as it happens; store_stats adds the rest */
	struct borders borders;
};

static inline struct store *node_store(const struct store_node *n)
{
	return n->namespace->holding->model->store;
}

static inline struct store_model *node_model(const struct store_node *n)
{
	return n->namespace->holding->model;
}

static inline uint32_t node_number(const struct store_node *n)
{
	return (uint32_t)n->id;
}

static inline uint32_t node_end(const struct store_node *n)
{
	return n->pos + n->n_tokens;
}

static inline uint32_t node_n_device(const struct store_node *n)
{
	return n->residency ? n->residency->n_device : n->n_slices;
}

static inline uint32_t node_n_memory(const struct store_node *n)
{
	return n->residency ? n->residency->n_memory : n->n_slices;
}

static inline uint32_t node_n_backed(const struct store_node *n)
{
	return n->residency ? n->residency->n_backed : 0;
}

static inline uint32_t node_device_tokens(const struct store_node *n)
{
	return n->residency ? n->residency->device_tokens : n->n_tokens;
}

/* How many of the node's slices a tier's list is about: on the device; in host memory alone; in the
 * file. */
static inline uint32_t node_n_in(const struct store_node *n, enum store_tier tier)
{
	if (tier == STORE_DEVICE)
		return node_n_device(n);
	return tier == STORE_HOST ? node_n_memory(n) - node_n_device(n) : node_n_backed(n);
}

#endif
