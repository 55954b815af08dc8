/*
 * beside.h - which requests may be served while a pass of programs' tokens is under way, which may
 * be for long where others compute layers between its segments.
 *
 * What a pass has are the lanes that are IN_PASS, with the sequences of their entries, the arenas
 * that these write to, and the model. The scheduler's thread alone.
 */
#ifndef COPPICED_BESIDE_H
#define COPPICED_BESIDE_H

#include "scheduler.h"

/* Always: it looks at things, or touches of the store nothing but paths. */
bool beside_pass(const struct sched *s, const struct sched_request *rq);
/* Between two segments of it, when the backend has none: it takes nothing that is in use. */
bool beside_segments(const struct sched *s, const struct sched_request *rq);
/* The same, if the request's session has nothing in the pass. */
bool beside_segments_of_others(const struct sched *s, const struct sched_request *rq);

#endif
