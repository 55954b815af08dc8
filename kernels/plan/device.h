/*
 * device.h - auto on a GPU: the tree as it is, one item for each run of rows that have a token in
 * common, its nodes depth first, each token once. Nothing is cut: how many rows a block takes, and
 * where long contexts are cut so that all multiprocessors have the same to do, depends on the card,
 * and is the backend's to choose.
 *
 *      root ---- a            item 0: root, a, b, c (rows of all)
 *        \------ b --- c      item 1: another root and what hangs on it
 *
 * Rows of one item may be computed apart from each other at no cost but reading common tokens
 * again, so an item leaves the backend every choice from whole paths (few rows at a time, no
 * partials) to cascades (cuts along depth).
 */
#ifndef COPPICE_PLAN_DEVICE_H
#define COPPICE_PLAN_DEVICE_H

#include "proto/must_check.h"
#include "build.h"

/* 0 or -ENOMEM. */
MUST_CHECK int device_plan(struct build *build);

#endif
