/*
 * ctl.h - what every verb works with: the command line and the daemon.
 */
#ifndef CTL_H
#define CTL_H

#include "call.h"
#include "options.h"

struct ctl {
	struct options options;
	struct call call;
};

#endif
