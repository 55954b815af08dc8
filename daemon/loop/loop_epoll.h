/*
 * loop_epoll.h - the loop on epoll, for where io_uring is refused.
 */
#ifndef COPPICED_LOOP_EPOLL_H
#define COPPICED_LOOP_EPOLL_H

#include "proto/must_check.h"
#include "loop.h"

/* 0 or -errno. For loop_new. */
MUST_CHECK int loop_epoll_new(struct loop **ret);

#endif
