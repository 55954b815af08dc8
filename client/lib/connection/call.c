/*
 * call.c - requests, replies, and who reads them.
 *
 * A request is pending from before it is sent until its caller has taken its answer or given up. At
 * most one thread reads the socket; it never holds the lock while it does. A reply that nobody
 * waits for came after its caller's time limit and is dropped.
 */
#include "call.h"

#include "client/lib/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pending {
	struct pending *next;
	uint64_t id;
	struct answer answer; /* reply NULL: not yet */
};

void answer_done(struct answer *answer)
{
	for (unsigned i = 0; i < answer->n_fds; i++)
		if (answer->fds[i] >= 0)
			close(answer->fds[i]);
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

static void pending_remove(struct coppice *c, struct pending *pending)
{
	pthread_mutex_lock(&c->lock);
	for (struct pending **at = &c->pending; *at; at = &(*at)->next)
		if (*at == pending) {
			*at = pending->next;
			break;
		}
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
	r = channel_send(c->socket, packet, bytes, NULL, 0, flags);
	free(packet);
	return r == -EPIPE ? -ECONNRESET : r;
}

/* One reply off the socket. -EAGAIN: none before the deadline. */
static int receive(struct coppice *c, uint64_t deadline_ns, struct answer *ret)
{
	struct pollfd p = {.fd = c->socket, .events = POLLIN};
	uint64_t now_ns = clock_now_ns();
	struct timespec left =
		clock_timespec(deadline_ns > now_ns ? deadline_ns - now_ns : UINT64_C(0));
	struct answer answer = {.n_fds = CHANNEL_MAX_FDS};
	ssize_t n;

	n = ppoll(&p, 1, deadline_ns == COPPICE_FOREVER ? NULL : &left, NULL);
	if (n <= 0)
		return -EAGAIN;
	n = channel_recv(c->socket, c->inbox, CHANNEL_MAX_BYTES, answer.fds, &answer.n_fds,
			 MSG_DONTWAIT);
	if (n <= 0)
		return n == 0 ? -ECONNRESET : (int)n;
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
			return;
		}
	answer_done(answer);
}

/* Under the lock, which it gives up while it reads. */
static void read_for_all(struct coppice *c, uint64_t deadline_ns)
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

static int explain_failed_call(struct coppice *c, const char *what, int code)
{
	if (code == -ECONNRESET)
		return connection_break(c);
	return explain(c->key, code, "%s: %s", what,
		       code == -ETIMEDOUT ? "the daemon has not answered in time"
					  : strerrordesc_np(-code));
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

int call_daemon(struct coppice *c, struct call *call, struct answer *ret)
{
	struct pending pending = {.answer = ANSWER_NONE};
	int r = connection_check(c);

	if (r < 0)
		return r;
	pending_add(c, &pending);
	call->request.id = pending.id;
	r = send_request(c, &call->request, 0);
	if (r == 0)
		r = await(c, &pending, call->timeout_ns);
	pending_remove(c, &pending);
	/* What came between the time limit and the removal counts as come. */
	if (pending.answer.reply)
		r = 0;
	if (r < 0)
		return explain_failed_call(c, call->what, r);
	*ret = pending.answer;
	return judge_reply(c, call->what, ret->reply);
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

	if (!atomic_load_explicit(&c->has_device, memory_order_relaxed) || connection_check(c) < 0)
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
