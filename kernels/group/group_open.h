/* group_open.h - a group's beginning and end. */
#ifndef COPPICE_GROUP_GROUP_OPEN_H
#define COPPICE_GROUP_GROUP_OPEN_H

#include "proto/must_check.h"
#include "kernels/backend.h"

/* As backend_ops.open: config->group says of what. */
MUST_CHECK int group_open(const struct backend_config *config, struct backend **ret, char *error,
			  size_t error_bytes);
/* NULL is fine. */
void group_close(struct backend *b);

#endif
