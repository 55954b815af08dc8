/*
 * invariant.h - auto and none: cuts at absolute positions, so that a row's bits do not depend on
 * its company.
 *
 *      position   0       64      128     192     256            tiles: blocks of 64 positions
 *      q0         |===A===|===B===|===C===|=c|                   segments: segment_tokens positions
 *      q1         |===A===|===B===|===D===|===E===|f|
 *
 * A block belongs to all queries whose paths have the whole of it in common, whatever nodes it
 * straddles (C and D differ, though their first tokens may be the same); a block that a path ends
 * within belongs to that query alone. A row's partial of a segment is folded from an empty state
 * over the segment's blocks in order. So what a row folds and merges, and in which order, follows
 * from its own path.
 *
 * none: one item per query and segment. auto: one per segment, cut further between rows only where
 * the batch would keep too few units busy, preferably where neighbours share least.
 */
#ifndef COPPICE_PLAN_INVARIANT_H
#define COPPICE_PLAN_INVARIANT_H

#include "proto/must_check.h"
#include "build.h"

/* 0, -ENOMEM, or -EINVAL where segment_tokens is no multiple of the tile. */
MUST_CHECK int invariant_plan(struct build *build);

#endif
