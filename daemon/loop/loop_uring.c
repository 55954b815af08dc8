/*
 * loop_uring.c - operations as submissions; the operation's address is its user data.
 *
 * Accept, poll and timers are single shots armed again after each result, which makes them level
 * triggered, and takes one connection a turn: a multishot would have all that wait at the door
 * before the next packet of who is in. A cancellation is a submission of its own, with user data 0,
 * and its completion is ignored: the cancelled operation completes by itself, and only that ends
 * it. Submissions are taken in order, so a cancellation that comes too late cannot hit another
 * operation that was started at the same address afterwards.
 */
#include "loop_uring.h"
#include "proto/clock.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#define N_SUBMISSIONS 256u
#define TURN_COMPLETIONS 256u

struct uring {
	struct loop loop; /* first */
	struct io_uring ring;
};

static void prepare_timer(struct io_uring_sqe *sqe, struct loop_op *op)
{
	uint64_t ns = op->first_ns;

	op->timespec.tv_sec = (int64_t)(ns / NS_PER_S);
	op->timespec.tv_nsec = (long long)(ns % NS_PER_S);
	io_uring_prep_timeout(sqe, &op->timespec, 0, 0);
}

static void prepare(struct io_uring_sqe *sqe, struct loop_op *op)
{
	switch (op->kind) {
	case LOOP_ACCEPT:
		io_uring_prep_accept(sqe, op->fd, NULL, NULL, SOCK_CLOEXEC);
		break;
	case LOOP_RECVMSG:
		io_uring_prep_recvmsg(sqe, op->fd, op->msg, MSG_CMSG_CLOEXEC);
		break;
	case LOOP_POLL:
		io_uring_prep_poll_add(sqe, op->fd, op->events);
		break;
	case LOOP_TIMER:
		prepare_timer(sqe, op);
		break;
	case LOOP_SOON: /* is not submitted */
		break;
	}
	io_uring_sqe_set_data(sqe, op);
	op->armed = true;
}

/* Arms and cancels what is queued; stops when the submission queue is full, the rest goes next
 * turn. */
static void serve_queue(struct uring *u)
{
	uint32_t n = u->loop.n_queued;
	struct io_uring_sqe *sqe;
	struct loop_op *op;

	while (n-- > 0 && io_uring_sq_space_left(&u->ring) > 0 &&
	       (op = loop_queue_take(&u->loop))) {
		if (op->cancelled && !op->armed) {
			loop_op_finish(&u->loop, op, -ECANCELED);
			continue;
		}
		if (op->kind == LOOP_SOON) {
			loop_op_finish(&u->loop, op, 0);
			continue;
		}
		sqe = io_uring_get_sqe(&u->ring);
		if (op->cancelled) {
			io_uring_prep_cancel(sqe, op, 0);
			io_uring_sqe_set_data(sqe, NULL);
		} else {
			prepare(sqe, op);
		}
	}
}

static bool is_passing(int result)
{
	return result == -EINTR || result == -EAGAIN || result == -ECONNABORTED;
}

static void again(struct uring *u, struct loop_op *op)
{
	op->armed = false;
	if (op->cancelled)
		loop_op_finish(&u->loop, op, -ECANCELED);
	else
		loop_queue_put(&u->loop, op);
}

static void complete_timer(struct uring *u, struct loop_op *op, int result)
{
	if (result != -ETIME) {
		loop_op_finish(&u->loop, op, result);
	} else if (op->every_ns) {
		op->first_ns = op->every_ns;
		loop_op_result_rearm(&u->loop, op, 0);
	} else {
		loop_op_finish(&u->loop, op, 0);
	}
}

static void complete(struct uring *u, struct loop_op *op, int result)
{
	if (op->kind == LOOP_TIMER)
		complete_timer(u, op, result);
	else if (is_passing(result))
		again(u, op);
	else if (result < 0 || op->kind == LOOP_RECVMSG)
		loop_op_finish(&u->loop, op, result);
	else
		loop_op_result_rearm(&u->loop, op, result);
}

static void serve_completions(struct uring *u)
{
	struct io_uring_cqe *cqe;

	for (uint32_t n = 0; n < TURN_COMPLETIONS && io_uring_peek_cqe(&u->ring, &cqe) == 0; n++) {
		struct loop_op *op = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if (op)
			complete(u, op, result);
	}
}

static int turn(struct loop *loop)
{
	struct uring *u = (struct uring *)loop;
	int r;

	serve_queue(u);
	r = io_uring_submit_and_wait(&u->ring, loop->n_queued > 0 || loop->stopping ? 0 : 1);
	if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
		return r;
	serve_completions(u);
	return 0;
}

static void uring_free(struct loop *loop)
{
	struct uring *u = (struct uring *)loop;

	io_uring_queue_exit(&u->ring);
	free(u);
}

static const struct loop_impl impl = {"io_uring", turn, uring_free};

int loop_uring_new(struct loop **ret)
{
	struct uring *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	/* Single issuer came with Linux 6.0, behind everything else that is used here: older
	 * kernels say -EINVAL. */
	r = io_uring_queue_init(N_SUBMISSIONS, &u->ring,
				IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN);
	if (r < 0) {
		free(u);
		return r;
	}
	u->loop.impl = &impl;
	*ret = &u->loop;
	return 0;
}
