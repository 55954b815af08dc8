/* played_cores.h - a machine of so many cores, whatever this one has. For tests linked with
 * -Wl,--wrap=sched_getaffinity. */
#ifndef PLAYED_CORES_H
#define PLAYED_CORES_H

#include <stdint.h>

extern uint32_t played_cores; /* 0: those that there are */

#endif
