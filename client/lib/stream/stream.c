/*
 * stream.c - a lane's words become known to the driver, and streams write them and wait for them.
 *
 * The words are registered once a lane, when the first stream joins, in that stream's context but
 * for all of them. Kernels and the near word are made when the lane is, in the calling thread's
 * context: to load kernels later could wait for what the app has under way. A stream of another
 * context does without both, by memory operations on the same words.
 */
#include "stream.h"

#include "client/lib/connection/watch.h"
#include "client/lib/memory/arena.h"
#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define REGISTER_PORTABLE 1u /* for all contexts of the process */
#define REGISTER_MAPPED 2u
#define ATTRIBUTE_64_BIT_MEM_OPS 122
#define CAPTURING 1 /* of cuStreamIsCapturing */
#define WAIT_GEQ 0u
#define NEAR_ARENA_BYTES ((size_t)2 << 20)
#define NEAR_WORD_BYTES 128u /* a line for each */

static size_t head_bytes(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return round_up(ABI_LANE_HEAD_BYTES, page);
}

/* Where the lane has none yet. False: out of memory. */
static bool make_streams(struct coppice_lane *lane)
{
	if (!lane->streams)
		lane->streams = calloc(1, sizeof(*lane->streams));
	return lane->streams != NULL;
}

/* Of the current context. */
static int check_device(struct coppice *c, const char *what, int *ret_device)
{
	int can = 0;
	int error = c->driver->context_device(ret_device);

	if (error == 0)
		error = c->driver->device_attribute(&can, ATTRIBUTE_64_BIT_MEM_OPS, *ret_device);
	if (error)
		return driver_explain(c, what, "tell the stream's device", error);
	if (!can)
		return explain(c->key, -ENODEV,
			       "%s: the stream's device lacks 64-bit stream memory operations; "
			       "use coppice_step and coppice_wait",
			       what);
	return 0;
}

/* In the stream's context. */
static int register_words(struct coppice_lane *lane, const char *what)
{
	const struct driver *driver = lane->c->driver;
	int device, error;
	int r = check_device(lane->c, what, &device);

	if (r < 0)
		return r;
	error = driver->host_register(lane->segment.shared, head_bytes(),
				      REGISTER_PORTABLE | REGISTER_MAPPED);
	if (error)
		return driver_explain(lane->c, what, "register the lane's words", error);
	error = driver->host_address(&lane->streams->base, lane->segment.shared, 0);
	if (error == 0)
		return 0;
	lane->streams->base = 0;
	driver->host_unregister(lane->segment.shared);
	return driver_explain(lane->c, what, "map the lane's words", error);
}

static int join_first(struct coppice_lane *lane, const char *what, void *stream)
{
	const struct driver *driver = lane->c->driver;
	void *context = NULL;
	int r = watch_begin(lane->c, what);
	int error;

	if (r < 0)
		return r;
	error = driver->stream_context(stream, &context);
	if (error == 0)
		error = driver->context_push(context);
	if (error)
		return driver_explain(lane->c, what, "enter the stream's context", error);
	r = register_words(lane, what);
	driver->context_pop(&lane->streams->context);
	return r;
}

int stream_join(struct coppice_lane *lane, const char *what, void *stream, enum stream_mode mode)
{
	const struct driver *driver;
	int capturing = 0;
	int r = driver_find(lane->c, what, &driver);
	int error;

	if (r < 0)
		return r;
	error = driver->stream_capturing(stream, &capturing);
	if (error)
		return driver_explain(lane->c, what, "look at the stream", error);
	if (mode == STREAM_LIVE && capturing)
		return explain(
			lane->c->key, -EINVAL,
			"%s: the stream is being captured into a graph; coppice_capture_step "
			"and coppice_capture_wait are for that, after a "
			"coppice_capture_new before it",
			what);
	if (mode == STREAM_CAPTURED && capturing != CAPTURING)
		return explain(lane->c->key, -EINVAL,
			       "%s: the stream is not being captured; begin a capture, or use "
			       "coppice_step_on_stream and coppice_wait_on_stream",
			       what);
	if (!make_streams(lane))
		return explain(lane->c->key, -ENOMEM, "%s: out of memory", what);
	return lane->streams->base ? 0 : join_first(lane, what, stream);
}

int stream_write(struct coppice_lane *lane, const char *what, void *stream, size_t offset,
		 uint64_t value)
{
	int error = lane->c->driver->stream_write(stream, lane->streams->base + offset, value, 0);

	return error ? driver_explain(lane->c, what, "write a word on the stream", error) : 0;
}

/* It goes on once the word has reached the value. */
static int stream_wait(struct coppice_lane *lane, const char *what, void *stream, size_t offset,
		       uint64_t value)
{
	uint64_t address = lane->streams->base + offset;
	int error = lane->c->driver->stream_wait(stream, address, value, WAIT_GEQ);

	return error ? driver_explain(lane->c, what, "wait on the stream", error) : 0;
}

