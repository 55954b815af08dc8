/*
 * guardian.h - coppiced --guardian: a small process that outlives the daemon to let its clients'
 * streams go on.
 *
 * A CUDA stream that waits for a word in a lane waits for ever when the daemon dies, and with it a
 * client that waits for the stream: it never calls the library, which would notice. The guardian
 * holds every lane's segment and the daemon's pidfd. When that process is gone it marks the lanes
 * as released (ring.h): streams go on, and the client learns the rest from the library.
 *
 *      daemon --guardian_socket--> guardian     one packet a lane that comes (with its descriptor)
 *                                               or goes; no answers
 */
#ifndef COPPICED_GUARDIAN_H
#define COPPICED_GUARDIAN_H

#include "daemon/base/must_check.h"
#include "daemon/config/config.h"

enum guardian_kind { GUARDIAN_LANE_ADD = 1, GUARDIAN_LANE_REMOVE = 2 };

/* A packet from the daemon. GUARDIAN_LANE_ADD carries the lane's memfd. */
struct guardian_message {
	uint32_t kind;
	uint32_t lane; /* number in the session */
	uint64_t session;
};

/* Serves until SIGTERM or SIGINT. Exit status. Blocks. */
MUST_CHECK int guardian_run(const struct config *config);

#endif
