/*
 * weights.h - which models' weights the daemon holds.
 */
#ifndef CTL_WEIGHTS_H
#define CTL_WEIGHTS_H

#include "ctl.h"

/* A verb. 0, or -errno with ctl->call.error. */
MUST_CHECK int weights_run(struct ctl *ctl);

#endif
