/*
 * config.h - what coppiced is told: built-in defaults, then the config file, then flags, each over
 * the last.
 *
 * File: INI (inih), default /etc/coppice/coppiced.conf, absent is fine unless named by --config.
 * One section [coppiced]. Unknown keys and bad values are errors that name file, line, key and what
 * is accepted.
 */
#ifndef COPPICED_CONFIG_H
#define COPPICED_CONFIG_H

#include "kernels/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum config_hold { CONFIG_HOLD_COST, CONFIG_HOLD_ALWAYS, CONFIG_HOLD_NEVER };

struct config {
	char socket_path[108];
	uint32_t socket_mode; /* octal in the file, 0666: domains part users, not the socket */
	char backend[16]; /* auto, cpu, cuda */
	char device[64]; /* of the GPU: index or UUID; empty: the first */
	char devices[1024]; /* several; empty: one */
	uint32_t n_devices; /* 0: as 1 */
	char split[512]; /* of KV over several devices; kv_split.h */
	char ranks[2048]; /* addresses of daemons that join; empty: this one is alone. ranks.h */
	uint32_t rank, n_ranks; /* this one's, of them */
	uint32_t ranks_timeout_ms;
	struct plan_config policy; /* policy and deft only */
	/* of all devices together, as extent_bytes; 0: a share, known once the backend is open */
	uint64_t pool_bytes;
	/* the share: of each GPU's memory, or of the machine's; 0: what the backend takes
	 * usually */
	uint32_t pool_percent;
	uint64_t extent_bytes;
	uint32_t n_threads; /* CPU backend; 0: one per core */
	uint32_t page_tokens; /* where a model does not say */
	uint32_t spin_us; /* scheduler and clients spin for so long while cores are free */
	uint32_t claim_ms;
	enum config_hold batch_hold;
	uint32_t batch_wait_max_us;
	uint32_t prefill_rows; /* rows of a prefill step done between two looks at decode steps */
	/* Limits, each per session unless it says domain. */
	uint32_t max_sessions; /* of the daemon */
	uint32_t max_domain_sessions;
	uint32_t max_models;
	uint32_t max_lanes;
	uint32_t max_seqs;
	uint32_t max_arenas;
	uint64_t max_arena_bytes; /* host memory */
	uint64_t max_device_arena_bytes; /* device memory */
	uint64_t device_arena_bytes; /* of all sessions */
	uint64_t domain_bytes; /* KV of a domain; 0: no limit */
	uint64_t host_tier_bytes; /* of host memory for KV that leaves the pool; 0: none */
	char file_tier[4096]; /* where KV goes from there; empty: nowhere */
	uint64_t file_tier_bytes; /* of a file that is made */
	uint64_t domain_host_bytes; /* KV of a domain there; 0: no limit */
	uint64_t domain_file_bytes;
	/* of the pool, for paths that are longer than the rest of it; 0: none are */
	uint64_t stage_bytes;
	uint32_t stage_block; /* tokens of them that sparse prefill fetches or leaves */
	uint32_t tier_depth; /* copies, reads and writes of each kind under way at most */
	/* what is not in the file yet when the daemon ends is written for so long */
	uint32_t tier_flush_ms;
	uint32_t max_seq_tokens;
	uint32_t max_domain_pins;
	uint64_t max_pin_ms;
	char loop[16]; /* auto, io_uring, epoll */
	char keep_socket[108]; /* where a keeper listens; empty: none */
	bool keep; /* --keep: be the keeper */
	bool check_only; /* --check-config */
	char verify_tier[4096]; /* --verify-tier: check this file and end; empty: no */
	char log_level[8]; /* debug, info, warning, error */
};

void config_init(struct config *config);
/* Reads flags and the file they name (or the default one). 0; -EINVAL after saying on stderr what
 * was wrong; 1: the flags asked for help or version and that was printed. */
int config_read(struct config *config, int argc, char **argv);

#endif
