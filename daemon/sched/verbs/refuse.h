/* refuse.h - a request's refusal: code, the field that was wrong, and a sentence. */
#ifndef COPPICED_REFUSE_H
#define COPPICED_REFUSE_H

#include "daemon/sched/core/request.h"

/* Fills code, field (static or NULL) and message; returns code. */
int refuse(struct sched_request *rq, int code, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
