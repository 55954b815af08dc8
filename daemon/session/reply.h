/*
 * reply.h - replies to clients, one for each request.
 *
 * A reply that cannot be sent ends the session: a client that does not read is cut off. Descriptors
 * that cannot be sent do not. To a session that is ending nothing is sent. The loop's thread.
 */
#ifndef COPPICED_REPLY_H
#define COPPICED_REPLY_H

#include "control.pb-c.h"
#include "proto/must_check.h"
#include "request.h"
#include "session.h"

/* A refusal, or a breach of protocol: code < 0, the field of the request or NULL, a sentence. */
void reply_error(struct session *session, uint64_t id, int code, const char *field,
		 const char *sentence, ...) __attribute__((format(printf, 5, 6)));
/* A reply too long for a packet becomes an error that says so. */
void reply_send(struct session *session, const Coppice__Reply *reply);
/* The same with descriptors, which are borrowed. 0, or why the kernel does not let them go:
 * nothing is sent then, and the session goes on. */
MUST_CHECK int reply_send_fds(struct session *session, const Coppice__Reply *reply, const int *fds,
			      uint32_t n_fds);

/* In the place of an answer whose descriptors the kernel does not let go. */
void reply_unsent(struct session *session, uint64_t id, int why);

/* For verbs' answers. Has the request failed? Then the reply that says so is on its way. */
MUST_CHECK bool reply_failed(const struct request *request);
/* An empty reply to the request. */
Coppice__Reply reply_to(const struct request *request);
/* The answer of a verb that has nothing to tell: that it is done, or how it failed. */
void reply_done(struct request *request);

#endif
