/*
 * residency.h - a node with slices below the device: which are where, and how they go.
 *
 *      slices   0 1 2 3 4 5 6 7 8 9        slices[i].page
 *      device   # # # #                    a page of the pool
 *      host             # # #              a place in host memory
 *      neither                # # #        nothing: images[i] alone
 *      file     # # # # # # # # # #        images[i]: a place in the file
 *
 * Three numbers say it all: n_device <= n_memory and n_backed, with n_memory or n_backed the number
 * of slices. Along a path the same holds: below a slice that is not on the device, or not in
 * memory, or not in the file, none is. A node without a struct store_lower is on the device and
 * nowhere else.
 */
#ifndef COPPICE_KVSTORE_LOWER_H
#define COPPICE_KVSTORE_LOWER_H

#include "core.h"

struct store_lower {
	uint32_t n_device;
	uint32_t n_memory;
	uint32_t n_backed;
	uint32_t device_tokens; /* of the slices on the device */
	uint32_t backed_tokens; /* of those in the file */
	/* Moves under way for the slices after n_device, n_memory, n_backed; more than that if the
	 * node has changed since: then they will come to nothing. */
	uint32_t n_rising, n_reading, n_writing;
	uint32_t images_capacity;
	uint32_t *images; /* owned */
	bool listed[STORE_TIERS]; /* in its holding's lru; of the device: see the node */
	bool dirty; /* in tiers.dirty */
	uint64_t stamps[STORE_TIERS];
	TAILQ_ENTRY(store_node) lru[STORE_TIERS];
	TAILQ_ENTRY(store_node) dirty_order;
	struct store_seq_list wants; /* that end in this node */
};

static inline uint32_t node_n_device(const struct store_node *n)
{
	return n->lower ? n->lower->n_device : n->n_slices;
}

static inline uint32_t node_n_memory(const struct store_node *n)
{
	return n->lower ? n->lower->n_memory : n->n_slices;
}

static inline uint32_t node_n_backed(const struct store_node *n)
{
	return n->lower ? n->lower->n_backed : 0;
}

static inline uint32_t node_device_tokens(const struct store_node *n)
{
	return n->lower ? n->lower->device_tokens : n->n_tokens;
}

/* How many of the node's slices a tier's list is about: on the device; in host memory alone; in the
 * file. */
static inline uint32_t node_n_in(const struct store_node *n, enum store_tier tier)
{
	if (tier == STORE_DEVICE)
		return node_n_device(n);
	return tier == STORE_HOST ? node_n_memory(n) - node_n_device(n) : node_n_backed(n);
}

/* Does the node begin in the page in which its parent ends? So it is where a split cut a page, and
 * where a run went on in the rows that were left. */
bool node_goes_on(const struct store_node *n);

/* The node's part, made if there is none, with room for so many images. -ENOMEM: the node is what
 * it was. */
int lower_reserve(struct store_node *n, uint32_t n_images);
/* There is one. */
void lower_free(struct store *s, struct store_node *n);

/* A slice is referred to once more: a split has cut it in two. */
void lower_share(struct store_node *n, uint32_t index);
/* A split has given the node's first slices to upper, and n_gone of them are its own no more. upper
 * has a part with room for as many images. */
void lower_split(struct store_node *n, struct store_node *upper, uint32_t n_gone);
/* Nobody refers to a slice of the node's any more, wherever it is; what the node counts is another
 * matter. */
void lower_release(struct store_node *n, uint32_t index);
/* Slices and tokens were appended on the device. */
void lower_appended(struct store_node *n);
/* The last slice is about to grow: what the file has of it is too short. */
void lower_unback_last(struct store_node *n);

/* The last image of a node goes; its slice is in memory. */
void lower_unback(struct store_node *n);

/* Of an idle leaf the last slice goes, the node with the only one. */
void lower_drop_last(struct store *s, struct store_node *n);
/* Of a node only the first n_slices stay, and nothing below it; nobody stands beyond. Wants and
 * pins there end. The node goes if nothing of it stays. */
void lower_forget(struct store *s, struct store_node *n, uint32_t n_slices);
/* All trees go. Nobody uses them. */
void lower_cut_all(struct store *s);
/*
 * All of the path to a node is on the device from now on: what was not has been computed anew, in
 * the first rows of these slots, which change hands. Returns how many slots are left; the first may
 * have lost rows. The path fits tiers_path.
 */
uint32_t lower_fill(struct store *s, struct store_node *n, struct store_slice *slots,
		    uint32_t n_slots);

#endif
