/*
 * loop_new.h - a loop of one kind or the other.
 */
#ifndef COPPICED_LOOP_NEW_H
#define COPPICED_LOOP_NEW_H

#include "proto/must_check.h"
#include "loop.h"

/* kind: "io_uring", "epoll", or "auto": io_uring, and where that is refused epoll, with a line in
 * the log. 0 or -errno. */
MUST_CHECK int loop_new(const char *kind, struct loop **ret);

#endif
