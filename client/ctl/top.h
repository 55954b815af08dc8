/*
 * top.h - the daemon at work, seen again and again.
 */
#ifndef CTL_TOP_H
#define CTL_TOP_H

#include "ctl.h"

/* The verb: until q, ctrl-C, or --count looks. 0, or -errno with ctl->call.error. */
MUST_CHECK int top_run(struct ctl *ctl);

#endif
