/*
 * call.h - requests over the control socket and their answers.
 *
 * Requests of several threads may be outstanding at once. Who finds nobody reading reads replies
 * for all, hands each to the request of its id, and passes the reading on when its own has come.
 * There is no thread for it.
 *
 * Who does not want to wait begins a call, and polls for its answer: whoever reads it rings a
 * descriptor of the connection's that the app may sleep on, with the socket itself.
 */
#ifndef COPPICE_CLIENT_CALL_H
#define COPPICE_CLIENT_CALL_H

#include "connection.h"
#include "control.pb-c.h"
#include "proto/channel.h"

/* A reply and the descriptors that came with it. All owned. */
struct answer {
	Coppice__Reply *reply;
	int fds[CHANNEL_MAX_FDS];
	unsigned n_fds;
};
#define ANSWER_NONE ((struct answer){.reply = NULL})

void answer_done(struct answer *answer);
/* The i-th descriptor becomes the caller's; -1 where there is none. */
MUST_CHECK int answer_take_fd(struct answer *answer, unsigned i);
#define CLEANUP_ANSWER __attribute__((cleanup(answer_done)))

struct call {
	const char *what; /* the public function, for the sentence */
	Coppice__Request request; /* but its id */
	uint64_t timeout_ns; /* for the answer; COPPICE_FOREVER */
	bool is_polled; /* nobody waits: neither for room in the socket nor for the answer */
};

/* A request on its way, from call_begin to call_end, call_poll or call_drop. Its owner's; does not
 * move meanwhile. */
struct pending {
	struct pending *next; /* of the connection */
	const char *what;
	uint64_t id;
	bool is_polled;
	struct answer answer; /* reply NULL: not yet */
};

/* Of this public function, that waits as long as it takes; the caller sets the request's verb. */
static inline struct call call_of(const char *what)
{
	return (struct call){
		.what = what,
		.request = COPPICE__REQUEST__INIT,
		.timeout_ns = COPPICE_FOREVER,
	};
}

/* Sends and waits for the answer. *ret is set whenever the daemon has answered, also with a code;
 * release it with answer_done either way. 0, the daemon's code, -ECONNRESET, -EOWNERDEAD,
 * -ETIMEDOUT. Explains. */
MUST_CHECK int call_daemon(struct coppice *c, struct call *call, struct answer *ret);
/* Sends. 0: then it is pending; else as call_daemon, or -EAGAIN (is_polled: no room in the socket);
 * explains. */
MUST_CHECK int call_begin(struct coppice *c, struct call *call, struct pending *ret);
/* Waits for the answer: the rest of call_daemon. */
MUST_CHECK int call_end(struct coppice *c, struct pending *pending, uint64_t timeout_ns,
			struct answer *ret);
/* The same, but what has no answer by then stays pending, for one more of these or call_poll: it is
 * -ETIMEDOUT, and *ret not set. */
MUST_CHECK int call_end_or_stay(struct coppice *c, struct pending *pending, uint64_t timeout_ns,
				struct answer *ret);
/* The same if the answer is there; -EAGAIN: it is not, and stays pending. Does not block. */
MUST_CHECK int call_poll(struct coppice *c, struct pending *pending, struct answer *ret);
/* The answer is not wanted any more. Not in a forked child. */
void call_drop(struct coppice *c, struct pending *pending);
/* The same of one that gives something back: whether it fails or not, it is gone for this side. */
void call_release(struct coppice *c, struct call *call);
/* The session's last words: nothing of the device is open any more. Does not block. */
void call_leave(struct coppice *c);
/* The daemon's answer lacks what it must have. Explains; returns -EPROTO. */
int call_bad_answer(struct coppice *c, const char *what);

#endif
