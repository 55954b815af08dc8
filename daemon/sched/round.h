/* round.h - a round of a scheduler, for its thread, and for tests that go it themselves. */
#ifndef COPPICED_ROUND_H
#define COPPICED_ROUND_H

#include "birth.h"
#include "sched.h"

/* Returns whether there was anything to do. */
bool sched_round(struct sched *s);

#endif
