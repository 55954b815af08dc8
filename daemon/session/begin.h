/*
 * begin.h - a client's request, from the first look at its message to its end.
 */
#ifndef COPPICED_BEGIN_H
#define COPPICED_BEGIN_H

#include "proto/must_check.h"
#include "request.h"

#include <stdbool.h>
#include <stddef.h>

/* Zeroed but for verb, cookie, id, session; with so many bytes, zeroed, in sched.room. NULL after a
 * reply that says why not: no memory, or too many are under way. */
struct request *request_begin(struct session *session, uint64_t id, const struct verb *verb,
			      size_t room_bytes);
/* May an answer of this session carry descriptors? Else the reply is on its way. */
MUST_CHECK bool request_may_carry(struct session *session, uint64_t id);
/* Is this session allowed what concerns everybody? Else the reply is on its way. */
MUST_CHECK bool request_may_rule(struct session *session, uint64_t id, const char *verb);
/* It is under way, and the loop has something to do for it before it is posted, or over. */
void request_hold(struct request *request);
/* Of one that was held: posts it. */
void request_go_on(struct request *request);
/* It came back: request_over in its user's turn, the daemon's own at once. */
void request_back(struct request *request);
/* Its answer, then freed; a session that only waited for it ends. */
void request_over(struct request *request);

#endif
