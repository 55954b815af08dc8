/*
 * attack_before.h - what the daemon has while its victims live and nobody attacks, and that nothing
 * is left of who has attacked: sessions, sequences, pages, prompts, pins, arenas, descriptors,
 * memory. And once the victims are gone, that nothing is left at all.
 *
 * What a GPU's driver takes the first time that something is done it keeps: it loads code, and has
 * descriptors and threads for it. So an attack may have another round there, which has to leave
 * what it has found. What is lost each time is lost in that one, too.
 */
#ifndef ATTACK_BEFORE_H
#define ATTACK_BEFORE_H

#include "control_harness.h"
#include "tests/sanitized.h"

/* Rounds of an attack on a GPU, at most. In the second others' work may meet the attack's otherwise
 * than in the first, and be a first use. */
#define ATTACK_ROUNDS 3

#define MEMORY_IS_TOLD (!SANITIZED) /* where what is freed is kept for a while */

#define MIB (UINT64_C(1) << 20)
/* What the C library keeps of what has been freed, and the rest of what an attacker may have. */
#define SLACK_BYTES (32 * MIB)
#define BEFORE_FIGURES 24u

struct before {
	const struct harness *h; /* whose daemon it is */
	struct client *root;
	unsigned n_tokens; /* victims who have the daemon compute tokens */
	unsigned n_fds, n_fds_alone;
	uint64_t n_bytes;
	uint64_t figures[BEFORE_FIGURES]; /* of status */
	uint64_t alone[BEFORE_FIGURES]; /* the same where root is alone */
};

/* Nobody but root is there. */
void before_anybody(struct before *b);
/* As it is now, with the victims. */
void before_take(struct before *b);
/* Waits until all is as before. False, on a GPU only: the process has become another one, by
 * descriptors or by memory; it is taken anew, and somebody else has to find it so. Else it fails
 * and says what is left. */
bool before_is_again(struct before *b);
/* The victims have gone: waits until all is as before anybody came. False: it says what is left. */
bool before_nothing_is_left(struct before *b);
double before_mib_beyond(const struct before *b);

#endif
