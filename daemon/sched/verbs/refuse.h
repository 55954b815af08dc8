/* refuse.h - a request's refusal: code, the field that was wrong, and a sentence. */
#ifndef COPPICED_REFUSE_H
#define COPPICED_REFUSE_H

#include "scheduler.h"

/* Fills code, field (static or NULL) and message; returns code. */
int refuse(struct sched_request *rq, int code, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Why the store would not: r, -errno. */
int refuse_by_store(struct sched_request *rq, int r);
/* The session's sequence of that handle, or NULL and a refusal. */
struct sched_seq *request_seq(struct sched *s, struct sched_request *rq, uint64_t handle);

#endif
