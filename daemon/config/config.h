/*
 * config.h - what coppiced is told, as the whole daemon sees it: a field a key of keys.def, and
 * what follows from them.
 *
 * Written while flags and file are read (read.h) and while the backend is opened, which alone knows
 * what a share of memory is; from then on nobody writes it.
 */
#ifndef COPPICED_CONFIG_H
#define COPPICED_CONFIG_H

#include "kernels/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_SOCKET "/run/coppice/coppiced.sock"

enum config_window { CONFIG_WINDOW_COST, CONFIG_WINDOW_ALWAYS, CONFIG_WINDOW_NEVER };

struct config {
#define TEXT(kind, name, field, size, ...) char field[size];
#define WORD(name, field, ...) char field[16];
#define CHOICE(kind, name, type, field, ...) type field;
#define COUNT(name, field, ...) uint32_t field;
#define LONG_COUNT(name, field, ...) uint64_t field;
#define OCTAL(name, field, ...) uint32_t field;
#define SIZE(name, field, ...) uint64_t field;
#define SHARE(name, field, ...) uint64_t field;
#include "keys.def"
	/* pool as a share: of each GPU's memory, or of the machine's; 0: what the backend takes
	 * usually */
	uint32_t pool_percent;
	uint32_t n_devices; /* in devices; 0: as 1 */
	uint32_t n_ranks; /* in ranks */
	bool check_only; /* --check-config */
	char verify_tier[4096]; /* --verify-tier: check this file and end; empty: no */
};

void config_init(struct config *config);

/* What a user may hold of a pool whose size is known, or root and the daemon's own user; 0: no
 * limit. Of two extents or more one is left to others. */
uint64_t config_domain_bytes(const struct config *config, bool privileged);

/* The last extents of such a pool, of which a user gets one only while he has fewer than are left:
 * what no user may have alone, and two of four or more. */
uint32_t config_reserved_extents(const struct config *config);

/* KV that the pins of a domain may keep, of a pool whose size is known; 0: no limit. */
uint64_t config_pin_bytes(const struct config *config);

/* What one user may hold of so many bytes of host memory, or of the file: as the key says; else
 * three quarters, and an extent at least. Of host memory it is three quarters of what is not kept
 * for pages on their way to a file. */
uint64_t config_host_share(const struct config *config, uint64_t bytes, bool has_file);
uint64_t config_file_share(const struct config *config, uint64_t bytes);

#endif
