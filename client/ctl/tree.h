/*
 * tree.h - the radix tree drawn as a tree.
 */
#ifndef CTL_TREE_H
#define CTL_TREE_H

#include "ctl.h"

/* The verb. 0, or -errno with ctl->call.error. */
MUST_CHECK int tree_run(struct ctl *ctl);

#endif
