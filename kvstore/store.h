/*
 * store.h - who has which KV: models, domains, a radix tree of token runs over pages, sequences,
 * claims, pins.
 *
 * Pure bookkeeping: no KV bytes, no sockets, no clock (now_ns is passed in), one thread (the
 * scheduler's).
 *
 *      namespace (model, domain, salt)
 *        root --- "the document" ------ "first question"     node = token run + slices of pages
 *                   pages 0 1 2 3'  \
 *                                    "second question"       3' and this node's first page: the
 *                                                            run ended inside a page, so the child
 *                                                            starts a new page at that row
 *
 * Invariants (store_validate checks them all):
 *  - a token at position p lies in row p % page_tokens of its page, always;
 *  - a page counts its slices, is freed with the last, and is charged whole to its domain;
 *  - where domains are limited an extent has pages of one domain, and a domain no more extents and
 *    bytes than it may;
 *  - rows of a page are handed out once, in order (page.fill); whoever extends exactly at fill
 *    continues the page, anybody else starts a new page at that row;
 *  - published rows never change; siblings differ in their first token; no node but a root is
 *    empty;
 *  - a sequence is (node, n_path) plus at most one live extension, whose rows are its own, and
 *    where its path is longer than the device has room for, a tail between the two (tail.h);
 *  - a node that is not a root is in the LRU list of its model and domain exactly if neither it nor
 *    any descendant has a user (sequence or pin); in that list children stand before parents, so
 *    the oldest entry is always a leaf;
 *  - a namespace that is empty and unused is no more;
 *  - a number is one node's, and the numbers of nodes that are gone are used again, the lowest
 *    first;
 *  - with several devices a model's extent has as many pages on each, page p on device p mod their
 *    number;
 *  - with lower tiers: of every path a first part is on the device, a first part at least as long
 *    is in memory, and a first part is in the file; every slice is in memory or in the file;
 *    sequences stand on the device, or where they may be longer than that has room for
 *    (store_tiers_config.long_paths), in memory.
 *
 * A node with one child, of which nobody needs the end any more, becomes one with it, some calls
 * later (tree/collapse.h). No token moves for that.
 *
 * Functions return 0 or -errno: -ENOSPC no room and nothing left to evict, -EDQUOT the domain's
 * limit, -EMLINK a path would have too many nodes, -EBUSY an extension is live, -EINVAL a bad
 * argument, -ENOMEM. A sequence that was refused
 * is what it was. Idle nodes, also others', may have gone in the attempt to make room: that is
 * tried unless it is plain that it would be in vain.
 */
#ifndef COPPICE_STORE_H
#define COPPICE_STORE_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;
struct store_model;
struct store_node;
struct store_seq;

/* Memory for extents, by the backend. commit: 0 or -ENOMEM. */
struct store_pool {
	void *ctx; /* borrowed */
	MUST_CHECK int (*commit)(void *ctx, uint32_t extent);
	void (*release)(void *ctx, uint32_t extent);
	uint32_t (*left)(void *ctx); /* that could be committed; NULL: all that are not */
};

struct store_config {
	struct store_pool pool;
	uint32_t n_extents;
	uint64_t extent_bytes; /* on all devices together: as much on each */
	uint32_t n_devices; /* 0: one */
	uint64_t claim_ns; /* a claim without progress for so long lapses */
	/* What a domain may hold, pinned and used pages included; 0: no limit. Memory is lent in
	 * extents, so it is both the bytes of its pages, and, rounded up to whole extents, those
	 * that it has pages in: a limited domain shares extents with no other, and each of its
	 * models takes one at least. */
	uint64_t domain_bytes;
	/* The same of those whose store it is: domain 0, which is root, and owner. */
	uint64_t owner, owner_bytes;
	/* The last extents of the pool: of domains with a limit those alone take one that have
	 * fewer than are left. So whoever holds how much, who holds nothing gets a part. */
	uint32_t reserved_extents;
	uint32_t max_domain_pins; /* 0: no limit */
	uint64_t domain_pin_bytes; /* KV that pins of a domain may keep; 0: no limit */
	/* Ids of prompts that are open and not computed, which no pool bounds: of all and of a
	 * domain; 0: no limit. */
	uint64_t prompt_bytes, domain_prompt_bytes;
	uint32_t max_seq_tokens;
	/* Nodes of a path, which every walk over it is as long as; 0: STORE_PATH_NODES_MAX. */
	uint32_t max_path_nodes;
};

#define STORE_PATH_NODES_MAX 65535u

MUST_CHECK int store_new(const struct store_config *config, struct store **ret);
/* Sequences must be closed; NULL is fine. With lower tiers it waits for what is under way; what is
 * in the file stays. */
void store_free(struct store *s);

