/*
 * stream.h - the app's CUDA streams in a lane: what they write and what they wait for, by the
 * driver's stream memory operations on the lane's words, or by kernels where those are faster
 * (stream_kernels.h).
 */
#ifndef COPPICE_CLIENT_STREAM_H
#define COPPICE_CLIENT_STREAM_H

#include "client/lib/lane/lane.h"
#include "client/lib/memory/driver.h"
#include "stream_kernels.h"

/* What a lane has of streams: made when the first comes. */
struct lane_streams {
	uint64_t base; /* the segment's address for streams; 0: they do not know it yet */
	void *context; /* in which it was registered */
	struct stream_kernels kernels;
	void *kernels_context; /* in which they were loaded */
	struct stream_near {
		uint64_t address; /* in device memory; 0: there is none */
		uint64_t offset;
		uint32_t arena;
	} near; /* what the device writes its steps' tickets into */
	uint64_t words[ABI_LANE_WORDS / 64]; /* bit i: pair i belongs to a captured step */
	struct coppice_capture *captures; /* owned, a list */
};

/* STREAM_LIVE: operations are to run now; STREAM_CAPTURED: the stream is being captured into a
 * graph. */
enum stream_mode { STREAM_LIVE, STREAM_CAPTURED };

/* What streams are to find ready: to load kernels may wait for all that a context has under way,
 * which may be waiting for the caller's next step. Of the calling thread's context, where it has
 * one. May block. */
void stream_prepare(struct coppice_lane *lane);
/* The stream may be used in the lane: there is a driver, the lane's words are registered with it,
 * and the stream is in this mode. what: the public function. 0, -ENODEV, -EIO, -ENOMEM, -EINVAL
 * (the other mode); explains. Does not block but for the first time. */
MUST_CHECK int stream_join(struct coppice_lane *lane, const char *what, void *stream,
			   enum stream_mode mode);
/* Of a stream that has joined: it writes the word at this offset of the segment, after all that it
 * has done before. 0, -EIO. */
MUST_CHECK int stream_write(struct coppice_lane *lane, const char *what, void *stream,
			    size_t offset, uint64_t value);
/* Of a step that is not captured: the inputs up to this ticket are there. 0, -EIO. */
MUST_CHECK int stream_tell_ready(struct coppice_lane *lane, const char *what, void *stream,
				 uint64_t ticket);
/* What follows on the stream waits until this ticket is done. 0, -EIO. */
MUST_CHECK int stream_await_done(struct coppice_lane *lane, const char *what, void *stream,
				 uint64_t ticket);
/* The lane goes: streams that still wait in it go on, and its words are taken from the driver. */
void stream_forget(struct coppice_lane *lane);
/* Frees what was captured in the lane. Before that. */
void capture_forget_all(struct coppice_lane *lane);

#endif
