/*
 * requests.c - a request's way to the scheduler and back.
 *
 * All queues are short: one request per control message. n_posted is counted up after a request
 * is in the queue and down before it is taken out, so that who finds it above 0 finds a request;
 * what is not seen at once the doorbell brings.
 */
#include "requests.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MAX 64u /* of a user's requests, while a pass may keep them waiting */

void request_queue_init(struct request_queue *q)
{
	q->last = &q->first;
}

static void queue_push(struct request_queue *q, struct sched_request *request)
{
	request->next = NULL;
	*q->last = request;
	q->last = &request->next;
}

static void queue_push_before_session(struct request_queue *q, struct sched_request *request)
{
	struct sched_request **at = &q->first;

	while (*at && (*at)->session != request->session)
		at = &(*at)->next;
	request->next = *at;
	*at = request;
	if (!request->next)
		q->last = &request->next;
}

/* at: of the queue, first or some request's next. */
static struct sched_request *queue_take(struct request_queue *q, struct sched_request **at)
{
	struct sched_request *request = *at;

	*at = request->next;
	if (q->last == &request->next)
		q->last = at;
	return request;
}

static struct sched_request *queue_pop(struct request_queue *q)
{
	return q->first ? queue_take(q, &q->first) : NULL;
}

int requests_init(struct requests *q)
{
	*q = (struct requests){.reply_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	request_queue_init(&q->posted);
	request_queue_init(&q->answered);
	request_queue_init(&q->nobody.requests);
	TAILQ_INIT(&q->users);
	if (q->reply_fd < 0)
		return -errno;
	int r = -pthread_mutex_init(&q->mutex, NULL);

	if (r < 0)
		close(q->reply_fd);
	return r;
}

void requests_done(struct requests *q)
{
	pthread_mutex_destroy(&q->mutex);
	close(q->reply_fd);
}

void requests_post(struct requests *q, struct sched_request *request)
{
	pthread_mutex_lock(&q->mutex);
	queue_push(&q->posted, request);
	pthread_mutex_unlock(&q->mutex);
	atomic_fetch_add(&q->n_posted, 1);
}

static struct sched_request *pop_posted(struct requests *q)
{
	pthread_mutex_lock(&q->mutex);
	struct sched_request *request = queue_pop(&q->posted);

	pthread_mutex_unlock(&q->mutex);
	return request;
}

/* The queue that the request waits in, which has its turns from now on. */
static struct request_queue *queue_of(struct requests *q, const struct sched_request *request)
{
	struct sched_user *user = request->session ? request->session->user : &q->nobody;

	if (!user->requests.first)
		TAILQ_INSERT_TAIL(&q->users, user, requests_link);
	return &user->requests;
}

/* To the queues of their users. */
static void sort_posted(struct requests *q)
{
	struct sched_request *request;

	while ((request = pop_posted(q)) != NULL)
		queue_push(queue_of(q, request), request);
}

/* Those of a session stay in order: where one waits, all behind it do. */
static bool may_go(struct requests *q, const struct sched *beside, struct sched_request *request)
{
	struct sched_session *session = request->session;

	if (!beside)
		return true;
	if (session && session->request_waits == q->n_looks)
		return false;
	if (request->beside && request->beside(beside, request))
		return true;
	if (session)
		session->request_waits = q->n_looks;
	return false;
}

/* Where the user's first stands that may go; NULL: none may. */
static struct sched_request **first_of(struct requests *q, struct sched_user *user,
				       const struct sched *beside)
{
	struct sched_request **at = &user->requests.first;

	q->n_looks++;
	for (uint32_t i = 0; *at && i < LOOK_MAX; i++, at = &(*at)->next)
		if (may_go(q, beside, *at))
			return at;
	return NULL;
}

struct sched_request *requests_take(struct requests *q, const struct sched *beside)
{
	struct sched_request **at = NULL, *request;
	struct sched_user *user;

	if (!requests_any(q))
		return NULL;
	sort_posted(q);
	TAILQ_FOREACH (user, &q->users, requests_link) {
		at = first_of(q, user, beside);
		if (at)
			break;
	}
	if (!at)
		return NULL;
	request = queue_take(&user->requests, at);
	atomic_fetch_sub(&q->n_posted, 1);
	TAILQ_REMOVE(&q->users, user, requests_link);
	if (user->requests.first)
		TAILQ_INSERT_TAIL(&q->users, user, requests_link);
	return request;
}

void requests_again(struct requests *q, struct sched_request *request)
{
	queue_push_before_session(queue_of(q, request), request);
	atomic_fetch_add(&q->n_posted, 1);
}

void requests_ring(struct requests *q)
{
	uint64_t one = 1;
	ssize_t r = write(q->reply_fd, &one, sizeof(one));

	(void)r; /* a full counter is readable already */
}

void requests_answer(struct requests *q, struct sched_request *request)
{
	pthread_mutex_lock(&q->mutex);
	queue_push(&q->answered, request);
	pthread_mutex_unlock(&q->mutex);
	requests_ring(q);
}

struct sched_request *requests_reap(struct requests *q)
{
	pthread_mutex_lock(&q->mutex);
	struct sched_request *request = queue_pop(&q->answered);

	pthread_mutex_unlock(&q->mutex);
	return request;
}
