/*
 * call.c - requests, replies, and who reads them.
 *
 * A request is pending from before it is sent until its caller has taken its answer or given up. At
 * most one thread reads the socket; it never holds the lock while it does. A reply that nobody
 * waits for came after its caller's time limit and is dropped.
 */
#include "call.h"

#include "client/lib/base/clock.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

void answer_done(struct answer *answer)
{
	for (unsigned i = 0; i < answer->n_fds; i++)
		cleanup_fd(&answer->fds[i]);
	if (answer->reply)
		coppice__reply__free_unpacked(answer->reply, NULL);
	*answer = ANSWER_NONE;
}

int answer_take_fd(struct answer *answer, unsigned i)
{
	int fd = i < answer->n_fds ? answer->fds[i] : -1;

	if (fd >= 0)
		answer->fds[i] = -1;
	return fd;
}

static void pending_add(struct coppice *c, struct pending *pending)
{
	pthread_mutex_lock(&c->lock);
	pending->id = ++c->last_id;
	pending->next = c->pending;
	c->pending = pending;
	pthread_mutex_unlock(&c->lock);
}

/* Under the lock. */
static void ring_answers(struct coppice *c)
{
	uint64_t one = 1;
	ssize_t r = c->answers_fd >= 0 ? write(c->answers_fd, &one, sizeof(one)) : 0;

	(void)r;
}

/* Under the lock: an answer that was to be polled for is gone. */
static void count_polled(struct coppice *c)
{
	uint64_t count;

	if (--c->n_to_poll == 0 && c->answers_fd >= 0) {
		ssize_t r = read(c->answers_fd, &count, sizeof(count));

		(void)r;
	}
}

static void pending_remove(struct coppice *c, struct pending *pending)
{
	pthread_mutex_lock(&c->lock);
	for (struct pending **at = &c->pending; *at; at = &(*at)->next)
		if (*at == pending) {
			*at = pending->next;
			break;
		}
	if (pending->is_polled && pending->answer.reply)
		count_polled(c);
	pthread_mutex_unlock(&c->lock);
}

static int send_request(struct coppice *c, const Coppice__Request *request, int flags)
{
	size_t bytes = coppice__request__get_packed_size(request);
	uint8_t *packet;
	int r;

	if (bytes > CHANNEL_MAX_BYTES)
		return -EMSGSIZE;
	packet = malloc(bytes);
	if (!packet)
		return -ENOMEM;
	coppice__request__pack(request, packet);
	r = channel_send(c->socket, packet, bytes, NULL, flags);
	free(packet);
	return r == -EPIPE ? -ECONNRESET : r;
}

/* One reply off the socket. -EAGAIN: none before the deadline. */
static int receive(struct coppice *c, uint64_t deadline_ns, struct answer *ret)
{
	struct pollfd p = {.fd = c->socket, .events = POLLIN};
	struct timespec left = clock_timespec(clock_left_ns(deadline_ns));
	struct answer answer = ANSWER_NONE;
	struct channel_fds_room room = {answer.fds, CHANNEL_MAX_FDS};
	ssize_t n;

	n = ppoll(&p, 1, deadline_ns == COPPICE_FOREVER ? NULL : &left, NULL);
	if (n <= 0)
		return -EAGAIN;
	n = channel_recv(c->socket, c->inbox, CHANNEL_MAX_BYTES, &room, MSG_DONTWAIT);
	if (n <= 0)
		return n == 0 ? -ECONNRESET : (int)n;
	answer.n_fds = room.n;
	answer.reply = coppice__reply__unpack(NULL, (size_t)n, c->inbox);
	if (!answer.reply) {
		answer_done(&answer);
		return -EBADMSG;
	}
	*ret = answer;
	return 0;
}

