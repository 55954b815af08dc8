/* rest.h - what the scheduler does when a round found nothing to do. */
#ifndef COPPICED_REST_H
#define COPPICED_REST_H

#include "daemon/sched/verbs/scheduler.h"

/* Pauses for a moment, or sleeps until a doorbell or the next deadline. */
void rest(struct sched *s);
/* That deadline; UINT64_MAX: there is none. */
uint64_t rest_until_ns(const struct sched *s);

#endif
