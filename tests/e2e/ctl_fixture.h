/*
 * ctl_fixture.h - a daemon on a private socket, a client that has computed two sequences, and
 * coppicectl run against them.
 *
 *      model "ctl"
 *      └─ "In the beginning "
 *         ├─ "God created the heaven"
 *         └─ "was the Word"
 *
 * Pages have 16 tokens, so that the nodes have 2, 2 and 1.
 */
#ifndef CTL_FIXTURE_H
#define CTL_FIXTURE_H

#include "client/coppice.h"

#include <sys/types.h>

#define CTL_TRUNK "In the beginning "
#define CTL_FIRST "God created the heaven"
#define CTL_SECOND "was the Word"
#define CTL_N_TOKENS (sizeof(CTL_TRUNK CTL_FIRST CTL_SECOND) - 1)
#define CTL_OUTPUT_BYTES 65536u

struct ctl_fixture {
	char folder[32];
	char socket[256];
	pid_t daemon; /* 0: gone */
	struct coppice *c;
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	uint32_t model;
	struct coppice_seq *seqs[2];
};

/* What coppicectl said and how it ended. */
struct ctl_answer {
	int status;
	char out[CTL_OUTPUT_BYTES];
	char err[4096];
};

/* CMocka's setup and teardown: *state is a struct ctl_fixture. */
int ctl_fixture_new(void **state);
int ctl_fixture_new_host(void **state); /* with host memory below the pool */
int ctl_fixture_new_empty(void **state); /* the daemon alone, without the client */
int ctl_fixture_free(void **state);
void ctl_fixture_close_seqs(struct ctl_fixture *f);
/* All layers of n tokens, up to 64, with K and V of zeros. */
void ctl_fixture_compute(struct ctl_fixture *f, struct coppice_seq *seq, const uint32_t *ids,
			 uint32_t n);
/* One of the two that are closed, once what is cached of it is in the pool; returns how many tokens
 * that are. */
uint32_t ctl_fixture_reopen(struct ctl_fixture *f, int i);

/* Runs coppicectl with the words (up to NULL) as uid and waits for its end. */
void ctl_run_as(uid_t uid, const struct ctl_fixture *f, struct ctl_answer *ret,
		const char *const *words);

#endif
