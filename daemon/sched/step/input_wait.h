/*
 * input_wait.h - parked steps whose inputs a client's stream is still writing.
 *
 * A stream can write a word, but it cannot ring a bell: the words are polled. How often depends on
 * how long the step has been awaited: it is seen at most an eighth of that too late, and a
 * millisecond at most, so that a stream that never comes costs a thousand looks a second. While
 * cores are free the scheduler stays awake for the first millisecond, and looks in each round for a
 * fifth of it. Nothing but the step's own lane waits.
 */
#ifndef COPPICED_READY_H
#define COPPICED_READY_H

#include "daemon/sched/sched_impl.h"

/* The lane's step has been checked: parks the lane with it, or with its refusal, until the inputs
 * are there. */
void ready_park(struct sched *s, struct sched_lane *lane, struct outcome checked);
/* Takes what has become ready. Returns whether there was any. */
bool ready_look(struct sched *s);
/* The lane's step is not awaited any more. */
void ready_forget(struct sched *s, struct sched_lane *lane);
/* Lanes whose step is awaited. */
uint32_t ready_count(const struct sched *s);
/* Is there a step that is worth staying awake for? */
bool ready_soon(const struct sched *s);

#endif
