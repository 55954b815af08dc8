/* verbs.h - requests of the loop, served by the scheduler between batches. */
#ifndef COPPICED_VERBS_H
#define COPPICED_VERBS_H

#include "scheduler.h"

/* Serves one and sends it back (SEQ_WAIT: perhaps later). */
void verbs_serve(struct sched *s, struct sched_request *request);
/* Ends every session, for the scheduler's own end: open entries complete with -ESHUTDOWN. */
void verbs_end_all(struct sched *s);

#endif
