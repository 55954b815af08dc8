/*
 * ranks.h - daemons, one to a host, that a list names and that have found each other
 * (kernels/group/ranks.h).
 *
 *      ranks = 10.0.0.1:4800,10.0.0.2:4800      the same on every host
 *      rank = 1                                 this daemon's place in it, from 0
 *
 * They agree on what their KV looks like, or do not start. KV is not spread over them in this
 * version: each serves its own clients.
 */
#ifndef COPPICED_RANKS_H
#define COPPICED_RANKS_H

#include "proto/must_check.h"
#include "daemon/config/config.h"

struct exchange;

/* Blocks until all have joined, no longer than config->ranks_timeout_ms; says in the log what was
 * wrong. *ret is NULL where the config has no ranks. SIGTERM and SIGINT end the process meanwhile.
 * 0 or -errno. */
MUST_CHECK int ranks_open(const struct config *config, struct exchange **ret);

#endif
