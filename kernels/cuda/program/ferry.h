/*
 * ferry.h - the way of weights to a device: pinned memory and a stream that all of them share, as
 * pinned memory is the machine's, and in nobody's account.
 */
#ifndef COPPICE_CUDA_FERRY_H
#define COPPICE_CUDA_FERRY_H

#include "proto/must_check.h"

#include <pthread.h>
#include <stdint.h>

#define FERRY_PIECES 2u

struct CUstream_st;
struct CUevent_st;

struct ferry {
	int device;
	pthread_mutex_t lock; /* of what follows */
	struct CUstream_st *stream; /* owned: its own, so that nobody's batch waits */
	/* owned, pinned: each is written while the other one crosses the bus */
	char *pieces[FERRY_PIECES];
	struct CUevent_st *crossed[FERRY_PIECES]; /* owned */
};

/* Takes no memory until it is used. device: the CUDA ordinal. */
void ferry_init(struct ferry *ferry, int device);
/* Nobody uses it any more. A zeroed struct is fine. */
void ferry_done(struct ferry *ferry);
/* Zeros are there when it returns: who fails next may free it. Blocks; any thread. 0, -ENOMEM: it
 * has no memory of its own. */
MUST_CHECK int ferry_clear(struct ferry *ferry, char *to, uint64_t bytes);
/* All of it is on the device when it returns, and from the caller's again. Blocks; any thread, one
 * after the other. 0 or -EIO. */
MUST_CHECK int ferry_put(struct ferry *ferry, char *to, const char *from, uint64_t bytes);

#endif
