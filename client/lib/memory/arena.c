/*
 * arena.c - arenas come and go, and an address is found in them.
 *
 * The connection keeps them in an array that is sorted by address; they do not overlap, so that an
 * address is in the last that begins at or before it, or in none. Of the device's memory the handle
 * is closed before the daemon hears that it may free it.
 */
#include "arena.h"

#include "client/lib/connection/call.h"
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Under lists_lock: how many arenas begin at or before the address. */
static size_t count_up_to(const struct arena_set *set, const uint8_t *address)
{
	size_t low = 0;
	size_t high = set->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->items[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int insert_locked(struct arena_set *set, struct coppice_arena *arena)
{
	size_t at = count_up_to(set, arena->base);

	if (set->n == set->capacity) {
		size_t capacity = set->capacity ? 2 * set->capacity : 8;
		struct coppice_arena **items = realloc(set->items, capacity * sizeof(*items));

		if (!items)
			return -ENOMEM;
		set->items = items;
		set->capacity = capacity;
	}
	memmove(&set->items[at + 1], &set->items[at], (set->n - at) * sizeof(*set->items));
	set->items[at] = arena;
	set->n++;
	return 0;
}

static void remove_locked(struct arena_set *set, const struct coppice_arena *arena)
{
	size_t at = count_up_to(set, arena->base) - 1;

	set->n--;
	memmove(&set->items[at], &set->items[at + 1], (set->n - at) * sizeof(*set->items));
}

/* The last arena that begins at or before the address. */
static struct arena_span find_span(struct coppice *c, const uint8_t *address)
{
	struct arena_span span = {0};
	size_t n;

	pthread_mutex_lock(&c->lists_lock);
	n = count_up_to(&c->arenas, address);
	if (n) {
		const struct coppice_arena *arena = c->arenas.items[n - 1];

		span = (struct arena_span){arena->base, arena->bytes, arena->id};
	}
	pthread_mutex_unlock(&c->lists_lock);
	return span;
}

struct arena_place arena_find(struct coppice *c, const void *address, struct arena_span *last)
{
	uintptr_t at = (uintptr_t)address;

	*last = find_span(c, address);
	if (at - (uintptr_t)last->base >= last->bytes)
		return (struct arena_place){0};
	return (struct arena_place){.arena = last->arena, .offset = at - (uintptr_t)last->base};
}

static void unmap(struct coppice_arena *arena)
{
	if (arena->device.address)
		device_close(arena->c, &arena->device);
	else
		connection_unmap(arena->c, arena->base, arena->bytes);
}

static void destroy(struct coppice_arena *arena)
{
	unmap(arena);
	free(arena);
}

void arena_drop_all(struct coppice *c)
{
	for (size_t i = 0; i < c->arenas.n; i++)
		destroy(c->arenas.items[i]);
	free(c->arenas.items);
	c->arenas = (struct arena_set){0};
}

static void release(struct coppice *c, uint32_t id)
{
	Coppice__ArenaFree message = COPPICE__ARENA_FREE__INIT;
	struct call call = call_of("coppice_arena_free");

	message.arena = id;
	call.request.arena_free = &message;
	call_release(c, &call);
}

static int explain_map(struct coppice *c, int code)
{
	return explain(c->key, code, "coppice_arena_new: cannot map the arena: %s",
		       strerrordesc_np(-code));
}

static int map_host(struct coppice_arena *arena, int fd)
{
	void *map;
	int r = channel_segment_map(fd, arena->bytes, 1, &map);

	if (r < 0)
		return explain_map(arena->c, r);
	arena->base = map;
	return 0;
}

static int map_device(struct coppice_arena *arena, const Coppice__ArenaReply *reply)
{
	int r = device_open(arena->c, reply, &arena->device);

	if (r < 0)
		return r;
	arena->base = (uint8_t *)(uintptr_t)arena->device.address;
	atomic_store_explicit(&arena->c->has_device, 1, memory_order_relaxed);
	return 0;
}

/* Maps what the daemon gave (fd -1: device memory) and puts it in its place. Explains. */
static int adopt(struct coppice *c, const Coppice__ArenaReply *reply, int fd,
		 struct coppice_arena **ret)
{
	struct coppice_arena *arena = calloc(1, sizeof(*arena));
	int r;

	if (!arena)
		return explain_map(c, -ENOMEM);
	*arena = (struct coppice_arena){.c = c, .id = reply->arena, .bytes = reply->bytes};
	r = fd >= 0 ? map_host(arena, fd) : map_device(arena, reply);
	if (r < 0) {
		free(arena);
		return r;
	}
	pthread_mutex_lock(&c->lists_lock);
	r = insert_locked(&c->arenas, arena);
	pthread_mutex_unlock(&c->lists_lock);
	if (r < 0) {
		destroy(arena);
		return explain_map(c, r);
	}
	*ret = arena;
	return 0;
}

static bool is_as_agreed(const struct answer *answer, enum coppice_memory memory, size_t bytes)
{
	const Coppice__ArenaReply *arena = answer->reply->arena;

	return arena && arena->arena != 0 && arena->bytes >= bytes &&
	       answer->n_fds == (memory == COPPICE_HOST ? 1 : 0);
}

static int arena_ask(struct coppice *c, Coppice__ArenaNew *message, struct coppice_arena **ret)
{
	struct call call = call_of("coppice_arena_new");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	const struct driver *driver;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (message->bytes == 0)
		return explain(c->key, -EINVAL, "coppice_arena_new: an arena of no bytes");
	if (message->kind != COPPICE_HOST)
		r = driver_find(c, call.what, &driver);
	if (r < 0)
		return r;
	call.request.arena_new = message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!is_as_agreed(&answer, (enum coppice_memory)message->kind, message->bytes))
		return call_bad_answer(c, call.what);
	r = adopt(c, answer.reply->arena, answer.n_fds ? answer.fds[0] : -1, ret);
	if (r < 0)
		release(c, answer.reply->arena->arena);
	return r;
}

int coppice_arena_new(struct coppice *c, enum coppice_memory memory, size_t bytes,
		      struct coppice_arena **ret)
{
	Coppice__ArenaNew message = COPPICE__ARENA_NEW__INIT;

	message.kind = (uint32_t)memory;
	message.bytes = bytes;
	return arena_ask(c, &message, ret);
}

int coppice_arena_new_on(struct coppice *c, const uint8_t *device, size_t bytes,
			 struct coppice_arena **ret)
{
	Coppice__ArenaNew message = COPPICE__ARENA_NEW__INIT;

	message.kind = COPPICE_DEVICE;
	message.bytes = bytes;
	message.has_device = 1;
	message.device.data = (uint8_t *)(uintptr_t)device;
	message.device.len = COPPICE_DEVICE_BYTES;
	return arena_ask(c, &message, ret);
}

void *coppice_arena_base(const struct coppice_arena *arena)
{
	return arena->base;
}

size_t coppice_arena_bytes(const struct coppice_arena *arena)
{
	return arena->bytes;
}

void coppice_arena_free(struct coppice_arena *arena)
{
	if (!arena)
		return;
	/* In a forked child the locks are not to be touched, and all of it goes with the
	 * connection. */
	if (connection_is_foreign(arena->c))
		return;

	bool device = arena->device.address != 0;

	pthread_mutex_lock(&arena->c->lists_lock);
	remove_locked(&arena->c->arenas, arena);
	pthread_mutex_unlock(&arena->c->lists_lock);
	/* Device memory is freed when the daemon hears of it: nobody may have it open then. */
	if (device)
		unmap(arena);
	release(arena->c, arena->id);
	if (!device)
		unmap(arena);
	free(arena);
}
