/*
 * cascade.h - one item per node and all rows below it, as deep as the tree is: attention states are
 * merged associatively, so that a path may be computed node by node (Ye et al., "Cascade
 * Inference", 2024, for two levels).
 */
#ifndef COPPICE_PLAN_CASCADE_H
#define COPPICE_PLAN_CASCADE_H

#include "proto/must_check.h"
#include "build.h"

MUST_CHECK int cascade_plan(struct build *build);

#endif
