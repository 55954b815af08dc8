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
#ifndef COPPICED_JOINED_H
#define COPPICED_JOINED_H

#include "daemon/config/config.h"

struct exchange;

/* How many addresses a list has; -EINVAL: too many, one that is none, or one twice. */
int joined_parse(const char *text, uint32_t *ret_n);

/* Blocks until all have joined, no longer than config->ranks_timeout_ms; says in the log what was
 * wrong. *ret is NULL where the config has no ranks. SIGTERM and SIGINT end the process meanwhile.
 * 0 or -errno. */
int joined_open(const struct config *config, struct exchange **ret);

#endif
