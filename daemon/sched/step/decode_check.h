/* decode_check.h - a decode entry: sequences of a program, their new tokens, and where what is
 * wanted of them goes. */
#ifndef COPPICED_DECODE_CHECK_H
#define COPPICED_DECODE_CHECK_H

#include "daemon/sched/core/core.h"

/* Checks lane->body as the body of decode entry e and fills lane->step and lane->decode. On a fault
 * nothing has changed, and the outcome says which sequence and why. */
struct outcome decode_check(struct sched_core *core, struct sched_lane *lane,
			    const struct abi_entry *e);

#endif
