/*
 * pace.h - each lane's pace: how long it takes from a completion to its next step, and whom it met
 * last. By that run/batch_window tells when it will be at a step's layer.
 */
#ifndef COPPICED_PACE_H
#define COPPICED_PACE_H

#include "daemon/sched/core/core.h"

/* The inputs of the lane's step are there: its lag is learned. */
void pace_arrived(struct sched_core *core, struct sched_lane *lane);
/* The steps of these lanes are job number job, and run together. Returns of how many sessions they
 * are. */
uint32_t pace_met(struct sched_lane *const *lanes, uint32_t n_lanes, uint64_t job);
/* The lane's decode step is finished. */
void pace_finished(const struct sched_core *core, struct sched_lane *lane);
/* Until when the lane's next decode step may be expected, if it keeps to what is usual for it. 0:
 * it has none. */
uint64_t pace_latest_ns(const struct sched_lane *lane);
/* Has it come back often enough to tell? */
bool pace_is_known(const struct sched_lane *lane);
/* Nobody waits for its next step any more: as long as others did the backend was its user's. */
void pace_end_wait(struct sched_core *core, struct sched_lane *lane);
/* When it usually has come. */
uint64_t pace_usual_ns(const struct sched_lane *lane);
/* A sequence of a program was opened on the lane: its first tokens may be expected. */
void pace_opened(const struct sched_core *core, const struct sched_seq *seq);
/* The sequence goes: nobody waits for its lane on its account. */
void pace_forget(struct sched_core *core, const struct sched_seq *seq);

#endif
