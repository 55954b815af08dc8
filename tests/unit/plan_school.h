/*
 * plan_school.h - a school whose backend's plans take in tokens, and can be made ahead: each is
 * held against what the store has. For tests.
 */
#ifndef PLAN_SCHOOL_H
#define PLAN_SCHOOL_H

#include "school.h"

#define N 3u
#define PROMPT 20u

/* N sessions of a user that have decoded a few tokens together, by plans that take in so many. */
struct school *school_of_n(uint32_t room);
/* The same, where a user may have so much of the pool. */
struct school *school_of_shares(uint32_t room, uint32_t domain_percent);

/* Passes one after the other; a plan that is begun in one is made before it ends. */
void go_slowly(struct school *s, uint32_t n);
/* Until it has what it asked for; no pass ends before a plan that is begun in it is made. */
void go_slowly_till_has(struct school *s, const struct pupil *p);
/* Until all have what they asked for. */
void go_for_all(struct school *s);
/* Asks no more, and has what it asked for. */
void stop(struct school *s, struct pupil *p);
void stop_all(struct school *s);

/* Plans that were made while a pass was run. */
uint32_t n_made_ahead(void);
/* While whoever waits for their pass waited for that, too. */
uint64_t n_made_in_passes(const struct school *s);

#endif
