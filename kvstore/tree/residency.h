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
 * memory, or not in the file, none is. A node without a struct store_residency is on the device and
 * nowhere else.
 */
#ifndef COPPICE_KVSTORE_RESIDENCY_H
#define COPPICE_KVSTORE_RESIDENCY_H

#include "core.h"

/* Does the node begin in the page in which its parent ends? So it is where a split cut a page, and
 * where a run went on in the rows that were left. */
bool node_goes_on(const struct store_node *n);

/* How a node and its parent meet: between two pages; in rows of one page, whose two slices can
 * become one; or apart, where slices of one page meet that lie in different places. */
enum residency_border { RESIDENCY_BETWEEN_PAGES, RESIDENCY_IN_PAGE, RESIDENCY_APART };
enum residency_border residency_border(const struct store_node *n);

/* The node's part, made if there is none, with room for so many images. -ENOMEM: the node is what
 * it was. */
MUST_CHECK int residency_reserve(struct store_node *n, uint32_t n_images);
/* There is one. */
void residency_free(struct store_node *n);

/* A slice is referred to once more: a split has cut it in two. */
void residency_share(struct store_node *n, uint32_t index);
/* A split has given the node's first slices to upper, and n_gone of them are its own no more. upper
 * has a part with room for as many images. */
void residency_split(struct store_node *n, struct store_node *upper, uint32_t n_gone);
/* A node takes what its only child has, whose slices are about to become its own; border: as they
 * meet. It has room for the images of both, and a part if the child has one. */
void residency_collapse(struct store_node *n, struct store_node *child,
			enum residency_border border);
/* Nobody refers to a slice of the node's any more, wherever it is; what the node counts is another
 * matter. */
void residency_release(struct store_node *n, uint32_t index);
/* The same of its last one, which is not counted any more. */
void residency_release_last(struct store_node *n);
/* Slices and tokens were appended on the device. */
void residency_appended(struct store_node *n);
/* The last slice is about to grow: what the file has of it is too short. */
void residency_unback_last(struct store_node *n);

/* The last image of a node goes; its slice is in memory. */
void residency_unback(struct store_node *n);

#endif
