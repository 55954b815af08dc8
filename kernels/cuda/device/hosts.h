/* hosts.h - host memory that kernels reach across the bus: what lies there is brought over before
 * it is read often. */
#ifndef COPPICE_CUDA_HOSTS_H
#define COPPICE_CUDA_HOSTS_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

struct host_range {
	uint64_t base, bytes; /* as the device sees it */
};

/* All zero: there is none. */
struct hosts {
	struct host_range *ranges; /* owned */
	uint32_t n, last; /* that an address was found in */
};

/* What lies side by side is one range, in whatever pieces it came. 0 or -ENOMEM. */
MUST_CHECK int hosts_add(struct hosts *hosts, uint64_t base, uint64_t bytes);
/* A piece, or a part of a range. */
void hosts_drop(struct hosts *hosts, uint64_t base, uint64_t bytes);
void hosts_done(struct hosts *hosts);
/* Is the address the host's? */
bool hosts_have(struct hosts *hosts, uint64_t address);

#endif
