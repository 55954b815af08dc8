/*
 * raw_lane.h - a client with a lane that writes what it likes into its memory, without the library.
 */
#ifndef COPPICE_TESTS_RAW_LANE_H
#define COPPICE_TESTS_RAW_LANE_H

#include "control_harness.h"

#define RAW_ARENA_BYTES (2u << 20)

struct raw {
	struct client c;
	uint32_t model, arena;
	int board_fd, doorbell_fd, arena_fd, lane_fd, notify_fd; /* owned */
	struct abi_lane *lane; /* owned */
	uint64_t ticket;
};

struct raw raw_open(const struct harness *h);
void raw_close(struct raw *x);
/* Does not look whether there is room. */
void raw_submit(struct raw *x, struct abi_entry entry, const void *body, uint32_t bytes);
/* Until all that it submitted is done. */
void raw_wait(struct raw *x);
/* A token, its two layers, and the token taken back. */
void raw_step(struct raw *x, uint64_t seq);
uint64_t raw_seq(struct raw *x);

#endif
