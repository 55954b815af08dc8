/*
 * loop_new.c - which of the two implementations a loop is of.
 *
 * "auto" takes io_uring and falls back, with a line in the log, where the kernel refuses it: in
 * containers it often does.
 */
#include "loop_new.h"

#include "daemon/base/log.h"
#include "loop_epoll.h"
#include "loop_uring.h"

#include <errno.h>
#include <string.h>

int loop_new(const char *kind, struct loop **ret)
{
	struct loop *loop = NULL;
	int r;

	if (strcmp(kind, "epoll") == 0) {
		r = loop_epoll_new(&loop);
	} else {
		r = loop_uring_new(&loop);
		if (r < 0 && strcmp(kind, "auto") == 0) {
			log_info("io_uring is not to be had (%s); using epoll", strerror(-r));
			r = loop_epoll_new(&loop);
		}
	}
	if (r < 0)
		return r;
	TAILQ_INIT(&loop->queue);
	*ret = loop;
	return 0;
}
