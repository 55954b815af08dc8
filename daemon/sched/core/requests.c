/* requests.c - see requests.h. Both queues are short: one request per control message. */
#include "requests.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void queue_push(struct mail_queue *q, struct sched_request *request)
{
	request->next = NULL;
	*q->last = request;
	q->last = &request->next;
}

static struct sched_request *queue_pop(struct mail_queue *q)
{
	struct sched_request *request = q->first;

	if (!request)
		return NULL;
	q->first = request->next;
	if (!q->first)
		q->last = &q->first;
	return request;
}

int mailbox_init(struct mailbox *m)
{
	*m = (struct mailbox){.reply_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	m->requests.last = &m->requests.first;
	m->replies.last = &m->replies.first;
	if (m->reply_fd < 0)
		return -errno;
	int r = -pthread_mutex_init(&m->mutex, NULL);

	if (r < 0)
		close(m->reply_fd);
	return r;
}

void mailbox_done(struct mailbox *m)
{
	pthread_mutex_destroy(&m->mutex);
	close(m->reply_fd);
}

void mailbox_post(struct mailbox *m, struct sched_request *request)
{
	pthread_mutex_lock(&m->mutex);
	queue_push(&m->requests, request);
	pthread_mutex_unlock(&m->mutex);
	atomic_fetch_add(&m->n_requests, 1);
}

struct sched_request *mailbox_take(struct mailbox *m)
{
	if (atomic_load(&m->n_requests) == 0)
		return NULL;
	atomic_fetch_sub(&m->n_requests, 1);
	pthread_mutex_lock(&m->mutex);
	struct sched_request *request = queue_pop(&m->requests);

	pthread_mutex_unlock(&m->mutex);
	return request;
}

void mailbox_ring(struct mailbox *m)
{
	uint64_t one = 1;
	ssize_t r = write(m->reply_fd, &one, sizeof(one));

	(void)r; /* a full counter is readable already */
}

void mailbox_reply(struct mailbox *m, struct sched_request *request)
{
	pthread_mutex_lock(&m->mutex);
	queue_push(&m->replies, request);
	pthread_mutex_unlock(&m->mutex);
	mailbox_ring(m);
}

struct sched_request *mailbox_reap(struct mailbox *m)
{
	pthread_mutex_lock(&m->mutex);
	struct sched_request *request = queue_pop(&m->replies);

	pthread_mutex_unlock(&m->mutex);
	return request;
}
