/*
 * pins.h - which pins hold, making one and ending it.
 */
#ifndef CTL_PINS_H
#define CTL_PINS_H

#include "ctl.h"

/* Verbs. 0, or -errno with ctl->call.error. */
MUST_CHECK int pins_run(struct ctl *ctl);
MUST_CHECK int pins_pin(struct ctl *ctl);
MUST_CHECK int pins_unpin(struct ctl *ctl);

#endif
