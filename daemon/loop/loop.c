/*
 * loop.c - what both loops share: starting, cancelling, the queue of operations that want
 * attention.
 */
#include "loop.h"

#include "daemon/base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void loop_free(struct loop *loop)
{
	if (loop)
		loop->impl->free(loop);
}

const char *loop_name(const struct loop *loop)
{
	return loop->impl->name;
}

int loop_run(struct loop *loop)
{
	int r = 0;

	loop->stopping = false;
	while (!loop->stopping && r == 0)
		r = loop->impl->turn(loop);
	return r;
}

void loop_stop(struct loop *loop)
{
	loop->stopping = true;
}

static void start(struct loop *loop, struct loop_op *op, enum loop_kind kind, int fd)
{
	assert(!op->live && op->callback);
	op->live = true;
	op->cancelled = false;
	op->armed = false;
	op->kind = kind;
	op->fd = fd;
	loop_queue_put(loop, op);
}

void loop_accept(struct loop *loop, struct loop_op *op, int fd)
{
	start(loop, op, LOOP_ACCEPT, fd);
}

void loop_recvmsg(struct loop *loop, struct loop_op *op, int fd, struct msghdr *msg)
{
	op->msg = msg;
	start(loop, op, LOOP_RECVMSG, fd);
}

void loop_poll(struct loop *loop, struct loop_op *op, int fd, uint32_t events)
{
	op->events = events;
	start(loop, op, LOOP_POLL, fd);
}

void loop_timer(struct loop *loop, struct loop_op *op, uint64_t first_ns, uint64_t every_ns)
{
	op->first_ns = first_ns;
	op->every_ns = every_ns;
	start(loop, op, LOOP_TIMER, -1);
}

void loop_soon(struct loop *loop, struct loop_op *op)
{
	start(loop, op, LOOP_SOON, -1);
}

void loop_cancel(struct loop *loop, struct loop_op *op)
{
	if (!op->live || op->cancelled)
		return;
	op->cancelled = true;
	loop_queue_put(loop, op);
}

void loop_queue_put(struct loop *loop, struct loop_op *op)
{
	if (op->queued)
		return;
	op->queued = true;
	loop->n_queued++;
	TAILQ_INSERT_TAIL(&loop->queue, op, entry);
}

static void queue_drop(struct loop *loop, struct loop_op *op)
{
	if (!op->queued)
		return;
	op->queued = false;
	loop->n_queued--;
	TAILQ_REMOVE(&loop->queue, op, entry);
}

struct loop_op *loop_queue_take(struct loop *loop)
{
	struct loop_op *op = TAILQ_FIRST(&loop->queue);

	if (op)
		queue_drop(loop, op);
	return op;
}

void loop_op_finish(struct loop *loop, struct loop_op *op, int result)
{
	queue_drop(loop, op);
	op->live = false;
	op->armed = false;
	op->callback(op, result);
}

void loop_op_result_rearm(struct loop *loop, struct loop_op *op, int result)
{
	op->armed = false;
	op->callback(op, result);
	if (op->cancelled)
		loop_op_finish(loop, op, -ECANCELED);
	else
		loop_queue_put(loop, op);
}
