/*
 * loop_uring.h - the loop on io_uring.
 */
#ifndef COPPICED_LOOP_URING_H
#define COPPICED_LOOP_URING_H

#include "proto/must_check.h"
#include "loop.h"

/* 0; -EPERM, -ENOSYS, -EINVAL, ... where the kernel does not offer it. For loop_new. */
MUST_CHECK int loop_uring_new(struct loop **ret);

#endif
