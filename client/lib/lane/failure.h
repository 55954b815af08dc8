/* failure.h - the sentences of entries that failed. */
#ifndef COPPICE_CLIENT_FAILURE_H
#define COPPICE_CLIENT_FAILURE_H

#include "lane.h"

/* Of a completion whose status is not 0, which is the lane's. Explains; returns the status. */
int failure_explain(struct coppice_lane *lane, const struct abi_completion *completion);

#endif
