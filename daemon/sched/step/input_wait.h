/*
 * input_wait.h - steps whose inputs a client's stream is still writing.
 *
 * A stream can write a word, but it cannot ring a doorbell: the words are polled. How often depends
 * on how long the step has waited: it is seen at most an eighth of that too late, and a millisecond
 * at most, so that a stream that never comes costs a thousand looks a second. While cores are free
 * the scheduler stays awake for the first millisecond, and looks in each round for a fifth of it.
 * Nothing but the step's own lane waits.
 */
#ifndef COPPICED_INPUT_WAIT_H
#define COPPICED_INPUT_WAIT_H

#include "daemon/sched/core/core.h"

struct input_wait {
	struct sched_core *core; /* borrowed */
	/* when to look at the first of them; UINT64_MAX: at none */
	uint64_t look_ns;
	uint64_t since_ns; /* since when the newest of them waits */
};

void input_wait_init(struct input_wait *w, struct sched_core *core);
/* The lane's step has been checked: it can run, or waits until its inputs are there. One that is
 * refused ends with that, but no sooner than its word is there. */
void input_wait_begin(struct input_wait *w, struct sched_lane *lane, const struct outcome *checked);
/* When it is due: takes what has arrived. Returns whether there was any. */
bool input_wait_look(struct input_wait *w);
/* Is there a step that is worth staying awake for? */
bool input_wait_soon(const struct input_wait *w);

static inline bool input_wait_is_due(const struct input_wait *w)
{
	return w->core->now_ns >= w->look_ns;
}

static inline uint32_t input_wait_n(const struct input_wait *w)
{
	return w->core->steps.n[STEP_AWAITING_INPUT] + w->core->steps.n[STEP_REFUSED];
}

/* When to look again, UINT64_MAX: nothing waits. */
static inline uint64_t input_wait_deadline_ns(const struct input_wait *w)
{
	return input_wait_n(w) > 0 ? w->look_ns : UINT64_MAX;
}

#endif