/* A model is a name plus a fingerprint; same name, other fingerprint: other KV. */
struct store_model_info {
	const char *name; /* at most 127 bytes */
	/* of dimensions, dtype, page size and what the app says of its weights */
	uint64_t fingerprint[2];
	uint32_t page_tokens;
	uint64_t page_bytes;
	/* a page is on one device, page p on device p mod n_devices; else all devices have a part
	 * of each */
	bool striped;
};

/* Finds or makes the model; one reference more. -EMSGSIZE: a page is larger than an extent. */
MUST_CHECK int store_model_open(struct store *s, const struct store_model_info *info,
				struct store_model **ret);
/* One reference less. The KV stays until evicted. */
void store_model_unref(struct store_model *m);

/* Where a prompt stands. cached <= n_prompt - 1: tokens whose KV is on the device. pending: tokens
 * after those that another sequence has claimed and computes, or that are on their way from a lower
 * tier. claimed: the rest is ours to compute under a lease. */
struct store_match {
	uint32_t cached;
	uint32_t pending;
	bool claimed;
};

struct store_open {
	struct store_model *model;
	uint64_t domain; /* peer uid */
	uint64_t salt;
	const uint32_t *tokens; /* borrowed during the call; n_tokens >= 1 */
	uint32_t n_tokens;
	/* Where tokens are, malloc's: NULL afterwards where the store keeps them, which saves a
	 * copy. NULL: they are not given. */
	uint32_t **give;
	bool at_home; /* of a striped model: all pages of this salt are on one device, home */
	uint32_t home; /* the same for all who open the same salt */
};

/* Matches the prompt, remembers what is not cached, and claims it if nobody else has. -EDQUOT,
 * -ENOBUFS: there is no room for what is not cached, of domain_prompt_bytes or of prompt_bytes, of
 * whose last tenth a domain gets no more than it leaves. */
MUST_CHECK int store_seq_open(struct store *s, const struct store_open *open, uint64_t now_ns,
			      struct store_seq **ret, struct store_match *ret_match);
/* Matches again from where the sequence stands, follows what others have published since, takes
 * over a lapsed claim. Only while no extension is live and the prompt is not computed; later it
 * reports cached == length. */
MUST_CHECK int store_seq_rematch(struct store_seq *q, uint64_t now_ns,
				 struct store_match *ret_match);
/* A copy that stands at the same position. -EBUSY while an extension is live; else as open. */
MUST_CHECK int store_seq_fork(struct store_seq *q, uint64_t now_ns, struct store_seq **ret);
/* Frees the handle, its live extension and its claim. The published tokens stay. NULL is fine. */
void store_seq_close(struct store_seq *q, uint64_t now_ns);

/*
 * Room for n more tokens after the published ones: all pages are reserved, or nothing of the
 * sequence changes and at most idle nodes have gone. Of a striped model tokens go to devices such
 * that at every position of the tree what a path has on two of them differs by no more than a run
 * (STORE_RUN_PAGES); a draft, which may be longer, is on one. draft: the tokens wait for
 * store_seq_accept instead of being published. Splits the node under the sequence if its path ends
 * inside one. -EMLINK also where they could not join the tree for that as things are.
 */
MUST_CHECK int store_seq_extend(struct store_seq *q, const uint32_t *ids, uint32_t n, bool draft,
				uint64_t now_ns);
/* Every layer of the live extension is there: its tokens join the tree. Tokens that somebody
 * published meanwhile are adopted and the own copies dropped. Not for drafts (-EINVAL). -EMLINK:
 * others have come to stand where it stands, or to leave its path, since it was extended. */
MUST_CHECK int store_seq_publish(struct store_seq *q, uint64_t now_ns);

/* Row of one token copied elsewhere, all layers and heads; to be done in order before
 * publication counts. */
struct store_move {
	uint32_t from_page, from_row;
	uint32_t to_page, to_row;
};

struct store_moves {
	struct store_move *moves; /* the caller's room, for as many as are accepted */
	uint32_t n;
};

/* Of a draft extension: tokens indices[0] < indices[1] < ... stay, the others go. Accepted token j
 * moves from slot indices[j] to slot j. The caller carries the moves out at once (before any other
 * store call), then the tokens are published. n == 0 drops the whole draft. */
MUST_CHECK int store_seq_accept(struct store_seq *q, const uint32_t *indices, uint32_t n,
				uint64_t now_ns, struct store_moves *ret);
/* A step failed: the live extension goes, rows and all. */
void store_seq_void(struct store_seq *q, uint64_t now_ns);
/* Keeps the first n_tokens; drops a live extension. -EINVAL if the sequence is shorter. */
MUST_CHECK int store_seq_trim(struct store_seq *q, uint32_t n_tokens, uint64_t now_ns);
/* A step of this sequence completed: its lease, if it has one, runs anew. */
void store_seq_progress(struct store_seq *q, uint64_t now_ns);

