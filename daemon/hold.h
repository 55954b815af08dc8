/*
 * hold.h - which ready decode steps run now, and which wait a moment for company.
 *
 * Sessions that run the same model ask for the same layers, but not at the same moment. Lanes whose steps met in one
 * job end together and so meet again at the next layer; they are a *cohort*. A ready step is held
 *  - for the members of its cohort that are not there yet;
 *  - at a token's first layer, for larger cohorts of its space that are in the middle of a token: who comes late boards
 *    where the others begin anew.
 * Nobody is waited for
 *  - beyond batch_wait_max_us from the arrival of the first step that waits, ever;
 *  - who is known to be slow: its usual lag is a multiple of what the waiting ones need;
 *  - who stayed away once, until it has met the others again (it has left the cohort);
 *  - with batch_hold = cost, longer than what meeting saves.
 */
#ifndef COPPICED_HOLD_H
#define COPPICED_HOLD_H

#include "sched_impl.h"

/* A step was parked: its lag is learned. */
void hold_arrived(struct sched *s, struct sched_lane *lane);
/* Chooses parked decode steps and adds them to the (empty) batch. Sets s->hold_until_ns when some are held. */
void hold_choose(struct sched *s);
/* The steps of this job run together: their lanes are one cohort now. Returns of how many sessions they are. */
uint32_t hold_met(struct sched *s, const struct batch_job *job);
/* The lane's step is finished. */
void hold_finished(struct sched *s, struct sched_lane *lane);
/* The sequence goes: nobody waits for its lane on its account. */
void hold_forget(struct sched *s, const struct sched_seq *seq);

#endif
