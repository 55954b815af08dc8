/*
 * watch.c - a thread that lets streams go on when the daemon is gone.
 *
 * An app that waits for its own stream does not call the library, which would notice. No other
 * process can write a lane's words for it: a lane is sealed once the daemon and this process have
 * mapped it, or its client could make the daemon wait by punching holes. So a connection whose
 * lanes have streams has a thread. It sleeps until the daemon hangs up; then it releases the lanes
 * again and again, because replays of a graph that were queued take words back. It polls the socket
 * and walks the list of lanes, under its lock, and it has ended before either goes.
 */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AGAIN_MS 20 /* between two releases; before the first the daemon may end what it is at */

static bool is_told_to_end(const struct coppice *c, int timeout_ms)
{
	struct pollfd p = {.fd = c->watch_fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) > 0;
}

/* The daemon's end, or this thread's. */
static void await_end(const struct coppice *c)
{
	struct pollfd fds[] = {{.fd = c->socket}, {.fd = c->watch_fd, .events = POLLIN}};

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
}

static void *watch(void *arg)
{
	struct coppice *c = arg;

	await_end(c);
	while (!is_told_to_end(c, AGAIN_MS))
		connection_lose(c);
	return NULL;
}

/* Signals are for the app's threads. */
static int thread_start(struct coppice *c)
{
	pthread_attr_t attributes;
	sigset_t all;
	int error = pthread_attr_init(&attributes);

	if (error)
		return -error;
	sigfillset(&all);
	error = pthread_attr_setsigmask_np(&attributes, &all);
	if (error == 0)
		error = pthread_create(&c->watcher, &attributes, watch, c);
	pthread_attr_destroy(&attributes);
	return -error;
}

static int begin_locked(struct coppice *c)
{
	int r;

	if (c->watch_fd >= 0)
		return 0;
	c->watch_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->watch_fd < 0)
		return -errno;
	r = thread_start(c);
	if (r < 0) {
		close(c->watch_fd);
		c->watch_fd = -1;
	}
	return r;
}

int watch_begin(struct coppice *c, const char *what)
{
	int r;

	pthread_mutex_lock(&c->lists_lock);
	r = begin_locked(c);
	pthread_mutex_unlock(&c->lists_lock);
	return r < 0 ? explain(c->key, r,
			       "%s: no thread that would let the stream go on if the daemon died: "
			       "%s",
			       what, strerrordesc_np(-r))
		     : 0;
}

void watch_end(struct coppice *c)
{
	uint64_t one = 1;

	if (c->watch_fd < 0 || connection_is_foreign(c))
		return;
	(void)!write(c->watch_fd, &one, sizeof(one));
	pthread_join(c->watcher, NULL);
}