/* Under the lock. A reply that nobody waits for came after its caller's time limit. */
static void deliver(struct coppice *c, struct answer *answer)
{
	for (struct pending *p = c->pending; p; p = p->next)
		if (p->id == answer->reply->id && !p->answer.reply) {
			p->answer = *answer;
			if (p->is_polled && c->n_to_poll++ == 0)
				ring_answers(c);
			return;
		}
	answer_done(answer);
}

/* Under the lock, which it gives up while it reads. False: there was nothing. */
static bool read_for_all(struct coppice *c, uint64_t deadline_ns)
{
	struct answer answer = ANSWER_NONE;
	int r;

	c->reading = true;
	pthread_mutex_unlock(&c->lock);
	r = receive(c, deadline_ns, &answer);
	pthread_mutex_lock(&c->lock);
	c->reading = false;
	if (r == 0)
		deliver(c, &answer);
	else if (r != -EAGAIN)
		atomic_store_explicit(&c->broken, 1, memory_order_relaxed);
	pthread_cond_broadcast(&c->answered);
	return r == 0;
}

/* Under the lock, which it gives up while another reads. */
static void let_read(struct coppice *c, uint64_t deadline_ns)
{
	struct timespec until = clock_timespec(deadline_ns);

	if (deadline_ns == COPPICE_FOREVER)
		pthread_cond_wait(&c->answered, &c->lock);
	else
		pthread_cond_timedwait(&c->answered, &c->lock, &until);
}

