/*
 * batch_window.h - which ready decode steps run now, and which wait a moment for company.
 *
 * Sessions that run the same model ask for the same layers, but not at the same moment. Lanes whose
 * steps met in one job end together and so meet again at the next layer, for all the layers and
 * tokens to come: that is what a wait is worth, not one job's saving. Each lane's pace is known:
 * how long it takes from a completion to its next step. So it can be told when another lane will be
 * at a step's layer: in its lag if that layer is its next, a layer's time later for each that lies
 * between. A ready step is held for lanes that share KV with it, of two that could wait for each
 * other by the one for which fewer lanes wait for fewer layers. Nobody is waited for
 *  - beyond batch_window_max_us from the arrival of the first step that waits, ever;
 *  - whose pace is another: its lag is a multiple of theirs, or theirs of its;
 *  - who is late: as late as it would take to meet at the next layer;
 *  - who waits itself;
 *  - with batch_window = cost, longer than what meeting saves while it lasts.
 */
#ifndef COPPICED_HOLD_H
#define COPPICED_HOLD_H

#include "daemon/sched/sched_impl.h"

/* A step was parked: its lag is learned. */
void hold_arrived(struct sched *s, struct sched_lane *lane);
/* Chooses parked decode steps and adds them to the (empty) batch. Sets s->hold_until_ns when some
 * are held. */
void hold_choose(struct sched *s);
/* The steps of this job run together. Returns of how many sessions they are. */
uint32_t hold_met(struct sched *s, const struct batch_job *job);
/* The lane's step is finished. */
void hold_finished(struct sched *s, struct sched_lane *lane);
/* The sequence goes: nobody waits for its lane on its account. */
void hold_forget(struct sched *s, const struct sched_seq *seq);

#endif
