/* lanes.h - what the verbs lane_seal and lane_free take. */
#ifndef COPPICED_LANES_CALL_H
#define COPPICED_LANES_CALL_H

#include "proto/abi.h"

struct lane_call {
	uint32_t lane; /* number in the session, from 1, given by the loop */
	/* lane_seal's */
	struct abi_lane *shared; /* lent; header filled by the loop */
	int notify_fd; /* lent; -1: none */
};

#endif
