/*
 * client_fixture.h - a coppiced of its own for each test, and a connection to it, for tests of
 * libcoppice.
 */
#ifndef COPPICE_TESTS_CLIENT_FIXTURE_H
#define COPPICE_TESTS_CLIENT_FIXTURE_H

#include "coppice.h"
#include "proto/clock.h"

#include <sys/types.h>

#define MS UINT64_C(1000000)
#define CLIENT_IDS 32768u /* of an extension, at most */

/* The daemon's program. */
extern const char *client_daemon;

struct fixture {
	char dir[32];
	char path[64];
	pid_t daemon;
	uint64_t died_ns;
	struct coppice *c;
	struct coppice_lane *lane;
	struct coppice_arena *arena;
	uint32_t model;
	uint32_t ids[CLIENT_IDS];
};

int client_setup(void **state);
int client_teardown(void **state);

void daemon_start(struct fixture *f);
void daemon_stop(struct fixture *f);
/* Returns when it has stopped. */
void daemon_pause(struct fixture *f);
/* Asks until a daemon answers. */
struct coppice *connect_soon(const char *path);

/* On the first n of ids, of which some are to be computed. */
struct coppice_seq *client_open_seq(struct fixture *f, struct coppice_lane *lane, uint32_t n);
/* Rows of n_new tokens at the arena's start. */
struct coppice_step_seq client_part_of(struct fixture *f, struct coppice_seq *seq, uint32_t n_new);
void assert_explained(struct fixture *f, const char *part);

#endif
