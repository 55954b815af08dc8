/*
 * stream_kernels.h - what a stream does in a lane between two kernels of the app, by kernels of the
 * library's own: where the device serves several processes at once (MPS), it comes to the memory
 * operations of their streams one after the other, but to a kernel that is there already at once.
 *
 * tell    writes a word when what the stream had before is complete; launched early, so that it is
 *         there by then
 * await   one thread that reads a word until it is reached, and more often another that is near. It
 *         takes room on a multiprocessor: to be used for short waits
 */
#ifndef COPPICE_CLIENT_STREAM_KERNELS_H
#define COPPICE_CLIENT_STREAM_KERNELS_H

#include "proto/must_check.h"
#include "client/lib/memory/driver.h"

struct stream_kernels {
	void *module; /* owned; NULL: there are no such kernels, memory operations are to be used */
	void *tell, *await;
};

/* A word and what it becomes, or has reached. */
struct stream_word {
	uint64_t address, value;
	/* awaited: another that may reach it sooner, in the device's memory; 0: none */
	uint64_t near;
};

/* In the current context, of this device. Stays empty without MPS, where the device is older than
 * sm_90, and where the driver does not take the kernels. May block. */
void stream_kernels_load(const struct driver *driver, int device, struct stream_kernels *ret);
/* In the same context. An empty one is fine. */
void stream_kernels_unload(const struct driver *driver, struct stream_kernels *kernels);
/* In the same context; of one that is not empty. CUDA's results. */
MUST_CHECK int stream_kernels_tell(const struct driver *driver,
				   const struct stream_kernels *kernels, void *stream,
				   struct stream_word word);
MUST_CHECK int stream_kernels_await(const struct driver *driver,
				    const struct stream_kernels *kernels, void *stream,
				    struct stream_word word);

#endif
