/* models.h - coppicectl models: what is open, and how its KV is split over devices. */
#ifndef CTL_MODELS_H
#define CTL_MODELS_H

#include "ctl.h"

/* 0, or -errno with ctl->call.error. */
MUST_CHECK int models_run(struct ctl *ctl);

#endif
