/*
 * exchange_socket.h - ranks that are processes, each pair of them joined by a stream socket.
 */
#ifndef COPPICE_GROUP_EXCHANGE_SOCKET_H
#define COPPICE_GROUP_EXCHANGE_SOCKET_H

#include "proto/must_check.h"
#include "exchange.h"

struct exchange_socket_config {
	uint32_t rank, n_ranks;
	/* [n_ranks], a connected stream to each rank, -1 at this one's own; become the end's, are
	 * closed with it */
	const int *fds;
	uint32_t timeout_ms; /* of a run's each round */
	bool forced; /* way is to be taken where all want all; else the fastest */
	enum exchange_way way;
};

/* Numbers travel as this machine has them: all ranks have one byte order. 0, -EINVAL (too many
 * ranks, or none) or -ENOMEM; fds are still the caller's then. */
MUST_CHECK int exchange_socket_new(const struct exchange_socket_config *config,
				   struct exchange **ret);

#endif
