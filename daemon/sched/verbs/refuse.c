/*
 * refuse.c - refusals that more than one verb makes.
 *
 * A refusal is a code for programs, a field for whoever made the request, and a sentence for
 * people that says what to do.
 */
#include "refuse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

int refuse_by_store(struct sched_request *rq, int r)
{
	switch (r) {
	case -ENOSPC:
		return refuse(rq, r, NULL,
			      "The KV pool is full, but for what is kept for users who have less "
			      "(domain_percent), and nothing in it may be evicted: close or unpin "
			      "sequences, or give the daemon a larger pool.");
	case -EDQUOT:
		return refuse(
			rq, r, NULL,
			"You hold as much KV as a user may (domain_percent, or domain_bytes where "
			"that is less): close or unpin sequences.");
	case -EMLINK:
		return refuse(rq, r, NULL,
			      "Other sequences leave the path at as many places as may be "
			      "(max_path_nodes): close some that fork from it.");
	case -EUSERS:
		return refuse(rq, r, NULL,
			      "You have as many pins as a user may (max_domain_pins): unpin some.");
	default:
		return refuse(rq, r, NULL, "The store refuses: %s.", strerror(-r));
	}
}

struct sched_seq *request_seq(struct sched *s, struct sched_request *rq, uint64_t handle)
{
	struct sched_seq *seq = handle_find(&s->core.seqs, rq->session, handle);

	if (!seq)
		refuse(rq, -ESTALE, "seq", "No open sequence of this session has that handle.");
	return seq;
}