static int await(struct coppice *c, struct pending *pending, uint64_t timeout_ns)
{
	uint64_t deadline_ns = clock_add_ns(clock_now_ns(), timeout_ns);
	int r = 0;

	pthread_mutex_lock(&c->lock);
	while (!pending->answer.reply && r == 0) {
		if (atomic_load_explicit(&c->broken, memory_order_relaxed))
			r = -ECONNRESET;
		else if (clock_now_ns() >= deadline_ns)
			r = -ETIMEDOUT;
		else if (c->reading)
			let_read(c, deadline_ns);
		else
			read_for_all(c, deadline_ns);
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

static const char *why_failed(int code)
{
	switch (code) {
	case -ETIMEDOUT:
		return "the daemon has not answered in time";
	case -EAGAIN:
		return "the daemon has not read what was sent to it before; ask again later";
	default:
		return strerrordesc_np(-code);
	}
}

static int explain_failed_call(struct coppice *c, const char *what, int code)
{
	if (code == -ECONNRESET)
		return connection_break(c);
	return explain(c->key, code, "%s: %s", what, why_failed(code));
}

static int judge_reply(struct coppice *c, const char *what, const Coppice__Reply *reply)
{
	const char *message = reply->message ? reply->message : strerrordesc_np(-reply->code);
	bool has_field = reply->field && *reply->field;

	if (reply->code == 0)
		return 0;
	if (reply->code > 0)
		return call_bad_answer(c, what);
	return explain(c->key, reply->code, "%s: %s%s%s%s", what,
		       message ? message : "the daemon refused", has_field ? " (" : "",
		       has_field ? reply->field : "", has_field ? ")" : "");
}

int call_begin(struct coppice *c, struct call *call, struct pending *ret)
{
	int r = connection_check(c);

	if (r < 0)
		return r;
	*ret = (struct pending){.what = call->what, .is_polled = call->is_polled};
	pending_add(c, ret);
	call->request.id = ret->id;
	r = send_request(c, &call->request, call->is_polled ? MSG_DONTWAIT : 0);
	if (r == 0)
		return 0;
	pending_remove(c, ret);
	return explain_failed_call(c, call->what, r);
}

/* What came between the time limit and the removal counts as come. */
static int take_answer(struct coppice *c, struct pending *pending, int r, struct answer *ret)
{
	pending_remove(c, pending);
	if (!pending->answer.reply)
		return explain_failed_call(c, pending->what, r);
	*ret = pending->answer;
	return judge_reply(c, pending->what, ret->reply);
}

int call_end(struct coppice *c, struct pending *pending, uint64_t timeout_ns, struct answer *ret)
{
	return take_answer(c, pending, await(c, pending, timeout_ns), ret);
}

/* Whoever stays pending is polled for. */
static bool stays(struct coppice *c, struct pending *pending)
{
	bool lacks;

	pthread_mutex_lock(&c->lock);
	lacks = !pending->answer.reply;
	if (lacks)
		pending->is_polled = true;
	pthread_mutex_unlock(&c->lock);
	return lacks;
}

int call_end_or_stay(struct coppice *c, struct pending *pending, uint64_t timeout_ns,
		     struct answer *ret)
{
	int r = await(c, pending, timeout_ns);

	if (r == -ETIMEDOUT && stays(c, pending))
		return explain_failed_call(c, pending->what, r);
	return take_answer(c, pending, r, ret);
}

/* Reads what is there, unless somebody does. False: the answer is not among it. */
static bool look_for_answer(struct coppice *c, struct pending *pending)
{
	bool come;

	pthread_mutex_lock(&c->lock);
	while (!pending->answer.reply && !c->reading && read_for_all(c, 0))
		;
	come = pending->answer.reply != NULL;
	pthread_mutex_unlock(&c->lock);
	return come;
}

int call_poll(struct coppice *c, struct pending *pending, struct answer *ret)
{
	int r;

	if (connection_is_foreign(c))
		return connection_check(c);
	if (!look_for_answer(c, pending)) {
		r = connection_check(c);
		return r < 0 ? take_answer(c, pending, r, ret) : -EAGAIN;
	}
	return take_answer(c, pending, 0, ret);
}

void call_drop(struct coppice *c, struct pending *pending)
{
	pending_remove(c, pending);
	answer_done(&pending->answer);
}

int call_daemon(struct coppice *c, struct call *call, struct answer *ret)
{
	struct pending pending;
	int r = call_begin(c, call, &pending);

	return r < 0 ? r : call_end(c, &pending, call->timeout_ns, ret);
}

void call_release(struct coppice *c, struct call *call)
{
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r = call_daemon(c, call, &answer);

	(void)r;
}

void call_leave(struct coppice *c)
{
	Coppice__Leave leave = COPPICE__LEAVE__INIT;
	Coppice__Request request = COPPICE__REQUEST__INIT;

	if (!atomic_load_explicit(&c->n_device_ever, memory_order_relaxed) ||
	    atomic_load_explicit(&c->n_device_open, memory_order_relaxed) ||
	    connection_check(c) < 0)
		return;
	request.leave = &leave;
	/* Where it does not get through the daemon waits for the end of the process. */
	(void)send_request(c, &request, MSG_DONTWAIT);
}

int call_bad_answer(struct coppice *c, const char *what)
{
	return explain(c->key, -EPROTO,
		       "%s: the daemon's answer is not as agreed; library and daemon are of "
		       "different versions",
		       what);
}

/* Under the lock. */
static int make_poll_fd(struct coppice *c)
{
	struct epoll_event readable = {.events = EPOLLIN};
	CLEANUP_FD int poll_fd = epoll_create1(EPOLL_CLOEXEC);
	CLEANUP_FD int answers_fd = eventfd(c->n_to_poll, EFD_CLOEXEC | EFD_NONBLOCK);

	if (poll_fd < 0 || answers_fd < 0 ||
	    epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->socket, &readable) < 0 ||
	    epoll_ctl(poll_fd, EPOLL_CTL_ADD, answers_fd, &readable) < 0)
		return -errno;
	c->poll_fd = poll_fd;
	c->answers_fd = answers_fd;
	poll_fd = answers_fd = -1;
	return 0;
}

int coppice_fd(struct coppice *c)
{
	int r = connection_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	if (c->poll_fd < 0)
		r = make_poll_fd(c);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return explain(c->key, r, "coppice_fd: %s", strerrordesc_np(-r));
	return c->poll_fd;
}
