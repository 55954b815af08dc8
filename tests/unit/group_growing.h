/*
 * group_growing.h - a group's plans that take in the next tokens of two queries, made ahead or not,
 * beside a new plan for each.
 */
#ifndef COPPICE_TESTS_GROUP_GROWING_H
#define COPPICE_TESTS_GROUP_GROWING_H

#include "kernels/group/group.h"

/* shape: one layer, 4/4 heads of 128, fp16, pages of 32 tokens, its split. Asserts that all say the
 * same, within the bound. */
void growing_check(const struct group_config *group, const struct work_shape *shape);

#endif
