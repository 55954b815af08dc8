/*
 * height.c - how long paths are; see height.h.
 *
 * A height is never too low, and may be too high: where nodes go only a few looks are taken, so
 * that many that go at once cost little. Whoever would be refused for a height has it looked at
 * again, along the paths that are said to be the longest.
 */
#include "height.h"

#include "border.h"
#include "node.h"

#define LOWER_LOOKS 64u /* when a node goes, at those above and their children */
#define SETTLE_WALKS 4u /* of longest paths, before a cut is refused */

/* What is of no use above the node is looked at soon, by whoever calls next. */
static void note_borders_above(struct store_node *n)
{
	for (; n; n = n->parent)
		if (border_is_idle(n))
			border_add(n);
}

/* Of the node's children, the first as high as may be. NULL: none, or there are no looks left. */
static struct store_node *highest_child(struct store_node *n, uint32_t *n_looks)
{
	struct store_node *highest = n->hint, *child = LIST_FIRST(&n->children);

	if (highest && highest->height + 1 == n->height)
		return highest;
	for (; child; child = LIST_NEXT(child, sibling)) {
		if (*n_looks == 0)
			return NULL;
		--*n_looks;
		if (!highest || child->height > highest->height)
			highest = child;
		if (highest->height + 1 == n->height)
			break;
	}
	return highest;
}

void height_raise(struct store_node *n, uint32_t height)
{
	for (; n && n->height < height; n = n->parent, height++)
		n->height = (uint16_t)height;
}

/* Something below the node is gone. Those above are as high as their children say, so far up as
 * so many looks reach. */
static void lower(struct store_node *n, uint32_t n_looks)
{
	for (; n && n_looks > 0; n = n->parent) {
		const struct store_node *child = NULL;
		n_looks--;
		if (!LIST_EMPTY(&n->children) && !(child = highest_child(n, &n_looks)))
			return;
		uint32_t height = child ? child->height + 1u : 0;
		if (height == n->height)
			return;
		n->height = (uint16_t)height;
	}
}

void height_lower(struct store_node *n)
{
	lower(n, LOWER_LOOKS);
}

/* Follows who is said to be the highest down to a leaf, and corrects what turns out to be too high,
 * until the node is below a height, or as high as it says. */
static void settle(struct store_node *top, uint32_t below, uint32_t n_steps)
{
	for (struct store_node *n = top; top->height >= below && n_steps > 0; n_steps--) {
		uint32_t n_looks = UINT32_MAX;
		struct store_node *child = highest_child(n, &n_looks);
		uint32_t height = child ? child->height + 1u : 0;
		bool was_right = height == n->height;

		if (was_right && !child)
			return;
		n->height = (uint16_t)height;
		n->hint = child;
		if (was_right)
			n = child;
		else if (n != top)
			n = n->parent;
	}
}

bool height_may_lengthen(struct store_node *n, bool with_below)
{
	uint32_t max = node_store(n)->config.max_path_nodes;
	uint32_t depth = node_depth(n);

	if (with_below && depth < max && depth + n->height >= max) {
		settle(n, max - depth, SETTLE_WALKS * max);
		lower(n->parent, max);
	}
	if (depth + (with_below ? n->height : 0u) < max)
		return true;
	note_borders_above(n);
	return false;
}
