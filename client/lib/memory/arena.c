/*
 * arena.c - arenas come and go, and an address is found in them.
 *
 * The connection keeps them in an array that is sorted by address; they do not overlap, so that an
 * address is in the last that begins at or before it, or in none. Each reference keeps the memory
 * mapped and the connection's shell alive; the library has one until the arena is freed. The
 * device's memory is unmapped before the daemon hears that it may free it.
 */
#include "arena.h"

#include "client/lib/connection/call.h"
#include "client/lib/weights/weights.h"
#include "driver.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGN ((size_t)256)

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

	/* Weights that are mapped twice lie in the same place. */
	while (set->items[at] != arena)
		at--;
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

static void release_arena(struct coppice *c, uint32_t id)
{
	Coppice__ArenaFree message = COPPICE__ARENA_FREE__INIT;
	struct call call = call_of("coppice_arena_free");

	message.arena = id;
	call.request.arena_free = &message;
	call_release(c, &call);
}

static void release(const struct coppice_arena *arena)
{
	if (arena->weights)
		weights_release(arena->c, arena->weights);
	else
		release_arena(arena->c, arena->id);
}

void coppice_arena_ref(struct coppice_arena *arena)
{
	atomic_fetch_add_explicit(&arena->n_refs, 1, memory_order_relaxed);
}

/* The last one's. Device memory counts for nobody once the daemon hears of it: it is not mapped
 * here any more then. */
static void destroy(struct coppice_arena *arena)
{
	struct coppice *c = arena->c;
	bool device = arena->device.address != 0;

	unmap(arena);
	if (device && connection_is_open(c))
		release(arena);
	free(arena);
	connection_unref(c);
}

void coppice_arena_unref(struct coppice_arena *arena)
{
	/* acq_rel: who frees it comes behind all that the others did with it. */
	if (arena && atomic_fetch_sub_explicit(&arena->n_refs, 1, memory_order_acq_rel) == 1)
		destroy(arena);
}

void arena_drop_all(struct coppice *c)
{
	for (size_t i = 0; i < c->arenas.n; i++)
		coppice_arena_unref(c->arenas.items[i]);
	free(c->arenas.items);
	c->arenas = (struct arena_set){0};
}

static int explain_map(struct coppice *c, const char *what, int code)
{
	return explain(c->key, code, "%s: cannot map the memory: %s", what, strerrordesc_np(-code));
}

static int map_device(struct coppice_arena *arena, const char *what, const struct device_name *name)
{
	int r = device_open(arena->c, what, name, &arena->device);

	if (r < 0)
		return r;
	arena->base = (uint8_t *)(uintptr_t)arena->device.address;
	return 0;
}

/* From now on nobody else maps it writable, nor takes its pages away: the daemon may use it. */
static int seal(struct coppice *c, uint32_t id)
{
	Coppice__ArenaSeal message = COPPICE__ARENA_SEAL__INIT;
	struct call call = call_of("coppice_arena_new");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.arena = id;
	call.request.arena_seal = &message;
	return call_daemon(c, &call, &answer);
}

static int map_host(struct coppice_arena *arena, const char *what, int fd)
{
	void *map;
	int r = channel_segment_map(fd, arena->bytes, 1, &map);

	if (r < 0)
		return explain_map(arena->c, what, r);
	r = channel_segment_fill(map, arena->bytes);
	if (r < 0)
		r = explain_map(arena->c, what, r);
	else
		r = seal(arena->c, arena->id);
	if (r < 0) {
		connection_unmap(arena->c, map, arena->bytes);
		return r;
	}
	arena->base = map;
	return 0;
}

static int map_weights(struct coppice_arena *arena, const char *what, int fd)
{
	void *map;
	int r = channel_segment_map_own(fd, arena->bytes, &map);

	if (r < 0)
		return explain_map(arena->c, what, r);
	arena->base = map;
	return 0;
}

/* What the daemon gave. */
struct grant {
	const char *what; /* the public function */
	uint32_t id, weights; /* one of them */
	uint64_t bytes;
	int fd;
	struct device_name name;
};

static int map(struct coppice_arena *arena, const struct grant *grant)
{
	if (grant->name.device)
		return map_device(arena, grant->what, &grant->name);
	if (grant->weights)
		return map_weights(arena, grant->what, grant->fd);
	return map_host(arena, grant->what, grant->fd);
}

static int insert(struct coppice_arena *arena)
{
	struct coppice *c = arena->c;
	int r;

	pthread_mutex_lock(&c->lists_lock);
	r = insert_locked(&c->arenas, arena);
	pthread_mutex_unlock(&c->lists_lock);
	return r;
}

/* Maps it and puts it in its place; else gives it back. Explains. */
static int adopt(struct coppice *c, const struct grant *grant, struct coppice_arena **ret)
{
	struct coppice_arena arena = {.c = c,
				      .id = grant->id,
				      .weights = grant->weights,
				      .bytes = grant->bytes,
				      .n_refs = 1};
	struct coppice_arena *kept = malloc(sizeof(*kept));
	int r = kept ? map(&arena, grant) : explain_map(c, grant->what, -ENOMEM);

	if (r == 0) {
		memcpy(kept, &arena, sizeof(arena));
		r = insert(kept);
		if (r < 0) {
			unmap(kept);
			r = explain_map(c, grant->what, r);
		}
	}
	if (r < 0) {
		free(kept);
		release(&arena);
		return r;
	}
	connection_ref(c);
	*ret = kept;
	return 0;
}

