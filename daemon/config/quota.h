/*
 * quota.h - how much one user may hold: of the pool, of what pins keep there, of host memory, and
 * of the file. A user is a domain of the store. Sessions, arenas, loads and weights are limited by
 * a key each.
 */
#ifndef COPPICED_QUOTA_H
#define COPPICED_QUOTA_H

#include "config.h"

/* What a user may hold of a pool whose size is known, or root and the daemon's own user; 0: no
 * limit. Of two extents or more one is left to others. */
uint64_t quota_domain_bytes(const struct config *config, bool privileged);

/* The last extents of such a pool, of which a user gets one only while he has fewer than are left:
 * what no user may have alone, and two of four or more. */
uint32_t quota_reserved_extents(const struct config *config);

/* KV that the pins of a domain may keep, of a pool whose size is known; 0: no limit. */
uint64_t quota_pin_bytes(const struct config *config);

/* What one user may hold of so many bytes of host memory, or of the file: as the key says; else
 * three quarters, and an extent at least. Of host memory it is three quarters of what is not kept
 * for pages on their way to a file. */
uint64_t quota_host_share(const struct config *config, uint64_t bytes, bool has_file);
uint64_t quota_file_share(const struct config *config, uint64_t bytes);

#endif
