/*
 * tree_lines.h - where the nodes of the tree stand in a drawing of it.
 *
 *	1  0  model "m", user root          level 0
 *	3  2  └─ "In the beginning "...     level 1: nodes 2 and 3, a run that came in two parts
 *	4  3     ├─ "God "...               level 2, a younger sibling follows
 *	5  3     └─ "was "...               level 2
 *
 * A run that came in parts is a chain of nodes with one child each; where its borders lie is of no
 * interest to a reader, so a chain is one line.
 */
#ifndef CTL_TREE_LINES_H
#define CTL_TREE_LINES_H

#include "proto/must_check.h"
#include "control.pb-c.h"

#include <stdbool.h>

struct tree_line {
	size_t first, n; /* nodes of the chain: [first, first + n), top down */
	uint32_t level;
	uint32_t depth; /* of the chain's last node */
	bool younger; /* a sibling follows */
	bool is_text; /* the ids of its model look like bytes of text, all of them */
	size_t n_below; /* lines below it that are too deep to be shown */
};

/* The lines of nodes that are sorted depth first, as the daemon sends them; those below max_level
 * are left out. *ret is the caller's to free. 0 or -ENOMEM. */
MUST_CHECK int tree_lines_new(Coppice__TreeNode *const *nodes, size_t n, uint32_t max_level,
			      struct tree_line **ret, size_t *ret_n);

#endif
