/*
 * device_fixture.h - a daemon with a device, or a fake one, and client processes of device_stem.c's
 * roles; for the tests of device_test.c.
 */
#ifndef COPPICE_TESTS_DEVICE_FIXTURE_H
#define COPPICE_TESTS_DEVICE_FIXTURE_H

#include "control_harness.h"
#include "device_process.h"

extern const char *program, *coppiced; /* this program and the daemon's: main sets them */
extern bool fake; /* FAKE_CUDA is set */

struct fixture {
	struct harness *h;
	char fault[96];
};

/* A client process of this role; variable: NAME=VALUE of its environment, NULL: none. */
struct stem stem_start_with(const struct fixture *f, const char *variable, const char *role,
			    const char *arg, const char *arg2);
struct stem stem_start(const struct fixture *f, const char *role, const char *arg,
		       const char *arg2);
/* To its end, which must be 0. */
void stem_run(const struct fixture *f, const char *role, const char *arg, const char *arg2);

/* Fixtures: as usual; with room for one, or four, device arenas; without a device. */
int setup(void **state);
int setup_one_arena(void **state);
int setup_without_device(void **state);
int setup_four_arenas(void **state);
int teardown(void **state);

/* An arena of 2 MiB, on the device unless kind says otherwise. */
const Coppice__Reply *arena_new_of(struct client *c, uint32_t kind);
const Coppice__Reply *arena_new(struct client *c);
void arena_free(struct client *c, uint32_t arena);

/* Soon there is room for an arena again, for a client of this process, which gives it back. */
void assert_room_comes_back(const struct fixture *f);

/* Lines of the daemon's log that have these words. */
unsigned count_in_log(const struct fixture *f, const char *words);

#endif
