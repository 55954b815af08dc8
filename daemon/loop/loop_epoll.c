/*
 * loop_epoll.c - operations as registrations in an epoll instance; timers have a timerfd of their
 * own.
 *
 * Cancelling takes the registration away and ends the operation in the next turn, never in the
 * middle of a batch of events: so the events of a batch all point to operations that still live.
 */
#include "loop_epoll.h"

#include "proto/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define N_EVENTS 64

struct epoll {
	struct loop loop; /* first */
	int fd; /* owned */
};

static int timer_arm(struct loop_op *op)
{
	struct itimerspec when = {
		.it_value = clock_timespec(op->first_ns),
		.it_interval = clock_timespec(op->every_ns),
	};

	if (op->first_ns == 0)
		when.it_value.tv_nsec = 1; /* 0 would disarm */
	op->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (op->fd < 0)
		return -errno;
	if (timerfd_settime(op->fd, 0, &when, NULL) < 0)
		return -errno;
	return 0;
}

static int arm(struct epoll *e, struct loop_op *op)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = op};
	int r = 0;

	if (op->kind == LOOP_SOON)
		return 0;
	if (op->kind == LOOP_TIMER)
		r = timer_arm(op);
	else if (op->kind == LOOP_POLL)
		event.events = op->events;
	if (r == 0 && epoll_ctl(e->fd, EPOLL_CTL_ADD, op->fd, &event) < 0)
		r = -errno;
	op->armed = r == 0;
	return r;
}

static void finish(struct epoll *e, struct loop_op *op, int result)
{
	if (op->armed)
		epoll_ctl(e->fd, EPOLL_CTL_DEL, op->fd, NULL);
	if (op->kind == LOOP_TIMER && op->fd >= 0) {
		close(op->fd);
		op->fd = -1;
	}
	loop_op_finish(&e->loop, op, result);
}

static void serve_queue(struct epoll *e)
{
	uint32_t n = e->loop.n_queued;
	struct loop_op *op;
	int r;

	while (n-- > 0 && (op = loop_queue_take(&e->loop))) {
		r = op->cancelled ? -ECANCELED : arm(e, op);
		if (r < 0 || op->kind == LOOP_SOON)
			finish(e, op, r);
	}
}

static bool is_passing(int error)
{
	return error == EINTR || error == EAGAIN || error == ECONNABORTED;
}

static void ready_accept(struct epoll *e, struct loop_op *op)
{
	int fd = accept4(op->fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		op->callback(op, fd);
	else if (!is_passing(errno))
		finish(e, op, -errno);
}

static void ready_recvmsg(struct epoll *e, struct loop_op *op)
{
	ssize_t n = recvmsg(op->fd, op->msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n >= 0)
		finish(e, op, (int)n);
	else if (!is_passing(errno))
		finish(e, op, -errno);
}

static void ready_timer(struct epoll *e, struct loop_op *op)
{
	uint64_t expirations;

	if (read(op->fd, &expirations, sizeof(expirations)) < 0)
		return;
	if (op->every_ns)
		op->callback(op, 0);
	else
		finish(e, op, 0);
}

static void ready(struct epoll *e, struct loop_op *op, uint32_t events)
{
	if (op->cancelled)
		return;
	switch (op->kind) {
	case LOOP_ACCEPT:
		ready_accept(e, op);
		break;
	case LOOP_RECVMSG:
		ready_recvmsg(e, op);
		break;
	case LOOP_POLL:
		op->callback(op, (int)events);
		break;
	case LOOP_TIMER:
		ready_timer(e, op);
		break;
	case LOOP_SOON: /* has no event */
		break;
	}
}

static int turn(struct loop *loop)
{
	struct epoll *e = (struct epoll *)loop;
	struct epoll_event events[N_EVENTS];
	int n;

	serve_queue(e);
	n = epoll_wait(e->fd, events, N_EVENTS, loop->n_queued > 0 || loop->stopping ? 0 : -1);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++)
		ready(e, events[i].data.ptr, events[i].events);
	return 0;
}

static void epoll_free(struct loop *loop)
{
	struct epoll *e = (struct epoll *)loop;

	close(e->fd);
	free(e);
}

static const struct loop_impl impl = {"epoll", turn, epoll_free};

int loop_epoll_new(struct loop **ret)
{
	struct epoll *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->fd < 0) {
		int r = -errno;

		free(e);
		return r;
	}
	e->loop.impl = &impl;
	*ret = &e->loop;
	return 0;
}
