/*
 * guardian.h - coppiced --keep: a small process that outlives the daemon to let its clients'
 * streams go on.
 *
 * A CUDA stream that waits for a word in a lane waits for ever when the daemon dies, and with it a
 * client that waits for the stream: it never calls the library, which would notice. The keeper
 * holds every lane's segment and the daemon's pidfd. When that process is gone it marks the lanes
 * as released (ring.h): streams go on, and the client learns the rest from the library.
 *
 *      daemon --keep_socket--> keeper     one packet a lane that comes (with its descriptor) or goes; no answers
 */
#ifndef COPPICED_KEEP_H
#define COPPICED_KEEP_H

#include "daemon/config/config.h"

enum keep_kind { KEEP_LANE_ADD = 1, KEEP_LANE_REMOVE = 2 };

/* A packet from the daemon. KEEP_LANE_ADD carries the lane's memfd. */
struct keep_message {
	uint32_t kind;
	uint32_t lane; /* number in the session */
	uint64_t session;
};

/* Serves until SIGTERM or SIGINT. Exit status. Blocks. */
int keep_run(const struct config *config);

#endif
