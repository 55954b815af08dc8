/*
 * call.h - coppicectl's side of the control socket: one request, one reply, and what went wrong in
 * a sentence.
 */
#ifndef CTL_CALL_H
#define CTL_CALL_H

#include "proto/must_check.h"
#include "control.pb-c.h"
#include "proto/channel.h"

#include <stdint.h>

/* Why a call failed, for the user. */
struct call_error {
	int code; /* -errno */
	char message[320]; /* a sentence without its full stop */
	char field[64]; /* of the request; empty: none in particular */
};

struct call {
	int fd; /* owned; -1: none */
	uint64_t session; /* ours, as the daemon numbers it */
	uint64_t last_id;
	const char *path;
	struct call_error error; /* of the last call that failed */
	uint8_t packet[CHANNEL_MAX_BYTES];
};

/* Connects to the daemon at path (NULL: the default) and says hello. Blocks. 0 or -errno with
 * call->error. */
MUST_CHECK int call_open(struct call *call, const char *path);
void call_close(struct call *call);

/* Sends request, whose id it fills, and waits for the reply. *ret is owned by the caller
 * (coppice__reply__free_unpacked); its code is 0. Blocks, for 30 s at most. 0 or -errno with
 * call->error. */
MUST_CHECK int call_ask(struct call *call, Coppice__Request *request, Coppice__Reply **ret);

/* Records a failure and returns code. */
int call_fail(struct call *call, int code, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
int call_fail_missing(struct call *call, const char *part); /* the reply lacks it: -EPROTO */
int call_fail_memory(struct call *call); /* -ENOMEM */

static inline void call_reply_freep(Coppice__Reply **reply)
{
	if (*reply)
		coppice__reply__free_unpacked(*reply, NULL);
}
#define CALL_REPLY __attribute__((cleanup(call_reply_freep))) Coppice__Reply *

#endif
