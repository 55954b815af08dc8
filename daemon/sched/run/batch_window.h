/*
 * batch_window.h - which runnable decode steps run now, and which are held a moment for company.
 *
 * Sessions that run the same model ask for the same layers, but not at the same moment. Lanes whose
 * steps met in one job end together and so meet again at the next layer, for all the layers and
 * tokens to come: that is what a wait is worth, not one job's saving. Each lane's pace is known:
 * how long it takes from a completion to its next step. So it can be told when another lane will be
 * at a step's layer: in its lag if that layer is its next, a layer's time later for each that lies
 * between. A runnable step is held for lanes that share KV with it, of two that could wait for each
 * other by the one for which fewer lanes wait for fewer layers. Nobody is waited for
 *  - beyond batch_window_max_us from the arrival of the first step that waits, ever;
 *  - whose pace is another: its lag is a multiple of theirs, or theirs of its;
 *  - who is late: as late as it would take to meet at the next layer;
 *  - who waits itself;
 *  - with batch_window = cost, longer than what meeting saves while it lasts.
 */
#ifndef COPPICED_BATCH_WINDOW_H
#define COPPICED_BATCH_WINDOW_H

#include "batch.h"

struct window {
	struct sched_core *core; /* borrowed */
	struct batch *batch; /* borrowed */
	uint64_t until_ns; /* then held steps are looked at again; UINT64_MAX: none is held */
};

void window_init(struct window *w, struct sched_core *core, struct batch *batch);
/* Adds runnable decode steps to the (empty) batch, and holds others. */
void window_choose(struct window *w);

/* Has something changed since, or is a wait over? */
static inline bool window_is_due(const struct window *w)
{
	return w->core->steps.changed || w->core->now_ns >= w->until_ns;
}

/* When to look again, UINT64_MAX: when something changes. */
static inline uint64_t window_deadline_ns(const struct window *w)
{
	return w->core->steps.n[STEP_HELD] > 0 ? w->until_ns : UINT64_MAX;
}

#endif
