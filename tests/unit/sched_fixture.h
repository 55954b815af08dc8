/*
 * sched_fixture.h - a scheduler with one client and a sequence that was opened on 4 tokens, for
 * tests of what entries do.
 */
#ifndef COPPICE_TESTS_SCHED_FIXTURE_H
#define COPPICE_TESTS_SCHED_FIXTURE_H

#include "sched_harness.h"

#define FIXTURE_IDS 20u

struct fixture {
	struct harness h;
	struct client c;
	uint64_t seq;
};

extern const struct work_shape fixture_shape;
extern const uint32_t fixture_ids[FIXTURE_IDS];

/* stepped: no thread, the test goes the rounds itself. */
struct fixture *fixture_new(bool stepped);
int fixture_setup(void **state);
int fixture_setup_stepped(void **state);
int fixture_teardown(void **state);

/* By the 4 tokens; and a step of them, not waited for, whose ticket it returns. */
void fixture_extend(struct fixture *f);
uint64_t fixture_submit_step(struct fixture *f, uint32_t layer, uint32_t flags, uint64_t word);
uint64_t fixture_done_word(const struct fixture *f, uint32_t word);

/* where: of a step's sequences the one that the reason is about; else 0. */
void assert_ends_at(struct abi_completion got, int status, enum abi_reason reason, uint32_t where);
void assert_ends(struct abi_completion got, int status, enum abi_reason reason);
/* It ended as the entry did that failed first. */
void assert_ends_as(struct abi_completion got, struct abi_completion first);

#endif
