/*
 * doorbell.c - one epoll set of eventfds, waited for by edges.
 *
 * Which doorbell rang is of no interest: the lanes are looked at. A descriptor is taken out by
 * name, never by closing it alone, as a client's copy would keep it in the set.
 */
#include "doorbell.h"

#include "proto/clock.h"
#include "proto/ring.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_A_WAIT 16

int doorbell_add(struct doorbell *d, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};

	return epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void doorbell_remove(struct doorbell *d, int fd)
{
	epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
}

int doorbell_init(struct doorbell *d)
{
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	d->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return d->epoll < 0 || d->fd < 0 ? -errno : doorbell_add(d, d->fd);
}

void doorbell_done(struct doorbell *d)
{
	if (d->epoll >= 0)
		close(d->epoll);
	if (d->fd >= 0)
		close(d->fd);
}

static int whole_ms(uint64_t ns)
{
	uint64_t ms = ns / 1000000 + 1;

	return ms < INT32_MAX ? (int)ms : -1;
}

void doorbell_wait(struct doorbell *d, uint64_t for_ns)
{
	struct epoll_event events[EVENTS_A_WAIT];
	struct timespec left = clock_timespec(for_ns);
	int r = epoll_pwait2(d->epoll, events, EVENTS_A_WAIT, for_ns == UINT64_MAX ? NULL : &left,
			     NULL);

	/* Refused by an old kernel or a container: milliseconds, then. */
	if (r < 0 && errno != EINTR)
		epoll_wait(d->epoll, events, EVENTS_A_WAIT, whole_ms(for_ns));
}

void doorbell_ring(struct doorbell *d)
{
	ring_doorbell(d->fd);
}