/* Under the lock: the connection's arena of near words, on the context's device. NULL: there is
 * none. */
static const struct coppice_arena *near_arena(struct coppice_lane *lane, int device)
{
	struct coppice *c = lane->c;
	struct driver_uuid uuid;

	if (!c->near_arena && c->driver->device_uuid(&uuid, device) == 0 &&
	    coppice_arena_new_on(c, uuid.bytes, NEAR_ARENA_BYTES, &c->near_arena) < 0)
		c->near_arena = NULL;
	if (c->near_arena && c->near_arena->device.context != lane->streams->kernels_context)
		return NULL;
	return c->near_arena;
}

/* One that no lane has had, so that it is below all of the lane's tickets; without one the lane's
 * own word does. */
static void take_near_word(struct coppice_lane *lane, int device)
{
	struct coppice *c = lane->c;
	const struct coppice_arena *arena;

	pthread_mutex_lock(&c->near_lock);
	arena = near_arena(lane, device);
	if (arena && c->near_used_bytes < arena->bytes) {
		lane->streams->near = (struct stream_near){
			.address = arena->device.address + c->near_used_bytes,
			.offset = c->near_used_bytes,
			.arena = arena->id,
		};
		c->near_used_bytes += NEAR_WORD_BYTES;
	}
	pthread_mutex_unlock(&c->near_lock);
}

void stream_prepare(struct coppice_lane *lane)
{
	void *context = NULL;
	const struct driver *driver = driver_find_current(lane->c, &context);
	int device = 0;

	if (!driver || driver->context_device(&device) != 0 || !make_streams(lane))
		return;
	lane->streams->kernels_context = context;
	stream_kernels_load(driver, device, &lane->streams->kernels);
	if (lane->streams->kernels.module)
		take_near_word(lane, device);
}

/* Kernels are of the context that they were loaded in; memory operations do for a stream of any. */
static bool has_kernels_for(const struct coppice_lane *lane, void *stream)
{
	void *context = NULL;

	return lane->streams->kernels.module &&
	       lane->c->driver->stream_context(stream, &context) == 0 &&
	       context == lane->streams->kernels_context;
}

typedef int kernel_verb(const struct driver *driver, const struct stream_kernels *kernels,
			void *stream, struct stream_word word);

static int launch_kernel(struct coppice_lane *lane, kernel_verb *verb, void *stream,
			 struct stream_word word)
{
	const struct driver *driver = lane->c->driver;
	void *popped;
	int error = driver->context_push(lane->streams->kernels_context);

	if (error)
		return error;
	error = verb(driver, &lane->streams->kernels, stream, word);
	driver->context_pop(&popped);
	return error;
}

static struct stream_word word_at(const struct coppice_lane *lane, size_t offset, uint64_t value)
{
	return (struct stream_word){
		.address = lane->streams->base + offset,
		.value = value,
		.near = lane->streams->near.address,
	};
}

int stream_tell_ready(struct coppice_lane *lane, const char *what, void *stream, uint64_t ticket)
{
	size_t ready = offsetof(struct abi_lane, ready);
	int error;

	if (!has_kernels_for(lane, stream))
		return stream_write(lane, what, stream, ready, ticket);
	error = launch_kernel(lane, stream_kernels_tell, stream, word_at(lane, ready, ticket));
	return error ? driver_explain(lane->c, what, "launch on the stream", error) : 0;
}

int stream_await_done(struct coppice_lane *lane, const char *what, void *stream, uint64_t ticket)
{
	size_t done = offsetof(struct abi_lane, done);
	int r, error;

	if (!has_kernels_for(lane, stream))
		return stream_wait(lane, what, stream, done, ticket);
	r = stream_wait(lane, what, stream, offsetof(struct abi_lane, soon), ticket);
	if (r < 0)
		return r;
	error = launch_kernel(lane, stream_kernels_await, stream, word_at(lane, done, ticket));
	return error ? driver_explain(lane->c, what, "launch on the stream", error) : 0;
}

/* In the context in which it was done. */
static void undo(struct coppice_lane *lane)
{
	const struct driver *driver = lane->c->driver;
	struct lane_streams *streams = lane->streams;
	void *popped;

	if (streams->base)
		ring_release_streams(lane->segment.shared);
	if (streams->kernels.module && driver->context_push(streams->kernels_context) == 0) {
		stream_kernels_unload(driver, &streams->kernels);
		driver->context_pop(&popped);
	}
	if (streams->base && driver->context_push(streams->context) == 0) {
		driver->host_unregister(lane->segment.shared);
		driver->context_pop(&popped);
	}
}

void stream_forget(struct coppice_lane *lane)
{
	/* A forked child has no CUDA. */
	if (lane->streams && !connection_is_foreign(lane->c))
		undo(lane);
	free(lane->streams);
	lane->streams = NULL;
}
