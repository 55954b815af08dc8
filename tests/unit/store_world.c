/*
 * store_world.c - what the store stands on, of store_world.h: rows of the pool as words, tiers
 * whose copies take their time, memory that fails when it is told to.
 */
#include "store_world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(offsetof(struct copy, bytes) % sizeof(uint64_t) == 0, "rows lie in it");

const uint32_t world_page_tokens[WORLD_MODELS] = {4, 6};
const uint32_t world_page_bytes[WORLD_MODELS] = {104, 160};

bool world_memory_is_short;
static uint64_t memory_random = 88172645463325252u;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool memory_fails(void)
{
	memory_random = memory_random * 6364136223846793005u + 1442695040888963407u;
	return world_memory_is_short && (memory_random >> 33) % 40 == 0;
}

void *__wrap_malloc(size_t bytes)
{
	return memory_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return memory_fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return memory_fails() ? NULL : __real_realloc(old, bytes);
}

uint32_t world_below(struct world *w, uint32_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 11) % n);
}

uint32_t world_n_devices(const struct world *w)
{
	return w->room.n_devices ? w->room.n_devices : 1;
}

uint64_t *world_row(struct world *w, uint32_t model, uint32_t page, uint32_t row)
{
	uint32_t n = world_n_devices(w),
		 n_pages = WORLD_EXTENT_BYTES / n / world_page_bytes[model] * n;
	uint32_t extent = page / n_pages;

	assert_true(extent < FIXTURE_EXTENTS && w->f.committed[extent]);
	assert_true(row < world_page_tokens[model]);
	return (uint64_t *)(void *)(w->pool[extent] + page % n_pages * world_page_bytes[model]) +
	       row;
}

const uint64_t *world_place(const struct world *w, const void *memory)
{
	for (uint64_t i = w->downs.n_asked; i > w->downs.n_done; i--) {
		const struct copy *copy = &w->downs.ring[(i - 1) % WORLD_MAX_COPIES];
		if (copy->what.host == memory)
			return (const uint64_t *)(const void *)copy->bytes;
	}
	return memory;
}

static void world_release(void *ctx, uint32_t extent)
{
	struct world *w = ctx;

	fixture_release(&w->f, extent);
	memset(w->pool[extent], 0, WORLD_EXTENT_BYTES);
}

static int world_commit(void *ctx, uint32_t extent)
{
	struct world *w = ctx;

	w->f.refuse = world_below(w, 200) == 0;
	return fixture_commit(&w->f, extent);
}

/* Rows of a page that matter; the others are left alone or spoilt. */
static void rows_copy(void *to, const void *from, const struct tier_copy *what)
{
	size_t at = what->first * sizeof(uint64_t);

	memcpy((char *)to + at, (const char *)from + at, what->count * sizeof(uint64_t));
}

static struct copy *copy_ask(struct copies *c, const struct tier_copy *what)
{
	struct copy *copy = &c->ring[c->n_asked++ % WORLD_MAX_COPIES];

	assert_true(c->n_asked - c->n_done <= WORLD_MAX_COPIES);
	copy->what = *what;
	return copy;
}

static uint64_t world_down(void *ctx, const struct tier_copy *what)
{
	struct world *w = ctx;
	struct copy *copy = copy_ask(&w->downs, what);

	assert_true(w->f.committed[what->extent]);
	assert_true(what->offset_bytes + what->bytes <= WORLD_EXTENT_BYTES);
	memcpy(copy->bytes, w->pool[what->extent] + what->offset_bytes, what->bytes);
	memset(what->host, 0xdb, what->bytes);
	return w->downs.n_asked;
}

static uint64_t world_up(void *ctx, const struct tier_copy *what)
{
	struct world *w = ctx;

	assert_true(w->f.committed[what->extent]);
	assert_true(what->offset_bytes + what->bytes <= WORLD_EXTENT_BYTES);
	memset(w->pool[what->extent] + what->offset_bytes, 0xdb, what->bytes);
	copy_ask(&w->ups, what);
	return w->ups.n_asked;
}

/* Some end now. */
static uint64_t world_downs_done(void *ctx)
{
	struct world *w = ctx;

	while (w->downs.n_done < w->downs.n_asked && world_below(w, 4)) {
		struct copy *copy = &w->downs.ring[w->downs.n_done++ % WORLD_MAX_COPIES];
		rows_copy(copy->what.host, copy->bytes, &copy->what);
	}
	return w->downs.n_done;
}

static uint64_t world_ups_done(void *ctx)
{
	struct world *w = ctx;

	while (w->ups.n_done < w->ups.n_asked && world_below(w, 4)) {
		const struct tier_copy *what =
			&w->ups.ring[w->ups.n_done++ % WORLD_MAX_COPIES].what;
		assert_true(w->f.committed[what->extent]);
		rows_copy(w->pool[what->extent] + what->offset_bytes, what->host, what);
	}
	return w->ups.n_done;
}