uint32_t store_seq_n_tokens(const struct store_seq *q); /* published part of its path */
/* While it stays the same, tokens of the path lie where they lay, and those that were live have
 * joined it where they were. */
uint64_t store_seq_path_version(const struct store_seq *q);
uint32_t store_seq_n_live(const struct store_seq *q); /* tokens of the live extension, 0: none */

#define STORE_RUN_PAGES 2u

/* Rows [first, first + count) of a page. */
struct store_slice {
	uint32_t page;
	uint16_t first;
	uint16_t count;
};

/* Slots of the live extension, in token order; valid until the next call on this sequence. */
const struct store_slice *store_seq_slots(const struct store_seq *q, uint32_t *ret_n);
/* A look at what extensions would have, of sequences of one model, whosever they are, one after the
 * other; zeroed at first. */
struct store_foresight {
	uint64_t number;
	const struct extent *empty; /* that would be lent last; NULL: none yet */
	uint32_t n_empty; /* extents that would be lent */
	bool ended; /* there are no more */
};
/* Where n tokens would lie behind those that are live, if these had joined the tree: ret has room
 * for n. Returns how many slots; 0: it cannot be told. Nothing is taken, and whoever takes or frees
 * pages meanwhile makes it wrong: who goes by it looks again when they are there. */
uint32_t store_seq_foresee(const struct store_seq *q, uint32_t n, struct store_foresight *foresight,
			   struct store_slice *ret);
/* One of those extents gets memory now, as the pool's commit does, and need not when tokens come.
 * False: they have it, or there is none. */
bool store_model_get_ready(struct store_model *m, const struct store_foresight *foresight);
/* A free extent has memory already, zeroed: it is lent before others. Until it is lent, as the
 * pool's commit hears, or it has none again. */
void store_set_ready(struct store *s, uint32_t extent, bool ready);
/* Also of one that is being lent, while the pool's commit is called. */
bool store_is_ready(const struct store *s, uint32_t extent);
/* Which of those that are ready is lent last, and which of the other free ones first, if none comes
 * back and no model has a spare. UINT32_MAX: there is none. */
uint32_t store_last_ready(const struct store *s);
uint32_t store_next_unready(const struct store *s);
/* What a step looks at, at once. */
struct store_seq_view {
	uint64_t path_version;
	uint32_t n_tokens;
	uint32_t n_last; /* of them the last so many lie in the path's last node */
	uint32_t n_live; /* tokens of the live extension, in these slots */
	const struct store_slice *slots;
	uint32_t n_slots;
};
struct store_seq_view store_seq_view(const struct store_seq *q);
/* The node in which the path ends; while an extension is live the path ends at this node's end.
 * Never NULL. */
struct store_node *store_seq_node(const struct store_seq *q);

/* The sequence's path has so many at most: those of a short one are counted, else as many as any
 * of the tree. */
uint32_t store_seq_most_nodes(const struct store_seq *q);
struct store_node *store_node_parent(const struct store_node *n); /* NULL above a root */
uint32_t store_node_pos(const struct store_node *n);
uint32_t store_node_n_tokens(const struct store_node *n);
const struct store_slice *store_node_slices(const struct store_node *n, uint32_t *ret_n);
/* A word per node for whoever walks paths: scratch of the caller's, 0 at birth. */
uint64_t *store_node_scratch(struct store_node *n);

/* Pins: the path of a sequence, or of a node by id, counts as used until until_ns. -EUSERS: the
 * domain has as many as it may; -EDQUOT: they would keep more than they may; -EBUSY, of a sequence
 * that was longer than the pool: while it is extended; -ENOSPC: no room below for what it has. */
MUST_CHECK int store_seq_pin(struct store_seq *q, uint64_t until_ns, uint64_t *ret_pin);
MUST_CHECK int store_node_pin(struct store *s, uint64_t node_id, uint64_t until_ns,
			      uint64_t *ret_pin);
/* -ENOENT: no such pin, or of another domain than this (UINT64_MAX: of any). */
MUST_CHECK int store_unpin(struct store *s, uint64_t pin, uint64_t domain, uint64_t now_ns);

/* Ends the oldest pin, of any domain, on paths of models of a name (NULL: of any). False: there is
 * none. */
bool store_unpin_oldest(struct store *s, const char *model);

/* One pin as a report shows it. */
struct store_pin_info {
	uint64_t id;
	uint64_t node_id; /* in which the pinned path ends */
	const char *model;
	uint64_t domain, salt;
	uint32_t n_tokens; /* of the path, from the root on */
	uint64_t bytes;
	uint64_t until_ns;
};
/* The pins of a domain (UINT64_MAX: of all), the oldest first. *cursor is 0 at the start, and 0
 * again when there are no more; fills up to n infos, returns how many. Pins that come or go between
 * calls may be missed or not. */
