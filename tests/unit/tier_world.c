/*
 * tier_world.c - the pool and host memory as arrays, copies that wait while they are held, and each
 * row's pattern compared with what its path asks for.
 */
#include "tier_world.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MAX_TOKENS 2048u

static uint8_t *page_at(const struct tier_world *w, uint32_t page)
{
	return w->pool + (size_t)page * WORLD_PAGE_BYTES;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t prefix_next(uint64_t before, char token)
{
	return mix(before + (unsigned char)token + UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t prefix_of(const char *tokens, uint32_t n)
{
	uint64_t prefix = 1;

	for (uint32_t i = 0; i < n; i++)
		prefix = prefix_next(prefix, tokens[i]);
	return prefix;
}

static void row_pattern(uint64_t prefix, uint64_t *ret)
{
	for (uint32_t i = 0; i < WORLD_ROW_BYTES / sizeof(*ret); i++)
		ret[i] = mix(prefix + i);
}

static int pool_commit(void *ctx, uint32_t extent)
{
	(void)ctx;
	(void)extent;
	return 0;
}

/* What nobody has any more is spoilt. */
static void pool_release(void *ctx, uint32_t extent)
{
	struct tier_world *w = ctx;

	memset(page_at(w, extent), 0xdb, WORLD_PAGE_BYTES);
}

/* An extent is one page. */
static void *copy_page(const struct tier_world *w, const struct tier_copy *c)
{
	assert_true(c->extent < w->options.device_pages && c->offset_bytes == 0);
	assert_true(c->bytes <= WORLD_PAGE_BYTES);
	return page_at(w, c->extent);
}

static uint64_t way_ask(struct tier_world_way *way, const struct tier_copy *copy)
{
	assert_true(way->n_asked - way->n_done < WORLD_COPIES);
	way->copies[way->n_asked++ % WORLD_COPIES] = *copy;
	return way->n_asked;
}

static uint64_t mover_down(void *ctx, const struct tier_copy *copy)
{
	struct tier_world *w = ctx;

	memcpy(copy->host, copy_page(w, copy), copy->bytes);
	return way_ask(&w->downs, copy);
}

static uint64_t mover_up(void *ctx, const struct tier_copy *copy)
{
	struct tier_world *w = ctx;

	memset(copy_page(w, copy), 0xdb, copy->bytes);
	return way_ask(&w->ups, copy);
}

static uint64_t mover_downs_done(void *ctx)
{
	struct tier_world *w = ctx;

	if (!w->downs.held)
		w->downs.n_done = w->downs.n_asked;
	return w->downs.n_done;
}

static uint64_t mover_ups_done(void *ctx)
{
	struct tier_world *w = ctx;

	while (!w->ups.held && w->ups.n_done < w->ups.n_asked) {
		const struct tier_copy *copy = &w->ups.copies[w->ups.n_done++ % WORLD_COPIES];
		memcpy(copy_page(w, copy), copy->host, copy->bytes);
	}
	return w->ups.n_done;
}

static void mover_kick(void *ctx)
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

static int open_file(const struct tier_world_options *o, struct tier_file **ret, char *error,
		     size_t error_bytes)
{
	uint32_t n_units = o->file_pages * WORLD_PAGE_UNITS;
	struct tier_file_config config = {
		.path = o->path,
		.bytes = (160u << 10) + n_units * (1024u + WORLD_UNIT_BYTES),
		.unit_bytes = WORLD_UNIT_BYTES,
		.chunk_units = WORLD_CHUNK_UNITS,
		.depth = o->depth ? o->depth : 4,
	};

	return tier_file_open(&config, ret, error, error_bytes);
}

static void attach(struct tier_world *w, struct tier_file *file)
{
	const struct tier_world_options *o = &w->options;
	char error[256];
	struct tier_host_config host = {
		.memory = {.alloc = memory_alloc, .free = memory_free},
		.bytes = (uint64_t)o->host_pages * WORLD_PAGE_BYTES,
		.unit_bytes = WORLD_UNIT_BYTES,
		.chunk_units = WORLD_CHUNK_UNITS,
	};
	struct store_tiers_config config = {
		.mover = {w, mover_down, mover_up, mover_downs_done, mover_ups_done, mover_kick},
		.file = file,
		.domain_bytes = {0, (uint64_t)o->domain_host_pages * WORLD_PAGE_BYTES,
				 (uint64_t)o->domain_file_pages * WORLD_PAGE_BYTES},
		.depth = o->depth ? o->depth : 4,
		.long_paths = o->long_paths,
	};

	if (tier_host_new(&host, &config.host, error, sizeof(error)))
		fail_msg("%s", error);
	if (file)
		w->report = tier_file_catalog(file)->report;
	assert_int_equal(store_tiers_attach(w->store, &config, &w->found), 0);
}

int tier_world_open(struct tier_world *w, struct tier_world_options options, char *error,
		    size_t error_bytes)
{
	struct tier_file *file = NULL;
	struct store_config config = {
		.owner = WORLD_OWNER,
		.pool = {.ctx = w, .commit = pool_commit, .release = pool_release},
		.n_extents = options.device_pages,
		.extent_bytes = WORLD_PAGE_BYTES,
		.claim_ns = 1000,
		.max_seq_tokens = MAX_TOKENS,
	};
	struct store_model_info info = {
		.name = "m",
		.fingerprint = {1, 2},
		.page_tokens = WORLD_PAGE_TOKENS,
		.page_bytes = WORLD_PAGE_BYTES,
	};

	*w = (struct tier_world){.options = options};
	int r = options.file_pages ? open_file(&options, &file, error, error_bytes) : 0;
	if (r)
		return r;
	w->pool = malloc((size_t)options.device_pages * WORLD_PAGE_BYTES);
	assert_non_null(w->pool);
	assert_int_equal(store_new(&config, &w->store), 0);
	if (options.host_pages)
		attach(w, file);
	assert_int_equal(store_model_open(w->store, &info, &w->model), 0);
	tier_world_check(w);
	return 0;
}

void tier_world_close(struct tier_world *w)
{
	tier_world_check(w);
	w->downs.held = w->ups.held = false;
	store_model_unref(w->model);
	store_free(w->store);
	free(w->pool);
	*w = (struct tier_world){0};
}

void tier_world_check(struct tier_world *w)
{
	char error[256] = "";

	if (store_validate(w->store, error, sizeof(error)))
		fail_msg("%s", error);
}

void tier_world_let_go(struct tier_world *w)
{
	w->downs.held = w->ups.held = false;
}

static uint32_t ids_of(const char *text, uint32_t *ret)
{
	uint32_t n = 0;

	for (; text[n]; n++)
		ret[n] = (unsigned char)text[n];
	assert_true(n <= MAX_TOKENS);
	return n;
}

struct store_seq *tier_world_seq(struct tier_world *w, struct tier_world_key key,
				 const char *prompt, struct store_match *ret)
{
	uint32_t ids[MAX_TOKENS];
	struct store_match match;
	struct store_seq *q;
	struct store_open open = {
		.model = key.model ? key.model : w->model,
		.domain = key.domain ? key.domain : 1,
		.salt = key.salt,
		.tokens = ids,
		.n_tokens = ids_of(prompt, ids),
	};

	assert_int_equal(store_seq_open(w->store, &open, w->now_ns, &q, ret ? ret : &match), 0);
	tier_world_check(w);
	return q;
}

static void rows_write(struct tier_world *w, const struct store_seq *q, const char *document)
{
	uint32_t n_slots, at = store_seq_n_tokens(q);
	const struct store_slice *slots = store_seq_slots(q, &n_slots);
	uint64_t prefix = prefix_of(document, at);

	for (uint32_t i = 0; i < n_slots; i++)
		for (uint32_t j = 0; j < slots[i].count; j++) {
			uint8_t *page = page_at(w, slots[i].page);
			prefix = prefix_next(prefix, document[at++]);
			row_pattern(prefix, (uint64_t *)(void *)(page + (slots[i].first + j) *
										WORLD_ROW_BYTES));
		}
}

int tier_world_publish(struct tier_world *w, struct store_seq *q, const char *document)
{
	uint32_t ids[MAX_TOKENS];
	uint32_t n = ids_of(document, ids), n_path = store_seq_n_tokens(q);
	int r = store_seq_extend(q, ids + n_path, n - n_path, false, w->now_ns);

	tier_world_check(w);
	if (r)
		return r;
	rows_write(w, q, document);
	r = store_seq_publish(q, w->now_ns);
	tier_world_check(w);
	return r;
}

/* One turn; waits for the file where nothing else could happen. */
static bool turn(struct tier_world *w)
{
	bool busy = store_tiers_poll(w->store, ++w->now_ns);
	struct pollfd poll_fd = {.fd = store_tiers_fd(w->store), .events = POLLIN};

	tier_world_check(w);
	if (busy && poll_fd.fd >= 0)
		poll(&poll_fd, 1, 1);
	return busy;
}

struct store_match tier_world_wait(struct tier_world *w, struct store_seq *q)
{
	struct store_match match;

	for (uint32_t i = 0; i < 10000; i++) {
		assert_int_equal(store_seq_rematch(q, w->now_ns, &match), 0);
		tier_world_check(w);
		if (!store_seq_is_promoted(q))
			return match;
		turn(w);
	}
	fail_msg("what is fetched never comes");
	return match;
}

void tier_world_settle(struct tier_world *w)
{
	for (uint32_t i = 0; i < 10000; i++)
		if (!turn(w))
			return;
	fail_msg("the tiers never come to rest");
}

bool tier_world_right(struct tier_world *w, const struct store_seq *q, const char *tokens)
{
	uint32_t end = store_seq_n_tokens(q);

	for (struct store_node *n = store_seq_node(q); n; n = store_node_parent(n)) {
		uint32_t n_slices, pos = store_node_pos(n);
		const struct store_slice *slices = store_node_slices(n, &n_slices);
		uint64_t prefix = prefix_of(tokens, pos);
		for (uint32_t i = 0; i < n_slices && pos < end; i++)
			for (uint32_t j = 0; j < slices[i].count && pos < end; j++) {
				uint64_t row[WORLD_ROW_BYTES / sizeof(uint64_t)];
				prefix = prefix_next(prefix, tokens[pos++]);
				row_pattern(prefix, row);
				if (memcmp(page_at(w, slices[i].page) +
						   (slices[i].first + j) * WORLD_ROW_BYTES,
					   row, WORLD_ROW_BYTES))
					return false;
			}
		end = store_node_pos(n);
	}
	return true;
}

static bool rows_right(const struct store_slice *slice, const uint8_t *page, const char *tokens,
		       uint32_t *pos)
{
	for (uint32_t j = 0; j < slice->count; j++) {
		uint64_t row[WORLD_ROW_BYTES / sizeof(uint64_t)];
		row_pattern(prefix_of(tokens, ++*pos), row);
		if (memcmp(page + (slice->first + j) * WORLD_ROW_BYTES, row, WORLD_ROW_BYTES))
			return false;
	}
	return true;
}

bool tier_world_right_anywhere(struct tier_world *w, struct store_seq *q, const char *tokens)
{
	struct gather g = {0};
	uint32_t pos = 0, n_slots, n_tail;
	const struct store_slice *tail = store_seq_tail(q, &n_slots, &n_tail);
	bool right = true;

	assert_int_equal(gather_begin(&g, q), 0);
	for (uint32_t i = 0; i < g.n_slices && right; i++) {
		for (uint32_t j = 0; i >= g.n_device && !gather_is_there(&g, i); j++) {
			assert_true(j < 1000);
			store_tiers_poll(w->store, w->now_ns);
		}
		right = rows_right(&g.slices[i],
				   i < g.n_device ? page_at(w, g.slices[i].page)
						  : gather_memory(&g, i),
				   tokens, &pos);
	}
	gather_done(&g);
	for (uint32_t i = 0; i < n_slots && right; i++)
		right = rows_right(&tail[i], page_at(w, tail[i].page), tokens, &pos);
	assert_true(!right || pos == store_seq_n_tokens(q));
	return right;
}

void tier_world_leave(struct tier_world *w, const char *document)
{
	struct store_seq *q = tier_world_seq(w, (struct tier_world_key){0}, document, NULL);
	int r;

	tier_world_wait(w, q);
	while ((r = tier_world_publish(w, q, document)) == -ENOSPC && turn(w))
		;
	assert_int_equal(r, 0);
	assert_true(tier_world_right(w, q, document));
	store_seq_close(q, w->now_ns);
	tier_world_check(w);
}

uint32_t tier_world_cached(struct tier_world *w, struct tier_world_key key, const char *document)
{
	struct store_seq *q = tier_world_seq(w, key, document, NULL);
	struct store_match match = tier_world_wait(w, q);

	assert_int_equal(match.cached, store_seq_n_tokens(q));
	assert_true(tier_world_right(w, q, document));
	store_seq_close(q, w->now_ns);
	tier_world_check(w);
	return match.cached;
}

struct store_tiers_stats tier_world_stats(const struct tier_world *w)
{
	struct store_tiers_stats stats;

	store_tiers_stats(w->store, &stats);
	return stats;
}
