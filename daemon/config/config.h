/*
 * config.h - what coppiced is told, as the whole daemon sees it: a field a key of keys.def. What a
 * user may hold by several of them is in quota.h.
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
	char pool_text[32]; /* pool as it was typed; empty: as a share */
	char host_tier_unit, file_tier_unit; /* in which they were typed (size_text) */
	uint32_t n_devices; /* in devices; 0: as 1 */
	uint32_t n_ranks; /* in ranks */
	bool check_only; /* --check-config */
	char verify_tier[4096]; /* --verify-tier: check this file and end; empty: no */
};

void config_init(struct config *config);

#endif
