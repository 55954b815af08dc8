/* refuse.c - see refuse.h. */
#include "refuse.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(struct sched_request *rq, int code, const char *field, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(rq->message, sizeof(rq->message), format, args);
	va_end(args);
	rq->code = code;
	rq->field = field;
	return code;
}