static void world_kick(void *ctx)
{
	(void)ctx;
}

static void *memory_alloc(void *ctx, size_t bytes)
{
	(void)ctx;
	return aligned_alloc(WORLD_UNIT_BYTES, bytes);
}

static void memory_free(void *ctx, void *memory, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(memory);
}

static struct tier_file *world_file(struct world *w)
{
	char error[256] = "";
	struct tier_file *file;
	struct tier_file_config config = {
		.path = w->path,
		.bytes = (256u << 10) + w->room.file_units * WORLD_UNIT_BYTES,
		.unit_bytes = WORLD_UNIT_BYTES,
		.chunk_units = WORLD_CHUNK_UNITS,
		.depth = 4,
	};

	if (tier_file_open(&config, &file, error, sizeof(error)))
		fail_msg("%s", error);
	return file;
}

static void world_attach(struct world *w)
{
	char error[256] = "";
	struct store_tiers_found found;
	struct tier_host_config host = {
		.memory = {.alloc = memory_alloc, .free = memory_free},
		.bytes = w->room.host_units * WORLD_UNIT_BYTES,
		.unit_bytes = WORLD_UNIT_BYTES,
		.chunk_units = WORLD_CHUNK_UNITS,
	};
	struct store_tiers_config config = {
		.mover = {.ctx = w,
			  .down = world_down,
			  .up = world_up,
			  .downs_done = world_downs_done,
			  .ups_done = world_ups_done,
			  .kick = world_kick},
		.domain_bytes = {0, w->room.domain_tier_bytes, w->room.domain_tier_bytes},
		.owner_bytes = {0, w->room.owner_is_free ? 0 : w->room.domain_tier_bytes,
				w->room.owner_is_free ? 0 : w->room.domain_tier_bytes},
		.depth = 4,
		.long_paths = w->room.long_paths,
	};

	w->downs.n_asked = w->downs.n_done = w->ups.n_asked = w->ups.n_done = 0;
	if (tier_host_new(&host, &config.host, error, sizeof(error)))
		fail_msg("%s", error);
	if (w->room.file_units)
		config.file = world_file(w);
	assert_int_equal(store_tiers_attach(w->f.store, &config, &found), 0);
	assert_int_equal(found.n_lost, 0);
	w->n_restored += found.n_tokens;
}

void world_open(struct world *w)
{
	struct store_config config = {
		.pool = {.ctx = w, .commit = world_commit, .release = world_release},
		.n_extents = w->room.n_extents,
		.extent_bytes = WORLD_EXTENT_BYTES,
		.n_devices = w->room.n_devices,
		.claim_ns = FIXTURE_CLAIM_NS,
		.domain_bytes = w->room.domain_bytes,
		.owner_bytes = w->room.owner_is_free ? 0 : w->room.domain_bytes,
		.reserved_extents = w->room.n_reserved,
		.max_seq_tokens = WORLD_MAX_TOKENS,
	};

	assert_int_equal(store_new(&config, &w->f.store), 0);
	if (w->room.host_units)
		world_attach(w);
	w->models[0] = fixture_model(&w->f, "a", world_page_tokens[0], world_page_bytes[0]);
	w->models[1] = fixture_model(&w->f, "b", world_page_tokens[1], world_page_bytes[1]);
	for (uint32_t i = 0; i < WORLD_RECENT; i++)
		w->recent[i].space = WORLD_SPACES;
	memset(w->pins, 0, sizeof(w->pins));
	w->cursor = 0;
}

void world_close(struct world *w)
{
	gather_done(&w->held);
	gather_done(&w->gather);
	w->held_by = NULL;
	for (uint32_t i = 0; i < WORLD_SEQS; i++) {
		store_seq_close(w->seqs[i].q, w->f.now_ns);
		w->seqs[i] = (struct model_seq){0};
	}
	fixture_check(&w->f);
	w->n_collapsed += fixture_stats(&w->f).nodes_collapsed;
	for (uint32_t i = 0; i < WORLD_MODELS; i++)
		store_model_unref(w->models[i]);
	store_free(w->f.store);
	assert_int_equal(w->f.n_committed, 0);
	assert_true(w->downs.n_done == w->downs.n_asked && w->ups.n_done == w->ups.n_asked);
}

void world_init(struct world *w, uint64_t seed, struct room room)
{
	*w = (struct world){.random = seed * 2 + 1, .room = room};
	if (room.file_units) {
		strcpy(w->directory, "store_random_test.XXXXXX");
		assert_non_null(mkdtemp(w->directory));
		snprintf(w->path, sizeof(w->path), "%s/kv", w->directory);
	}
	world_open(w);
}

void world_done(struct world *w)
{
	world_close(w);
	if (w->room.file_units) {
		unlink(w->path);
		assert_int_equal(rmdir(w->directory), 0);
	}
}
