/*
 * stream.h - the app's CUDA streams in a lane: what they write and what they wait for, by the
 * driver's stream memory operations on the lane's words, or by kernels where those are faster
 * (turn.h).
 */
#ifndef COPPICE_CLIENT_STREAM_H
#define COPPICE_CLIENT_STREAM_H

#include "driver.h"
#include "lane.h"

/* STREAM_LIVE: operations are to run now; STREAM_CAPTURED: the stream is being captured into a
 * graph. */
enum stream_mode { STREAM_LIVE, STREAM_CAPTURED };

/* What streams are to find ready: to load kernels may wait for all that a context has under way,
 * which may be waiting for the caller's next step. Of the calling thread's context, where it has
 * one. May block. */
void stream_prepare(struct coppice_lane *lane);
/* The stream may be used in the lane: there is a driver, the lane's words are registered with it,
 * and the stream is in this mode. what: the public function. 0, -ENODEV, -EIO, -EINVAL (the other
 * mode); explains. Does not block but for the first time. */
int stream_join(struct coppice_lane *lane, const char *what, void *stream, enum stream_mode mode);
/* Of a stream that has joined: it writes the word at this offset of the segment, after all that it
 * has done before. 0, -EIO. */
int stream_write(struct coppice_lane *lane, const char *what, void *stream, size_t offset,
		 uint64_t value);
/* Of a step that is not captured: the inputs up to this ticket are there. 0, -EIO. */
int stream_tell_ready(struct coppice_lane *lane, const char *what, void *stream, uint64_t ticket);
/* The lane goes: streams that still wait in it go on, and its words are taken from the driver. */
void stream_forget(struct coppice_lane *lane);

#endif
