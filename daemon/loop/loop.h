/*
 * loop.h - the daemon's event loop: operations that are started, come back with results, and end.
 *
 * Two implementations serve it, io_uring and epoll, with the same behaviour. An operation is a
 * struct loop_op inside whatever it belongs to:
 *
 *      start (loop_accept, ...)   live = true: the memory is the loop's
 *      callback, live             a result; more may come (accept, poll, periodic timer)
 *      callback, not live         the last: the owner may free or start it again, at once
 *
 * Every started operation ends with exactly one last callback: its own end, an error, or -ECANCELED
 * after loop_cancel. Callbacks come out of loop_run alone, never out of the functions that start or
 * cancel. One thread: the one that made the loop (loop_new.h). A descriptor belongs to at most one
 * live operation and stays open until that has ended.
 */
#ifndef COPPICED_LOOP_H
#define COPPICED_LOOP_H

#include "proto/must_check.h"

#include <linux/time_types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

struct loop;
struct loop_op;
struct loop_impl;

typedef void (*loop_callback)(struct loop_op *op, int result);

enum loop_kind { LOOP_ACCEPT, LOOP_RECVMSG, LOOP_POLL, LOOP_TIMER, LOOP_SOON };

/* callback and user are the owner's, set before the start; the rest is the loop's. Zeroed at
 * birth. */
struct loop_op {
	loop_callback callback;
	void *user; /* borrowed */
	bool live;
	bool cancelled, armed, queued;
	enum loop_kind kind;
	int fd; /* borrowed; of a timer under epoll: owned */
	uint32_t events;
	struct msghdr *msg; /* borrowed */
	uint64_t first_ns, every_ns;
	struct __kernel_timespec timespec;
	TAILQ_ENTRY(loop_op) entry;
};

TAILQ_HEAD(loop_queue, loop_op);

/* What both implementations begin with; loop_impl_* are theirs. */
struct loop {
	const struct loop_impl *impl; /* static */
	struct loop_queue queue; /* operations to arm, or to cancel */
	uint32_t n_queued;
	bool stopping;
};

struct loop_impl {
	const char *name;
	/* arms, cancels, waits for something, calls back */
	MUST_CHECK int (*turn)(struct loop *loop);
	void (*free)(struct loop *loop);
};

/* Operations still live are dropped without a callback; their memory must outlive this call. NULL
 * is fine. */
void loop_free(struct loop *loop);
const char *loop_name(const struct loop *loop); /* "io_uring" or "epoll" */

/* Runs until loop_stop. 0 or -errno. Blocks. */
MUST_CHECK int loop_run(struct loop *loop);
void loop_stop(struct loop *loop); /* from a callback */

/* Connections of a listening, non-blocking socket, one in a turn of the loop: who knocks much keeps
 * nobody waiting who is in. Results: descriptors (close-on-exec, now the callback's), also one that
 * arrives after loop_cancel. An error such as -EMFILE ends it. */
void loop_accept(struct loop *loop, struct loop_op *op, int fd);
/* One packet into msg, which with its buffers stays put until the end. Result: bytes, 0 at hang-up,
 * -errno. */
void loop_recvmsg(struct loop *loop, struct loop_op *op, int fd, struct msghdr *msg);
/* Readiness, as long as it lasts (level triggered). Results: POLLIN and so on. */
void loop_poll(struct loop *loop, struct loop_op *op, int fd, uint32_t events);
/* After first_ns, and then every every_ns (0: once). Results: 0. */
void loop_timer(struct loop *loop, struct loop_op *op, uint64_t first_ns, uint64_t every_ns);
/* At the beginning of the loop's next turn, before which it waits for nothing. Result: 0. */
void loop_soon(struct loop *loop, struct loop_op *op);
/* Asks an operation to end soon. Of one that is not live: nothing. */
void loop_cancel(struct loop *loop, struct loop_op *op);

/* For implementations: takes the next operation off the queue (NULL: none); puts one on it, once;
 * ends one. */
struct loop_op *loop_queue_take(struct loop *loop);
void loop_queue_put(struct loop *loop, struct loop_op *op);
void loop_op_finish(struct loop *loop, struct loop_op *op, int result);
/* A result that is not the last; the operation is disarmed then and goes round again unless it was
 * cancelled. */
void loop_op_result_rearm(struct loop *loop, struct loop_op *op, int result);

#endif
