/* doorbell.c - see doorbell.h. */
#include "doorbell.h"

#include "proto/ring.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_A_WAIT 16 /* what they are is of no interest: the lanes are looked at */

int bells_add(struct sched *s, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};

	return epoll_ctl(s->bells, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Named, because the client's copy would keep a closed descriptor's registration alive. */
void bells_remove(struct sched *s, int fd)
{
	epoll_ctl(s->bells, EPOLL_CTL_DEL, fd, NULL);
}

int bells_init(struct sched *s)
{
	s->bells = epoll_create1(EPOLL_CLOEXEC);
	s->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->bells < 0 || s->bell_fd < 0 ? -errno : bells_add(s, s->bell_fd);
}

void bells_done(struct sched *s)
{
	if (s->bells >= 0)
		close(s->bells);
	if (s->bell_fd >= 0)
		close(s->bell_fd);
}

static int whole_ms(uint64_t ns)
{
	uint64_t ms = ns / 1000000 + 1;

	return ms < INT32_MAX ? (int)ms : -1;
}

void bells_wait(struct sched *s, uint64_t deadline_ns)
{
	struct epoll_event events[EVENTS_A_WAIT];
	uint64_t now_ns = s->clock();
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	struct timespec left = {.tv_sec = (time_t)(left_ns / UINT64_C(1000000000)),
				.tv_nsec = (long)(left_ns % UINT64_C(1000000000))};

	int r = epoll_pwait2(s->bells, events, EVENTS_A_WAIT,
			     deadline_ns == UINT64_MAX ? NULL : &left, NULL);

	if (r < 0 &&
	    errno != EINTR) /* refused by an old kernel or a container: milliseconds, then */
		epoll_wait(s->bells, events, EVENTS_A_WAIT, whole_ms(left_ns));
}

void bells_ring(struct sched *s)
{
	ring_bell(s->bell_fd);
}
