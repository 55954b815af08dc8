/* serve.h - requests of the loop, served by the scheduler's thread, which alone calls this. */
#ifndef COPPICED_SERVE_H
#define COPPICED_SERVE_H

#include "scheduler.h"

/* A few, no longer than decode may wait: of users in turns, and while a pass is under way those
 * that touch nothing of it. Returns whether there were any. */
bool serve_requests(struct sched *s);

#endif