static bool is_as_agreed(const struct answer *answer, enum coppice_memory memory, size_t bytes)
{
	const Coppice__ArenaReply *arena = answer->reply->arena;

	return arena && arena->arena != 0 && arena->bytes >= bytes &&
	       arena->has_device == (memory == COPPICE_DEVICE) && answer->n_fds == 1;
}

static int arena_ask(struct coppice *c, Coppice__ArenaNew *message, struct coppice_arena **ret)
{
	struct call call = call_of("coppice_arena_new");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	const Coppice__ArenaReply *arena;
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
	arena = answer.reply->arena;
	return adopt(c,
		     &(struct grant){.what = call.what,
				     .id = arena->arena,
				     .bytes = arena->bytes,
				     .fd = answer.fds[0],
				     .name = {.device = arena->has_device ? &arena->device : NULL,
					      .fd = answer.fds[0],
					      .bytes = arena->bytes}},
		     ret);
}

int arena_of_weights(struct coppice *c, const char *what, const Coppice__WeightsMapReply *map,
		     int fd, struct coppice_arena **ret)
{
	return adopt(c,
		     &(struct grant){.what = what,
				     .weights = map->weights,
				     .bytes = map->bytes,
				     .fd = fd,
				     .name = {.device = map->has_device ? &map->device : NULL,
					      .fd = fd,
					      .bytes = map->bytes}},
		     ret);
}

int coppice_arena_new(struct coppice *c, enum coppice_memory memory, size_t bytes,
		      struct coppice_arena **ret)
{
	Coppice__ArenaNew message = COPPICE__ARENA_NEW__INIT;

	message.kind = (uint32_t)memory;
	message.bytes = bytes;
	return arena_ask(c, &message, ret);
}

int arena_new_for_ids(struct coppice *c, size_t bytes, struct coppice_arena **ret)
{
	Coppice__ArenaNew message = COPPICE__ARENA_NEW__INIT;

	message.kind = COPPICE_HOST;
	message.bytes = bytes;
	message.has_ids = message.ids = 1;
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

enum coppice_memory coppice_arena_memory(const struct coppice_arena *arena)
{
	return arena->device.address ? COPPICE_DEVICE : COPPICE_HOST;
}

void coppice_arena_free(struct coppice_arena *arena)
{
	if (!arena)
		return;
	/* In a forked child the locks are not to be touched; and what coppice_close has freed is
	 * not freed again. */
	if (!connection_is_open(arena->c))
		return;

	pthread_mutex_lock(&arena->c->lists_lock);
	remove_locked(&arena->c->arenas, arena);
	pthread_mutex_unlock(&arena->c->lists_lock);
	if (!arena->device.address)
		release(arena);
	coppice_arena_unref(arena);
}

/* ---- pieces ---- */

static int check_piece(const struct coppice_arena *arena, size_t bytes, size_t align)
{
	struct coppice *c = arena->c;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (arena->weights)
		return explain(c->key, -EINVAL, "coppice_arena_alloc: there are weights in it");
	if (bytes == 0)
		return explain(c->key, -EINVAL, "coppice_arena_alloc: a piece of no bytes");
	if (align & (align - 1))
		return explain(c->key, -EINVAL,
			       "coppice_arena_alloc: align is %zu; give a power of two, or 0 for "
			       "%zu",
			       align, DEFAULT_ALIGN);
	return 0;
}

/* Where a piece begins that lies behind `used` bytes; beyond the end: it does not fit. */
static size_t place_piece(const struct coppice_arena *arena, size_t used, size_t bytes,
			  size_t align)
{
	uintptr_t base = (uintptr_t)arena->base;
	size_t at = align_to(base + used, align) - base;

	return at <= arena->bytes && bytes <= arena->bytes - at ? at : SIZE_MAX;
}

int coppice_arena_alloc(struct coppice_arena *arena, size_t bytes, size_t align, void **ret)
{
	size_t used = atomic_load_explicit(&arena->used, memory_order_relaxed);
	size_t at;
	int r = check_piece(arena, bytes, align);

	if (r < 0)
		return r;
	do {
		at = place_piece(arena, used, bytes, align ? align : DEFAULT_ALIGN);
		if (at == SIZE_MAX)
			return explain(arena->c->key, -ENOSPC,
				       "coppice_arena_alloc: %zu bytes do not fit behind the %zu "
				       "that are taken of the arena's %zu; make a larger one, or "
				       "reset it",
				       bytes, used, arena->bytes);
	} while (!atomic_compare_exchange_weak_explicit(&arena->used, &used, at + bytes,
							memory_order_relaxed,
							memory_order_relaxed));
	*ret = arena->base + at;
	return 0;
}

void coppice_arena_reset(struct coppice_arena *arena)
{
	atomic_store_explicit(&arena->used, 0, memory_order_relaxed);
}