uint32_t store_pins(const struct store *s, uint64_t domain, uint64_t *cursor,
		    struct store_pin_info *ret, uint32_t n);

/* Is there a model of this name, whatever its fingerprint, open or only with KV left? */
bool store_has_model(const struct store *s, const char *name);
/* Evicts up to n_pages: the last slice of the least recently used leaf, again and again, at most
 * max_slices of them, of all models of a name, whatever their fingerprints, open or not; name NULL:
 * of all models. Returns the number of pages freed. With lower tiers slices move there; it stops
 * where slices would be lost that could stay if what is under way had ended: store_tiers_poll, and
 * evict again. */
uint32_t store_evict(struct store *s, const char *name, uint32_t n_pages, uint32_t max_slices);
/* Is there more for it to take? A slice that goes may free no page, as a page may have several. */
bool store_has_idle(const struct store *s, const char *name);

/* n extents are to go back to the pool, so that others have their memory: those that are empty,
 * then those of KV that nobody uses, of which this evicts max_slices at most, as store_evict. 0:
 * they have gone; -EAGAIN: some of it has; -EBUSY: none may now, or max_slices is 0, but when what
 * is under way has ended; -ENOSPC: whatever were evicted, not so many would be empty, and nothing
 * is. */
MUST_CHECK int store_give(struct store *s, uint32_t n, uint32_t max_slices);

/* Ends leases and pins that are over. Returns the time of the next one, UINT64_MAX if none. */
uint64_t store_tick(struct store *s, uint64_t now_ns);
/* Grows whenever a waiter's match may have changed: a claimant published, lapsed or went. */
uint64_t store_epoch(const struct store *s);

struct store_stats {
	/* roots are no nodes here */
	uint64_t n_models, n_namespaces, n_nodes, n_seqs, n_claims, n_pins;
	uint64_t n_tokens; /* in the tree */
	uint64_t prompt_bytes; /* ids of prompts that are not computed */
	uint64_t pinned_bytes; /* whole nodes that pins keep, wherever they lie */
	uint64_t n_pages, page_bytes; /* in use, by tree and live extensions */
	uint64_t n_extents, n_extents_used;
	uint32_t n_devices;
	/* dropped: adopted from others at publication */
	uint64_t tokens_matched, tokens_published, tokens_dropped;
	uint64_t pages_evicted;
	/* the device's slices that eviction dropped; nodes of which nothing was left, that were cut
	 * in two, that became one with their parents */
	uint64_t slices_evicted, nodes_evicted, nodes_split, nodes_collapsed;
};
void store_stats(const struct store *s, struct store_stats *ret);
/* What it says of pages_evicted, at no cost. */
uint64_t store_pages_evicted(const struct store *s);
/* Of the pages in use, on one device. */
uint64_t store_device_bytes(const struct store *s, uint32_t device);

/* What a domain holds of the pool: whole extents if it has a limit, else its pages. */
uint64_t store_domain_bytes(const struct store *s, uint64_t domain);

/* Where KV may lie. Without lower tiers (tier.h) all of it is on the device. */
enum store_tier { STORE_DEVICE, STORE_HOST, STORE_FILE, STORE_TIERS };

/* One node as a report shows it. */
struct store_node_info {
	uint64_t id, parent_id; /* 0: the parent of a root */
	const char *model;
	uint64_t domain, salt;
	uint32_t depth, pos, n_tokens, n_pages, n_users; /* users: sequences and pins at or below */
	uint32_t n_pages_in[STORE_TIERS]; /* of n_pages, by the tier that has them nearest */
	uint32_t n_pages_backed; /* of n_pages, that are in the file, wherever else */
	uint64_t hits; /* opens that matched through it */
	uint32_t head[8]; /* first tokens */
	uint32_t n_head;
};
/* So many walks may be under way at once. */
#define STORE_WALKS 64u
/* Depth first over all namespaces of a domain (or all, domain == UINT64_MAX). *cursor is 0 at the
 * start and opaque then; fills up to n infos, returns how many. Returns 0 and sets *cursor to 0 at
 * the end, and also where the cursor is none of this domain argument's, or where STORE_WALKS others
 * have gone on since it was last used: a walk that is left alone for so long ends early. Nodes that
 * come or go between calls may be missed or not. */
uint32_t store_walk(struct store *s, uint64_t domain, uint64_t *cursor, struct store_node_info *ret,
		    uint32_t n);

/* Checks every invariant above; 0, or -EINVAL and a sentence. O(everything). */
MUST_CHECK int store_validate(const struct store *s, char *error, size_t error_bytes);

#endif
