/*
 * world_cases.h - what holds of attention on every backend, over random worlds: each asserts, with
 * cmocka.
 */
#ifndef COPPICE_TESTS_WORLD_CASES_H
#define COPPICE_TESTS_WORLD_CASES_H

#include "world.h"

struct world_cases {
	const struct backend_ops *ops;
	const double *bounds; /* of the error, by dtype */
	uint32_t n_policies;
	/* Policy which of n_policies. */
	void (*config)(const struct world *w, uint32_t which, struct plan_config *ret);
};

/* Who only appends may stand in one item with others. */
void world_cases_silent(const struct world_cases *c, struct oracle_random *random);
/* A token with an infinity or a NaN in K or V, appended like any: rows that see it show it, all
 * others are right, in the same tile too. */
void world_cases_not_finite(const struct world_cases *c, struct oracle_random *random);

/* Rows that see nothing before some position: a window, a chunk, or anything. */
void world_cases_windows(const struct world_cases *c, struct oracle_random *random);

/* Keys that grow along the way, so that a row's maximum rises again and again, by little and by
 * much. */
void world_cases_growing(const struct world_cases *c, struct oracle_random *random);

#endif
