/*
 * scene.h - a daemon, and an honest client that steps on beside whoever attacks: its answers are
 * checked, and each must come within SCENE_BOUND_NS.
 */
#ifndef COPPICE_TESTS_SCENE_H
#define COPPICE_TESTS_SCENE_H

#include "control_harness.h"
#include "honest.h"

/* Far above what a loaded machine takes, far below what "until somebody dies" would. */
#define SCENE_BOUND_NS UINT64_C(3000000000)

struct scene {
	struct harness *h;
	struct honest honest;
	unsigned n_fds; /* the daemon's, with the honest client's */
};

/* Of a test's daemon. */
struct scene scene_begin(void **state);
void scene_steps_on(struct scene *s);
/* The attackers are gone: so is all that they had. */
void scene_end(struct scene *s);

#endif
