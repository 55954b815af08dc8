/* stream.c - see stream.h. */
#include "stream.h"

#include "arena.h"
#include "connection.h"
#include "proto/ring.h"

#include <errno.h>
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

	return (ABI_LANE_HEAD_BYTES + page - 1) / page * page;
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
	error = driver->host_register(lane->shared, head_bytes(),
				      REGISTER_PORTABLE | REGISTER_MAPPED);
	if (error)
		return driver_explain(lane->c, what, "register the lane's words", error);
	error = driver->host_address(&lane->stream_base, lane->shared, 0);
	if (error == 0)
		return 0;
	lane->stream_base = 0;
	driver->host_unregister(lane->shared);
	return driver_explain(lane->c, what, "map the lane's words", error);
}

static int join_first(struct coppice_lane *lane, const char *what, void *stream)
{
	const struct driver *driver = lane->c->driver;
	void *context = NULL;
	int error = driver->stream_context(stream, &context);
	int r;

	if (error == 0)
		error = driver->context_push(context);
	if (error)
		return driver_explain(lane->c, what, "enter the stream's context", error);
	r = register_words(lane, what);
	driver->context_pop(&lane->stream_context);
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
	return lane->stream_base ? 0 : join_first(lane, what, stream);
}

int stream_write(struct coppice_lane *lane, const char *what, void *stream, size_t offset,
		 uint64_t value)
{
	int error = lane->c->driver->stream_write(stream, lane->stream_base + offset, value, 0);

	return error ? driver_explain(lane->c, what, "write a word on the stream", error) : 0;
}

/* It goes on once the word has reached the value. */
static int stream_wait(struct coppice_lane *lane, const char *what, void *stream, size_t offset,
		       uint64_t value)
{
	int error =
		lane->c->driver->stream_wait(stream, lane->stream_base + offset, value, WAIT_GEQ);

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
	return c->near_arena && c->near_arena->device.context == lane->turn_context ? c->near_arena
										    : NULL;
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
		lane->near =
			(struct lane_near){.address = arena->device.address + c->near_used_bytes,
					   .offset = c->near_used_bytes,
					   .arena = arena->id};
		c->near_used_bytes += NEAR_WORD_BYTES;
	}
	pthread_mutex_unlock(&c->near_lock);
}

void stream_prepare(struct coppice_lane *lane)
{
	const struct driver *driver = driver_find_current(lane->c, &lane->turn_context);
	int device = 0;

	if (driver && driver->context_device(&device) == 0)
		turn_load(driver, device, &lane->turn);
	if (lane->turn.module)
		take_near_word(lane, device);
}

/* Kernels are of the context that they were loaded in; memory operations do for a stream of any. */
static bool takes_turns(const struct coppice_lane *lane, void *stream)
{
	void *context = NULL;

	return lane->turn.module && lane->c->driver->stream_context(stream, &context) == 0 &&
	       context == lane->turn_context;
}

typedef int turn_verb(const struct driver *driver, const struct turn *turn, void *stream,
		      struct turn_word word);

static int take_turn(struct coppice_lane *lane, turn_verb *verb, void *stream, size_t offset,
		     uint64_t value)
{
	const struct driver *driver = lane->c->driver;
	void *popped;
	int error = driver->context_push(lane->turn_context);

	if (error)
		return error;
	error = verb(driver, &lane->turn, stream,
		     (struct turn_word){lane->stream_base + offset, value, lane->near.address});
	driver->context_pop(&popped);
	return error;
}

int stream_tell_ready(struct coppice_lane *lane, const char *what, void *stream, uint64_t ticket)
{
	size_t ready = offsetof(struct abi_lane, ready);
	int error;

	if (!takes_turns(lane, stream))
		return stream_write(lane, what, stream, ready, ticket);
	error = take_turn(lane, turn_tell, stream, ready, ticket);
	return error ? driver_explain(lane->c, what, "launch on the stream", error) : 0;
}

static int stream_await_done(struct coppice_lane *lane, const char *what, void *stream,
			     uint64_t ticket)
{
	size_t done = offsetof(struct abi_lane, done);
	int r, error;

	if (!takes_turns(lane, stream))
		return stream_wait(lane, what, stream, done, ticket);
	r = stream_wait(lane, what, stream, offsetof(struct abi_lane, soon), ticket);
	if (r < 0)
		return r;
	error = take_turn(lane, turn_await, stream, done, ticket);
	return error ? driver_explain(lane->c, what, "launch on the stream", error) : 0;
}

static void forget_turn(struct coppice_lane *lane)
{
	const struct driver *driver = lane->c->driver;
	void *popped;

	if (!lane->turn.module || driver->context_push(lane->turn_context) != 0)
		return;
	turn_unload(driver, &lane->turn);
	driver->context_pop(&popped);
}

void stream_forget(struct coppice_lane *lane)
{
	const struct driver *driver = lane->c->driver;
	void *popped;

	if (connection_is_foreign(lane->c))
		return;
	if (lane->stream_base)
		ring_release_streams(lane->shared);
	forget_turn(lane);
	if (lane->stream_base && driver->context_push(lane->stream_context) == 0) {
		driver->host_unregister(lane->shared);
		driver->context_pop(&popped);
	}
	lane->stream_base = 0;
}

int coppice_wait_on_stream(struct coppice_lane *lane, uint64_t ticket, void *stream)
{
	static const char what[] = "coppice_wait_on_stream";
	int r = connection_check_peer(lane->c);

	if (r < 0)
		return r;
	if (ticket == 0 || ticket > lane->submitted)
		return explain(lane->c->key, -EINVAL,
			       "%s: ticket %llu was not submitted on this lane; the last was %llu",
			       what, (unsigned long long)ticket,
			       (unsigned long long)lane->submitted);
	r = stream_join(lane, what, stream, STREAM_LIVE);
	if (r < 0)
		return r;
	return stream_await_done(lane, what, stream, ticket);
}
